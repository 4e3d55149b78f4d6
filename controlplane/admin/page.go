package admin

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"html/template"
	"io/fs"
	"net/http"
	"path"
	"slices"
	"strings"

	"steelyard/controlplane/admin/conditions"
	"steelyard/internal/api"
)

const (
	// pageRows is how many endpoints the page has before its script runs, over all clusters.
	pageRows = 25
	// pageIncidents is how many incidents it has then; it counts the others.
	pageIncidents = 20
)

// newPage returns what stands there before the script runs, and all there is without one: the incidents, the clusters,
// the endpoints that are worst off. The script replaces it by the view that the address asks for, from the JSON.
func newPage() *template.Template {
	funcs := template.FuncMap{
		"fixed": conditions.FormatFixed, "pct": conditions.FormatPercent, "clock": conditions.FormatClock,
		"secs": conditions.FormatDuration,
		"ago":  conditions.FormatAge, "problems": conditions.FormatProblems, "worst": conditions.Worst,
		"blame": conditions.FormatBlame,
	}
	return template.Must(template.New("page.html").Funcs(funcs).ParseFS(assets, "assets/page.html"))
}

// pageData is what page.html is filled with.
type pageData struct {
	Status    api.Status
	Now       api.Time
	Incidents []api.Incident
	Errors    int // incidents
	More      int // incidents not listed
	Clusters  []api.Cluster
	Worst     []pageEndpoint
	Endpoints int        // of all clusters
	Fresh     int        // of them, those with a report in use
	Decided   api.Number // age of the oldest of the clusters' decisions
	Envoys    api.FleetEnvoys
}

type pageEndpoint struct {
	Cluster string
	api.Endpoint
}

func (h *handler) getPage(w http.ResponseWriter, _ *http.Request) {
	h.render(w, http.StatusOK, h.page, h.pageData())
}

// render answers with a page. It is rendered before it is written, so that an answer is whole or a 500.
func (h *handler) render(w http.ResponseWriter, code int, page *template.Template, data any) {
	var body bytes.Buffer
	if err := page.Execute(&body, data); err != nil {
		h.Log.Error("rendering the page failed", "page", page.Name(), "error", err)
		writeError(w, http.StatusInternalServerError, "the page could not be rendered; see the log")
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write(body.Bytes()) // a client that has gone needs no response
}

func (h *handler) pageData() pageData {
	s := h.snapshot()
	clusters := s.Clusters()
	d := pageData{Status: s.Status(clusters), Now: api.At(s.Seen.Now), Clusters: clusters,
		Envoys: conditions.CountEnvoys(&s.Seen)}
	var all []api.Incident
	if found := h.Recorder.Latest(); found != nil {
		all = found.Incidents
	}
	d.Incidents = api.Limit(all, pageIncidents)
	d.More = len(all) - len(d.Incidents)
	for _, i := range all {
		d.Errors += conditions.BoolToInt(i.Severity == api.SeverityError)
	}
	for _, c := range clusters {
		d.Endpoints += c.Counts.Total
		d.Fresh += c.Counts.Total - c.Counts.Stale
		if age := c.Decision.At.Age(s.Seen.Now); age.Or(-1) > d.Decided.Or(-1) {
			d.Decided = age
		}
	}
	d.Worst = worstEndpoints(clusters)
	return d
}

// worstEndpoints are the first pageRows of all clusters, worst first.
func worstEndpoints(clusters []api.Cluster) []pageEndpoint {
	var out []pageEndpoint
	for _, c := range clusters {
		conditions.SortWorstFirst(c.Endpoints)
		for _, e := range api.Limit(c.Endpoints, pageRows) {
			out = append(out, pageEndpoint{c.Name, e})
		}
	}
	slices.SortStableFunc(out, func(a, b pageEndpoint) int {
		return cmp.Compare(conditions.Rank(conditions.Worst(b.Problems)), conditions.Rank(conditions.Worst(a.Problems)))
	})
	return api.Limit(out, pageRows)
}

// assetHandler serves the styles, the scripts and the icon of the page.
func assetHandler() http.Handler {
	types := map[string]string{".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8",
		".svg": "image/svg+xml"}
	entries, err := fs.ReadDir(assets, "assets")
	if err != nil {
		panic("admin: " + err.Error()) // embedded: cannot be missing
	}
	mux := http.NewServeMux()
	for _, e := range entries {
		kind, ok := types[path.Ext(e.Name())]
		if !ok {
			continue // the template of the page
		}
		body, err := fs.ReadFile(assets, "assets/"+e.Name())
		if err != nil {
			panic("admin: " + err.Error())
		}
		if body = stripComments(body); kind == types[".css"] {
			body = minifyCSS(body)
		}
		packed := gzipped(body)
		mux.HandleFunc("/assets/"+e.Name(), func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", kind)
			w.Header().Set("Vary", "Accept-Encoding")
			if acceptsGzip(r) {
				w.Header().Set("Content-Encoding", "gzip")
				_, _ = w.Write(packed)
				return
			}
			_, _ = w.Write(body)
		})
	}
	mux.HandleFunc("/", notFound)
	return mux
}

// stripComments returns a style or script without indentation and without comments on lines of their own. Lines keep
// their numbers, for errors in the console of a browser.
func stripComments(body []byte) []byte {
	var out bytes.Buffer
	for line := range bytes.Lines(body) {
		line = bytes.TrimLeft(line, "\t ")
		if bytes.HasPrefix(line, []byte("//")) || bytes.HasPrefix(line, []byte("/*")) {
			line = line[len(line)-1:] // the end of the line
		}
		out.Write(line)
	}
	return out.Bytes()
}

// minifyCSS returns a style without the spaces between its parts. Those of a selector (a b), a list of values (1px
// solid) and a text stay.
func minifyCSS(style []byte) []byte {
	parts := strings.NewReplacer(" { ", "{", " {", "{", "; }", "}", " }", "}", "; ", ";", ": ", ":", ", ", ",")
	return []byte(parts.Replace(string(style)))
}

// gzipped compresses a file of the page, once: it is read over slow links at night.
func gzipped(body []byte) []byte {
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err == nil {
		_, err = w.Write(body)
	}
	if err = errors.Join(err, w.Close()); err != nil {
		panic("admin: " + err.Error()) // a buffer takes everything
	}
	return out.Bytes()
}

// acceptsGzip reports whether a request accepts that encoding. A quality of 0 is a refusal.
func acceptsGzip(r *http.Request) bool {
	for _, header := range r.Header.Values("Accept-Encoding") {
		for item := range strings.SplitSeq(header, ",") {
			coding, quality, _ := strings.Cut(item, ";")
			if strings.TrimSpace(coding) == "gzip" {
				return strings.Trim(strings.TrimPrefix(strings.TrimSpace(quality), "q="), "0.") != "" || quality == ""
			}
		}
	}
	return false
}
