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
			h.unauthorized(w, r, denied)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, c)))
	})
}

func (h *handler) unauthorized(w http.ResponseWriter, r *http.Request, denied string) {
	wantsPage := r.Method == http.MethodGet && strings.Contains(r.Header.Get("Accept"), "text/html")
	if wantsPage && denied == api.DeniedNoToken {
		h.loginPage(w, http.StatusUnauthorized, r.URL.RequestURI(), "")
		return
	}
	w.Header().Set("WWW-Authenticate", `Bearer realm="steelyard"`)
	if denied == api.DeniedWrongToken {
		writeError(w, http.StatusUnauthorized, "the token of the Authorization header is not in admin.tokens_file")
		return
	}
	writeError(w, http.StatusUnauthorized, "send a token of admin.tokens_file: Authorization: Bearer TOKEN")
}
