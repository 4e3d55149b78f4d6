package admin

import (
	"net/http"
	"runtime/debug"
)

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
	routes.view("/metrics", h.Metrics.Handler(h.snapshot, h.Log).ServeHTTP)
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
