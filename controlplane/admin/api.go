package admin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"steelyard/internal/spelling"
)

func (h *handler) getStatus(w http.ResponseWriter, _ *http.Request) {
	s := h.snapshot()
	writeJSON(w, s.status(s.clusters()))
}

func (h *handler) getClusters(w http.ResponseWriter, _ *http.Request) {
	clusters := h.snapshot().clusters()
	for i := range clusters {
		clusters[i].Endpoints = nil
	}
	writeJSON(w, ClusterList{clusters})
}

func (h *handler) getCluster(w http.ResponseWriter, r *http.Request) {
	s := h.snapshot()
	c, ok := s.cluster(r.PathValue("name"))
	if !ok {
		h.noCluster(w, r)
		return
	}
	order, err := parseOrder(r.URL.Query())
	if err != nil {
		writeError(w, http.StatusBadRequest, "%v", err)
		return
	}
	if order.worstFirst {
		sortWorstFirst(c.Endpoints)
	}
	c.Endpoints = limit(c.Endpoints, order.limit)
	for i := range c.Endpoints {
		c.Endpoints[i].Why = c.Working.Explain(c.Endpoints[i].Address)
	}
	writeJSON(w, c)
}

func (h *handler) getClients(w http.ResponseWriter, r *http.Request) {
	order, err := parseOrder(r.URL.Query())
	if err != nil {
		writeError(w, http.StatusBadRequest, "%v", err)
		return
	}
	s := h.snapshot()
	clients := s.clients(s.source.Clusters())
	total := len(clients)
	if order.worstFirst {
		sortClientsWorstFirst(clients)
	}
	writeJSON(w, ClientList{Total: total, Clients: limit(clients, order.limit), Left: s.moment.leftEnvoys(s.seen.now)})
}

// defaultWindow is how far back the history goes by default.
const defaultWindow = 5 * time.Minute

func (h *handler) getHistory(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	if _, ok := h.Source.Cluster(name); !ok {
		h.noCluster(w, r)
		return
	}
	now := h.Now()
	q, err := parseWindow(r.URL.Query(), now)
	if err != nil {
		writeError(w, http.StatusBadRequest, "%v", err)
		return
	}
	if n := h.Recorder.o.History.numbers(name, q); n > windowNumbers {
		writeError(w, http.StatusBadRequest, "this asks for %d numbers, and an answer has at most %d: ask for fewer "+
			"endpoints or fields, or for fewer moments with points=150", n, windowNumbers)
		return
	}
	writeJSON(w, h.Recorder.o.History.Window(name, now, q))
}

func (h *handler) noCluster(w http.ResponseWriter, r *http.Request) {
	h.noClusterNamed(w, r.PathValue("name"))
}

func (h *handler) noClusterNamed(w http.ResponseWriter, name string) {
	var names []string
	for _, c := range h.Source.Clusters() {
		names = append(names, c.Name)
	}
	writeError(w, http.StatusNotFound, "no cluster %q is configured%s; there are: %s", name,
		spelling.DidYouMean(name, names), strings.Join(names, ", "))
}

func notFound(w http.ResponseWriter, r *http.Request) {
	writeError(w, http.StatusNotFound, "nothing at %s; there are /healthz, /readyz, /metrics, /api/v1/status, "+
		"/api/v1/clusters, /api/v1/clients, /api/v1/incidents, /api/v1/events, /api/v1/stream and the page at /",
		r.URL.Path)
}

// ordering is the order and the limit of a list, from the query.
type ordering struct {
	worstFirst bool
	limit      int // 0: all
}

func parseOrder(q url.Values) (ordering, error) {
	var o ordering
	switch sort := q.Get("sort"); sort {
	case "", "name":
	case "worst":
		o.worstFirst = true
	default:
		return o, fmt.Errorf("sort=%q is not known: write name or worst", sort)
	}
	var err error
	o.limit, err = parseCount(q, "limit")
	return o, err
}

// longestWindow is how far back the history goes.
const longestWindow = historyFor

func parseWindow(q url.Values, now time.Time) (WindowQuery, error) {
	window := defaultWindow
	if s := q.Get("window"); s != "" {
		d, err := time.ParseDuration(s)
		if err != nil || d <= 0 || d > longestWindow {
			return WindowQuery{}, fmt.Errorf("window=%q is not a duration above 0 and up to 1h: for "+
				"example, 5m", s)
		}
		window = d
	}
	fields, err := parseFields(q)
	if err != nil {
		return WindowQuery{}, err
	}
	points, err := parseCount(q, "points")
	return WindowQuery{Since: now.Add(-window), Points: points, Addresses: q["endpoint"], Fields: fields}, err
}

// parseFields reads the fields of endpoints; nil where none are named.
func parseFields(q url.Values) ([]string, error) {
	s := q.Get("fields")
	if s == "" {
		return nil, nil
	}
	fields := []string{}
	if s == "none" {
		return fields, nil
	}
	for _, field := range strings.Split(s, ",") {
		if !slices.Contains(historyFields(), field) {
			return nil, fmt.Errorf("fields=%q: %q is not known: write some of %s, or none", s, field,
				strings.Join(historyFields(), ","))
		}
		if !slices.Contains(fields, field) {
			fields = append(fields, field)
		}
	}
	return fields, nil
}

// parseCount reads a number that is not negative; one that is not given is 0.
func parseCount(q url.Values, key string) (int, error) {
	s := q.Get(key)
	if s == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%s=%q is not a whole number of at least 0 (0 means all)", key, s)
	}
	return n, nil
}

// limit keeps the first n items, all when n is 0.
func limit[T any](items []T, n int) []T {
	if n > 0 && len(items) > n {
		return items[:n]
	}
	return items
}

func writeJSON(w http.ResponseWriter, v any) { writeJSONCode(w, http.StatusOK, v) }

func writeError(w http.ResponseWriter, code int, format string, args ...any) {
	writeJSONCode(w, code, Error{fmt.Sprintf(format, args...)})
}

// writeJSONCode encodes before it writes, so that an answer is whole or a 500.
func writeJSONCode(w http.ResponseWriter, code int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		code, body = http.StatusInternalServerError, []byte(`{"error":"this answer could not be encoded"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(append(body, '\n')) // a client that has gone needs no response
}
