package admin

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"steelyard/controlplane/view"
	"steelyard/internal/spelling"
)

func (h *handler) getStatus(*http.Request) (Status, error) {
	s := h.snapshot()
	return s.status(s.clusters()), nil
}

func (h *handler) getClusters(*http.Request) (ClusterList, error) {
	clusters := h.snapshot().clusters()
	for i := range clusters {
		clusters[i].Endpoints = nil
	}
	return ClusterList{clusters}, nil
}

func (h *handler) getCluster(r *http.Request) (view.Cluster, error) {
	s := h.snapshot()
	c, ok := s.cluster(r.PathValue("name"))
	if !ok {
		return c, h.noCluster(r.PathValue("name"))
	}
	order, err := parseOrder(r.URL.Query())
	if order.worstFirst {
		sortWorstFirst(c.Endpoints)
	}
	c.Endpoints = limit(c.Endpoints, order.limit)
	for i := range c.Endpoints {
		c.Endpoints[i].Why = c.Working.Explain(c.Endpoints[i].Address)
	}
	return c, err
}

func (h *handler) getClients(r *http.Request) (ClientList, error) {
	order, err := parseOrder(r.URL.Query())
	s := h.snapshot()
	clients := s.clients(s.source.Clusters())
	if order.worstFirst {
		sortClientsWorstFirst(clients)
	}
	return ClientList{Total: len(clients), Clients: limit(clients, order.limit),
		Left: s.moment.leftEnvoys(s.seen.now)}, err
}

// defaultWindow is how far back the history goes by default.
const defaultWindow = 5 * time.Minute

func (h *handler) getHistory(r *http.Request) (Window, error) {
	name, now := r.PathValue("name"), h.Now()
	if _, ok := h.Source.Cluster(name); !ok {
		return Window{}, h.noCluster(name)
	}
	q, err := parseWindow(r.URL.Query(), now)
	if err != nil {
		return Window{}, err
	}
	if n := h.Recorder.o.History.numbers(name, q); n > windowNumbers {
		return Window{}, fmt.Errorf("this asks for %d numbers, and an answer has at most %d: ask for fewer endpoints "+
			"or fields, or for fewer moments with points=150", n, windowNumbers)
	}
	return h.Recorder.o.History.Window(name, now, q), nil
}

func (h *handler) noCluster(name string) error {
	all := names(h.Source.Clusters())
	return Missing(fmt.Errorf("no cluster %q is configured%s; there are: %s", name, spelling.DidYouMean(name, all),
		strings.Join(all, ", ")))
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

// A codedError is an error that is answered with a code of its own.
type codedError struct {
	error
	code int
}

// answering serves what a function returns, as JSON. An error without a code is a bad request.
func answering[T any](f func(*http.Request) (T, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v, err := f(r)
		if err != nil {
			var coded codedError
			errors.As(err, &coded)
			writeError(w, cmp.Or(coded.code, http.StatusBadRequest), "%v", err)
			return
		}
		writeJSON(w, http.StatusOK, v)
	}
}

// answeringBody is answering for a request whose body is the JSON of a B.
func answeringBody[B, T any](f func(*http.Request, B) (T, error)) http.HandlerFunc {
	return answering(func(r *http.Request) (v T, err error) {
		var body B
		d := json.NewDecoder(r.Body)
		d.DisallowUnknownFields()
		if err := d.Decode(&body); err != nil {
			return v, fmt.Errorf("the body is not the JSON that is needed here: %w", err)
		}
		return f(r, body)
	})
}

func writeError(w http.ResponseWriter, code int, format string, args ...any) {
	writeJSON(w, code, Error{fmt.Sprintf(format, args...)})
}

// writeJSON encodes before it writes, so that an answer is whole or a 500.
func writeJSON(w http.ResponseWriter, code int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		code, body = http.StatusInternalServerError, []byte(`{"error":"this answer could not be encoded"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(append(body, '\n')) // a client that has gone needs no response
}
