package admin

import (
	"fmt"
	"html/template"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"
)

// Options are what the handler is built of.
type Options struct {
	Source Source
	// Operator acts on the control plane. Nil: nobody can.
	Operator Operator
	Metrics  *Metrics // nil: a new one
	// Recorder samples all state every second; nil: one that takes no samples.
	Recorder *Recorder
	// Stuck lists what in the process makes no progress, and for how long; empty while all does.
	// It must answer whatever is stuck. Nil: never anything.
	Stuck   func() []string
	Version string // of Steelyard
	// AllowedHosts are further accepted Host names; *.NAME stands for all names below NAME.
	AllowedHosts []string
	// Access is who may view and who may operate. Nil: everyone who can connect may view, and nobody may operate.
	Access *Access
	Log    *slog.Logger
	Now    func() time.Time // nil: time.Now
}

// handler is what the routes share.
type handler struct {
	Options
	page  *template.Template
	hosts *hostCheck
}

// New returns the handler of all routes. It panics when there is no Source.
func New(o Options) http.Handler {
	if o.Source == nil {
		panic("admin: New needs a Source")
	}
	h := &handler{Options: withDefaults(o), page: newPage()}
	h.hosts = newHostCheck(o.AllowedHosts, h.Log, h.Now)
	return h.guarded(h.router())
}

// router has all routes.
func (h *handler) router() *router {
	routes := h.newRouter()
	routes.view("/healthz", h.healthz)
	routes.view("/readyz", h.readyz)
	routes.view("/metrics", h.Metrics.handler(h.snapshot, h.Log).ServeHTTP)
	for _, r := range h.apiRoutes() {
		routes.add(r)
	}
	if h.Operator != nil {
		for _, r := range h.operatorRoutes() {
			routes.add(r)
		}
	}
	routes.view("/api/v1/openapi.json", answering(h.getOpenAPI))
	routes.view("/{$}", h.getPage)
	routes.view("/assets/", assetHandler().ServeHTTP)
	routes.view(loginPath, h.getLogin)
	routes.view("/", notFound)
	routes.changes.HandleFunc("POST "+loginPath, h.postLogin) // both change only what the browser keeps
	routes.changes.HandleFunc("POST /logout", h.postLogout)
	return routes
}

// guarded has what every request passes through before it reaches its route.
func (h *handler) guarded(routes *router) http.Handler {
	return h.recovered(secured(h.hosts.checked(h.admitted(routes))))
}

func withDefaults(o Options) Options {
	if o.Metrics == nil {
		o.Metrics = NewMetrics(o.Version)
	}
	if o.Stuck == nil {
		o.Stuck = func() []string { return nil }
	}
	if o.Recorder == nil {
		o.Recorder = NewRecorder(RecorderOptions{Source: o.Source, Stuck: o.Stuck, Now: o.Now, Log: o.Log})
	}
	if o.Access == nil {
		o.Access = NewAccess(AccessOptions{Loopback: true})
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
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
	for _, s := range limit(stuck, maxStuck) {
		body += s + "\n"
	}
	if more := len(stuck) - maxStuck; more > 0 {
		body += fmt.Sprintf("and %d more\n", more)
	}
	text(w, http.StatusServiceUnavailable, body)
}

// maxStuck is how many lines /healthz has for what is stuck: one lock stops many loops.
const maxStuck = 20

// readyz lists every cluster, so that a failing probe shows the reason: to those who may view.
func (h *handler) readyz(w http.ResponseWriter, r *http.Request) {
	s := h.snapshot()
	clusters := s.clusters()
	status := s.status(clusters)
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
		if !callerOf(r).mayView() {
			break
		}
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

// contentSecurity lets a page load files of this listener and send its form here, and nothing else: no
// inline script or style, no other origin, no frame around it.
const contentSecurity = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; " +
	"connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"

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
