package admin

import (
	"net/http"
	"strings"
	"time"

	"steelyard/internal/api"
)

const loginPath = "/login"

// maxForm bounds the body of a login.
const maxForm = 2 * longestReview

// loginData is what the form shows.
type loginData struct {
	Next    string // where the browser goes afterwards
	Message string
}

func (h *handler) getLogin(w http.ResponseWriter, _ *http.Request) {
	if !h.Access.closed() {
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
	token := strings.TrimSpace(r.PostForm.Get("token"))
	c, denied := h.Access.holder(r.Context(), token, h.Now())
	if denied != "" {
		h.Access.deny(denied, r, h.Log, h.Now())
		code, why := h.Access.refusal(c, denied)
		if denied == api.DeniedWrongToken {
			why = "This token is not accepted."
		}
		h.loginPage(w, code, next, why)
		return
	}
	session, ok := h.Access.session(token, h.Now())
	if !ok {
		h.loginPage(w, http.StatusServiceUnavailable, next, "Too many browsers are logged in: log out somewhere.")
		return
	}
	h.Log.Info("admin login", "by", c.name, "role", c.role, "peer", r.RemoteAddr)
	h.setSession(w, session, int(sessionTime.Seconds()))
	http.Redirect(w, r, next, http.StatusSeeOther)
}

// session is what the browser of someone who has a token keeps; ok is false if there are too many.
func (a *Access) session(token string, now time.Time) (session string, ok bool) {
	if t := match(a.current(), token); t != nil {
		return newSession(t, now.Add(sessionTime)), true
	}
	return a.sessions.add(token, now)
}

// postLogout removes the session from the browser.
func (h *handler) postLogout(w http.ResponseWriter, r *http.Request) {
	if cookie, err := r.Cookie(h.Access.cookieName()); err == nil {
		h.Access.sessions.end(cookie.Value)
	}
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
