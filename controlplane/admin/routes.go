package admin

import (
	"net/http"

	"steelyard/internal/api"
)

// maxRequestBody bounds the body of a request that changes something.
const maxRequestBody = 64 << 10

// A router has the routes of the listener. A route that changes something is apart from those that read, so that no GET
// reaches it, and no request without the role to operate.
type router struct {
	h              *handler
	reads, changes *http.ServeMux
	crossOrigin    *http.CrossOriginProtection
}

func (h *handler) newRouter() *router {
	return &router{h: h, reads: http.NewServeMux(), changes: http.NewServeMux(),
		crossOrigin: http.NewCrossOriginProtection()}
}

// view registers a route that changes nothing, for GET and HEAD. The pattern has no method.
func (t *router) view(pattern string, f http.HandlerFunc) { t.reads.HandleFunc(pattern, f) }

// add registers a route that reads, one that answers a question in its body, which callers who may view may ask, or one
// that changes something. Those with a body are never for a web page of another origin.
func (t *router) add(r apiRoute) {
	switch {
	case r.method == "":
		t.view(r.path, r.serve)
	case r.text != "":
		t.changes.Handle(r.method+" "+r.path, http.MaxBytesHandler(r.serve, maxConfig))
	default:
		t.operate(r.method+" "+r.path, r.serve)
	}
}

// operate registers a route that changes something. The pattern begins with its method. The handler is called for
// callers with the role operate only, never for a web page of another origin, and with a body of at most 64 KiB.
// callerOf(r).name is that of the token. Each call is logged with its result.
func (t *router) operate(pattern string, f http.HandlerFunc) {
	t.changes.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		if !t.authorized(w, r) {
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxRequestBody)
		result := &codeWriter{ResponseWriter: w, code: http.StatusOK}
		f(result, r)
		t.h.Log.Info("admin operation", "by", callerOf(r).name, "peer", r.RemoteAddr, "method", r.Method,
			"path", r.URL.Path, "code", result.code)
	})
}

// authorized refuses requests of callers who may not operate.
func (t *router) authorized(w http.ResponseWriter, r *http.Request) bool {
	c := callerOf(r)
	switch {
	case c.mayOperate():
		return true
	case !t.h.Access.closed():
		t.h.Access.deny(api.DeniedRole, r, t.h.Log, t.h.Now())
		writeError(w, http.StatusForbidden, "nobody may change anything without a token of the role operate: "+
			"configure admin.tokens_file, or on Kubernetes admin.kubernetes, which takes a restart")
	case c.name == "":
		t.h.Access.deny(api.DeniedNoToken, r, t.h.Log, t.h.Now())
		t.h.refused(w, r, c, api.DeniedNoToken)
	default:
		t.h.Access.deny(api.DeniedRole, r, t.h.Log, t.h.Now())
		writeError(w, http.StatusForbidden, "the token of %s has the role %s, and this needs %s", c.name, c.role,
			RoleOperate)
	}
	return false
}

// ServeHTTP dispatches by method: GET and HEAD to what reads, others to what changes something.
func (t *router) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		t.reads.ServeHTTP(w, r)
		return
	}
	if _, pattern := t.changes.Handler(r); pattern == "" {
		w.Header().Set("Allow", "GET, HEAD")
		writeError(w, http.StatusMethodNotAllowed, "%s is not allowed here", r.Method)
		return
	}
	if err := t.crossOrigin.Check(r); err != nil || callerOf(r).session && !fromPage(r) {
		t.h.Access.deny(api.DeniedCrossOrigin, r, t.h.Log, t.h.Now())
		writeError(w, http.StatusForbidden, "a page of another origin may not do this")
		return
	}
	t.changes.ServeHTTP(w, r)
}

// fromPage reports whether a browser has sent where the request comes from, which the check above then covers. All
// browsers send one of these headers with a POST, so a session without them is no browser's.
func fromPage(r *http.Request) bool {
	return r.Header.Get("Origin") != "" || r.Header.Get("Sec-Fetch-Site") != ""
}

// A codeWriter remembers the code of the response.
type codeWriter struct {
	http.ResponseWriter
	code int
}

func (c *codeWriter) WriteHeader(code int) {
	c.code = code
	c.ResponseWriter.WriteHeader(code)
}
