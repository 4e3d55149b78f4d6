package admin

import (
	"bytes"
	"embed"
	"html/template"
	"io/fs"
	"net/http"
	"slices"
	"time"

	"steelyard/controlplane/view"
)

//go:embed assets
var assets embed.FS

const (
	// pageRows is how many rows a table shows at first.
	pageRows = 25
	// pageProblems is how many problems the page lists; it counts the others.
	pageProblems = 30
	// pageWindow and pagePoints are the span and the resolution of the lines.
	pageWindow = 5 * time.Minute
	pagePoints = 60
)

// A page renders what the JSON says as HTML, whole and without any script. The
// script then polls the JSON and fills the same elements: the attributes data-f
// (path in the JSON), data-fmt (format), data-v-f (value that colours) and
// data-title-f in page.html are its only instructions.
type page struct{ tmpl *template.Template }

func newPage() *page {
	funcs := template.FuncMap{
		"text": formatText, "int": formatInt, "num1": formatNum1, "num2": formatNum2, "count": formatCount,
		"pct": formatPercent, "pct2": formatPercent2, "clock": formatClock, "anchor": anchor, "secs": formatDuration,
		"ago": formatAgo, "yes": formatYes, "ready": formatReady, "reporting": formatReporting,
		"follows":  formatFollows,
		"problems": formatProblems, "worst": worst,
	}
	return &page{template.Must(template.New("page.html").Funcs(funcs).ParseFS(assets, "assets/page.html"))}
}

// pageData is what page.html is filled with.
type pageData struct {
	Status   Status
	Wrong    []wrong
	More     int // problems not listed
	Clusters []clusterView
	Clients  []clientRow
	Signals  []clientRow // one for each client
	Total    int         // clients, shown or not
	Limit    int         // rows per table; 0: all
	Points   int
	Window   string

	// Empty ones, for the rows that the script adds.
	NewCluster  clusterView
	NewEndpoint endpointRow
	NewSource   sourceRow
	NewClient   clientRow
	NewWrong    wrong
}

// wrong is a line of the list at the top.
type wrong struct {
	Where string
	Href  string // the part of the page that shows more
	view.Problem
}

type clusterView struct {
	view.Cluster
	Rows  []endpointRow
	Feeds []sourceRow
	Now   time.Time
}

type endpointRow struct {
	view.Endpoint
	Spark string
	EvenY float64 // where the line would be if all endpoints had the same share
	Now   time.Time
}

type sourceRow struct {
	view.SourceStatus
	Now time.Time
}

// clientRow is one subscription of one client; an Envoy that asks for nothing
// has one row with an empty subscription.
type clientRow struct {
	Client Client
	Sub    Subscription
	Now    time.Time
}

func (h *handler) getPage(w http.ResponseWriter, r *http.Request) {
	limit := pageRows
	if r.URL.Query().Get("rows") == "all" {
		limit = 0
	}
	var body bytes.Buffer
	if err := h.page.tmpl.Execute(&body, h.pageData(limit)); err != nil {
		h.Log.Error("rendering the page failed", "error", err)
		writeError(w, http.StatusInternalServerError, "the page could not be rendered; see the log")
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(body.Bytes()) // a client that has gone needs no response
}

func (h *handler) pageData(limit int) pageData {
	s := h.snapshot()
	clusters := s.clusters()
	clients := s.clients(clusters)
	sortClientsWorstFirst(clients)
	d := pageData{
		Status: s.status(clusters, len(clients)),
		Total:  len(clients),
		Limit:  limit,
		Points: pagePoints,
		Window: pageWindow.String(),
	}
	d.Wrong, d.More = listWrong(d.Status, clusters, clients)
	for _, c := range clusters {
		d.Clusters = append(d.Clusters, h.clusterView(c, s.now, limit))
	}
	for _, c := range cut(clients, limit) {
		d.Clients = append(d.Clients, clientRows(c, s.now)...)
		d.Signals = append(d.Signals, clientRow{Client: c, Now: s.now})
	}
	return d
}

// listWrong collects the problems of everything but single endpoints, errors
// first.
func listWrong(status Status, clusters []view.Cluster, clients []Client) ([]wrong, int) {
	var errors, warnings []wrong
	add := func(where, part string, problems []view.Problem) {
		for _, p := range problems {
			if p.Severity == view.SeverityError {
				errors = append(errors, wrong{where, "#" + part, p})
			} else {
				warnings = append(warnings, wrong{where, "#" + part, p})
			}
		}
	}
	add("steelyard", "status", status.Problems)
	for _, c := range clusters {
		add(c.Name, anchor(c.Name), c.Problems)
	}
	for _, c := range clients {
		add("Envoy "+c.NodeID, "envoys", c.Problems)
	}
	all := slices.Concat(errors, warnings)
	shown := cut(all, pageProblems)
	return shown, len(all) - len(shown)
}

// anchor is the id of a cluster's part of the page.
func anchor(cluster string) string { return "cluster-" + cluster }

func (h *handler) clusterView(c view.Cluster, now time.Time, limit int) clusterView {
	total := len(c.Endpoints)
	sortWorstFirst(c.Endpoints)
	c.Endpoints = cut(c.Endpoints, limit)
	traces, top := h.traces(c, now, total)
	v := clusterView{Cluster: c, Now: now}
	for _, e := range c.Endpoints {
		v.Rows = append(v.Rows, endpointRow{
			Endpoint: e,
			Spark:    spark(traces[e.Address], top),
			EvenY:    sparkY(1/float64(total), top),
			Now:      now,
		})
	}
	for _, s := range c.Sources {
		v.Feeds = append(v.Feeds, sourceRow{s, now})
	}
	return v
}

// traces returns the recent shares of the endpoints shown, and the share at the
// top of their lines: one scale for a cluster, so that lines can be compared.
func (h *handler) traces(c view.Cluster, now time.Time, total int) (map[string][]view.Number, float64) {
	q := WindowQuery{Since: now.Add(-pageWindow), Points: pagePoints}
	for _, e := range c.Endpoints {
		q.Addresses = append(q.Addresses, e.Address)
	}
	traces := map[string][]view.Number{}
	if len(q.Addresses) == 0 {
		return traces, 0
	}
	top := 2 / float64(total)
	for _, t := range h.History.Window(c.Name, now, q).Endpoints {
		traces[t.Address] = t.Shares
		for _, n := range t.Shares {
			top = max(top, n.Or(0))
		}
	}
	return traces, top
}

func clientRows(c Client, now time.Time) []clientRow {
	if len(c.Subscriptions) == 0 {
		return []clientRow{{Client: c, Now: now}}
	}
	var rows []clientRow
	for _, s := range c.Subscriptions {
		rows = append(rows, clientRow{c, s, now})
	}
	return rows
}

// assetHandler serves the style, the script and the icon of the page.
func assetHandler() http.Handler {
	types := map[string]string{"page.css": "text/css; charset=utf-8", "page.js": "text/javascript; charset=utf-8",
		"icon.svg": "image/svg+xml"}
	mux := http.NewServeMux()
	for name, kind := range types {
		body, err := fs.ReadFile(assets, "assets/"+name)
		if err != nil {
			panic("admin: " + err.Error()) // embedded: cannot be missing
		}
		mux.HandleFunc("/assets/"+name, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			_, _ = w.Write(body)
		})
	}
	mux.HandleFunc("/", notFound)
	return mux
}
