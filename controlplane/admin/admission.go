package admin

import (
	"context"
	"net/http"
	"strings"

	"steelyard/internal/api"
)

// open are the paths that need no token: they show nothing of the fleet.
func open(path string) bool {
	return path == "/healthz" || path == "/readyz" || path == loginPath || strings.HasPrefix(path, "/assets/")
}

// admitted lets requests through that may view, or that have an open path. Routes that change something check the role
// themselves; see router.
func (h *handler) admitted(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, denied := h.Access.identify(r, h.Now())
		if !c.mayView() && !open(r.URL.Path) {
			h.Access.deny(denied, r, h.Log, h.Now())
			h.refused(w, r, c, denied)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, c)))
	})
}

// refused answers a caller who may do nothing.
func (h *handler) refused(w http.ResponseWriter, r *http.Request, c caller, denied string) {
	wantsPage := r.Method == http.MethodGet && strings.Contains(r.Header.Get("Accept"), "text/html")
	if wantsPage && (denied == api.DeniedNoToken || c.session) {
		h.loginPage(w, http.StatusUnauthorized, r.URL.RequestURI(), "")
		return
	}
	code, why := h.Access.refusal(c, denied)
	if code == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="steelyard"`)
	}
	writeError(w, code, "%s", why)
}

// refusal says why a caller may do nothing, and what to do.
func (a *Access) refusal(c caller, denied string) (code int, why string) {
	send := "a token of admin.tokens_file"
	switch {
	case a.Review != nil && a.TokensFile != "":
		send += ", or of the Kubernetes API (kubectl create token)"
	case a.Review != nil:
		send = "a token of the Kubernetes API (kubectl create token)"
	}
	switch denied {
	case api.DeniedRole:
		return http.StatusForbidden, c.name + " may not view this: bind the Role steelyard-viewer or " +
			"steelyard-operator to it, in Steelyard's namespace"
	case api.DeniedNotReviewed:
		return http.StatusServiceUnavailable, "the Kubernetes API cannot be asked about the token: try again, or " +
			"send a token of admin.tokens_file"
	case api.DeniedWrongToken:
		return http.StatusUnauthorized, "the token of the Authorization header is not accepted: send " + send
	}
	return http.StatusUnauthorized, "send " + send + ": Authorization: Bearer TOKEN"
}
