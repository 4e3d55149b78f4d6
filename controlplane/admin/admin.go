package admin

import (
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"
)

// Options are what the handler is built of.
type Options struct {
	Source  Source
	Metrics *Metrics // nil: a new one
	History *History // nil: a new one, which stays empty
	// Stuck lists what in the process makes no progress, and for how long; empty while all does.
	// It must answer whatever is stuck. Nil: never anything.
	Stuck   func() []string
	Version string // of Steelyard
	// AllowedHosts are further accepted Host names; *.NAME stands for all names below NAME.
	AllowedHosts []string
	Log          *slog.Logger
	Now          func() time.Time // nil: time.Now
}

// handler is what the routes share.
type handler struct {
	Options
	page  *page
	hosts *hostCheck
}

// New returns the handler of all routes. It answers GET and HEAD only. It
// panics when there is no Source.
func New(o Options) http.Handler {
	if o.Source == nil {
		panic("admin: New needs a Source")
	}
	h := &handler{Options: withDefaults(o), page: newPage()}
	h.hosts = newHostCheck(o.AllowedHosts, h.Log, h.Now)
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", h.healthz)
	mux.HandleFunc("/readyz", h.readyz)
	mux.Handle("/metrics", h.Metrics.handler(h.Source, h.hosts.totals, h.Now, h.Log))
	mux.HandleFunc("/api/v1/status", h.getStatus)
	mux.HandleFunc("/api/v1/clusters", h.getClusters)
	mux.HandleFunc("/api/v1/clusters/{name}", h.getCluster)
	mux.HandleFunc("/api/v1/clusters/{name}/history", h.getHistory)
	mux.HandleFunc("/api/v1/clients", h.getClients)
	mux.HandleFunc("/{$}", h.getPage)
	mux.Handle("/assets/", assetHandler())
	mux.HandleFunc("/", notFound)
	return h.recovered(secured(h.hosts.checked(readOnly(mux))))
}

func withDefaults(o Options) Options {
	if o.Metrics == nil {
		o.Metrics = NewMetrics(MetricsOptions{Version: o.Version})
	}
	if o.History == nil {
		o.History = NewHistory()
	}
	if o.Stuck == nil {
		o.Stuck = func() []string { return nil }
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

func (h *handler) snapshot() snapshot {
	return snapshot{source: h.Source, version: h.Version, now: h.Now(), refused: h.hosts.totals(), stuck: h.Stuck()}
}

// healthz reports whether the process makes progress, and nothing else: restarting it does not
// bring back a model server. It does not use the Source, whose locks may be what is stuck.
func (h *handler) healthz(w http.ResponseWriter, _ *http.Request) {
	stuck := h.Stuck()
	if len(stuck) == 0 {
		text(w, http.StatusOK, "ok\n")
		return
	}
	body := "stuck, restart it\n"
	for _, s := range cut(stuck, maxStuck) {
		body += s + "\n"
	}
	if more := len(stuck) - maxStuck; more > 0 {
		body += fmt.Sprintf("and %d more\n", more)
	}
	text(w, http.StatusServiceUnavailable, body)
}

// maxStuck is how many lines /healthz has for what is stuck: one lock stops many loops.
const maxStuck = 20

// readyz lists every cluster, so that a failing probe shows the reason.
func (h *handler) readyz(w http.ResponseWriter, _ *http.Request) {
	s := h.snapshot()
	clusters := s.clusters()
	status := s.status(clusters, 0)
	code, body := http.StatusOK, "ready\n"
	switch {
	case status.Draining:
		code, body = http.StatusServiceUnavailable, "not ready: draining\n"
	case status.ConfigGeneration == 0:
		code, body = http.StatusServiceUnavailable, "not ready: no config has been applied yet\n"
	case !status.Ready:
		code, body = http.StatusServiceUnavailable, "not ready\n"
	}
	for _, c := range clusters {
		if c.Ready {
			body += fmt.Sprintf("cluster %s: ready\n", c.Name)
		} else {
			body += fmt.Sprintf("cluster %s: not ready: %s\n", c.Name, orUnknown(c.NotReadyReason))
		}
	}
	text(w, code, body)
}

func text(w http.ResponseWriter, code int, body string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(body)) // a client that has gone needs no response
}

// readOnly refuses every method that could be meant to change something.
func readOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			writeError(w, http.StatusMethodNotAllowed, "%s is not allowed: the admin API only answers GET and HEAD",
				r.Method)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// contentSecurity lets the page load its own three files and nothing else: no
// inline script or style, no other origin, no frame around it.
const contentSecurity = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; " +
	"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// secured sets the headers of every response. Node ids, error texts and NACKs come
// from others; these headers are the second line of defence after escaping.
func secured(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Content-Security-Policy", contentSecurity)
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("X-Frame-Options", "DENY")
		header.Set("Referrer-Policy", "no-referrer")
		header.Set("Cross-Origin-Resource-Policy", "same-origin")
		header.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

// recovered turns a panic of one request into a 500 and a line in the log: a
// fault in the admin API must not stop the control plane.
func (h *handler) recovered(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if cause := recover(); cause != nil {
				h.Log.Error("admin request panicked", "path", r.URL.Path, "peer", r.RemoteAddr, "cause", cause,
					"stack", string(debug.Stack()))
				writeError(w, http.StatusInternalServerError, "this request failed inside Steelyard; see the log")
			}
		}()
		next.ServeHTTP(w, r)
	})
}
