package admin

import (
	"net/http"
	"strings"

	"steelyard/internal/api"
)

const loginPath = "/login"

// maxForm bounds the body of a login.
const maxForm = 4 << 10

// loginData is what the form shows.
type loginData struct {
	Next    string // where the browser goes afterwards
	Message string
}

func (h *handler) getLogin(w http.ResponseWriter, _ *http.Request) {
	if h.Access.TokensFile == "" {
		writeError(w, http.StatusNotFound, "no tokens are configured (admin.tokens_file), so there is nothing to log "+
			"in to")
		return
	}
	h.loginPage(w, http.StatusOK, "/", "")
}

func (h *handler) loginPage(w http.ResponseWriter, code int, next, message string) {
	h.render(w, code, loginForm, loginData{next, message})
}

// postLogin exchanges a token for a session of the browser.
func (h *handler) postLogin(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		writeError(w, http.StatusBadRequest, "the form could not be read: %v", err)
		return
	}
	next := r.PostForm.Get("next")
	if !strings.HasPrefix(next, "/") || strings.HasPrefix(next, "//") || strings.Contains(next, `\`) {
		next = "/" // of this listener only
	}
	t := match(h.Access.current(), strings.TrimSpace(r.PostForm.Get("token")))
	if t == nil {
		h.Access.deny(api.DeniedWrongToken, r, h.Log, h.Now())
		h.loginPage(w, http.StatusUnauthorized, next, "This token is not in admin.tokens_file.")
		return
	}
	h.Log.Info("admin login", "by", t.Name, "role", t.Role, "peer", r.RemoteAddr)
	h.setSession(w, newSession(t, h.Now().Add(sessionTime)), int(sessionTime.Seconds()))
	http.Redirect(w, r, next, http.StatusSeeOther)
}

// postLogout removes the session from the browser.
func (h *handler) postLogout(w http.ResponseWriter, r *http.Request) {
	h.setSession(w, "", -1)
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

func (h *handler) setSession(w http.ResponseWriter, value string, seconds int) {
	http.SetCookie(w, &http.Cookie{Name: h.Access.cookieName(), Value: value, Path: "/", MaxAge: seconds,
		Secure: h.Access.TLS, HttpOnly: true, SameSite: http.SameSiteStrictMode})
}

// cookieName has the prefix with which browsers take a cookie over TLS only, and from this host only.
func (a *Access) cookieName() string {
	if a.TLS {
		return "__Host-steelyard"
	}
	return "steelyard"
}

func (h *handler) getSession(r *http.Request) (api.Session, error) {
	c := callerOf(r)
	return api.Session{Name: c.name, Role: c.role}, nil
}
