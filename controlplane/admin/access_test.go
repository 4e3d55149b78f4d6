package admin

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"steelyard/internal/api"
)

const (
	viewToken    = "0123456789abcdef-view"
	operateToken = "0123456789abcdef-operate"
	tokenLines   = "# people\nview prometheus " + viewToken + "\n\n  operate alice\t" + operateToken + "\n"
)

// guarded is a handler with tokens, and a route that changes something.
type guarded struct {
	http.Handler
	access  *Access
	log     bytes.Buffer
	clock   func() time.Time
	changed []string // names of the callers
}

func newGuarded(t *testing.T, o AccessOptions) *guarded {
	t.Helper()
	g := &guarded{access: NewAccess(o), clock: func() time.Time { return noon }}
	if o.TokensFile != "" {
		g.access.SetTokens(ParseTokens([]byte(tokenLines)))
	}
	h := &handler{Options: withDefaults(Options{Source: readyOnly(typical(noon)), Access: g.access,
		Now: func() time.Time { return g.clock() }, Log: slog.New(slog.NewTextHandler(&g.log, nil))}), page: newPage()}
	h.hosts = newHostCheck(nil, h.Log, h.Now)
	routes := h.router()
	routes.operate("POST /api/v1/test", func(w http.ResponseWriter, r *http.Request) {
		g.changed = append(g.changed, callerOf(r).name)
		writeError(w, http.StatusAccepted, "done")
	})
	g.Handler = h.guarded(routes)
	return g
}

// send sends a request with headers, in pairs.
func (g *guarded) send(method, target, body string, headers ...string) answer {
	w := httptest.NewRecorder()
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	r.Host = "127.0.0.1:19000"
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	g.ServeHTTP(w, r)
	return answer{w.Code, w.Header(), w.Body.String()}
}

func TestWhoMayViewAndWhoMayOperate(t *testing.T) {
	file := AccessOptions{TokensFile: "tokens", TLS: true}
	anonymous := file
	anonymous.AnonymousView = true
	bearer := func(token string) string { return "Bearer " + token }
	for _, c := range []struct {
		name          string
		options       AccessOptions
		authorization string
		view, operate int
	}{
		{"no tokens are configured", AccessOptions{Loopback: true}, "", 200, 403},
		{"no tokens are configured, and one is sent", AccessOptions{Loopback: true}, bearer(operateToken), 200, 403},
		{"none is sent", file, "", 401, 401},
		{"none is sent, on loopback", AccessOptions{Loopback: true, TokensFile: "tokens"}, "", 401, 401},
		{"none is sent, and viewing needs none", anonymous, "", 200, 401},
		{"a wrong one", file, bearer(viewToken + "x"), 401, 401},
		{"the beginning of one", file, bearer(operateToken[:20]), 401, 401},
		{"an empty one", file, bearer(""), 401, 401},
		{"a wrong one, and viewing needs none", anonymous, bearer("x"), 401, 401},
		{"another scheme", file, "Basic " + operateToken, 401, 401},
		{"one for viewing", file, bearer(viewToken), 200, 403},
		{"one for operating", file, "bearer " + operateToken, 200, 202},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := newGuarded(t, c.options)
			headers := []string{"Authorization", c.authorization}
			if c.authorization == "" {
				headers = nil
			}
			for _, path := range []string{"/", "/metrics", "/api/v1/status", "/api/v1/clients", "/api/v1/session"} {
				if a := g.send("GET", path, "", headers...); a.code != c.view {
					t.Errorf("GET %s: %d %s, want %d", path, a.code, a.body, c.view)
				}
			}
			a := g.send("POST", "/api/v1/test", "", headers...)
			if a.code != c.operate || (len(g.changed) == 1) != (c.operate == 202) {
				t.Errorf("POST: %d %s, want %d", a.code, a.body, c.operate)
			}
			if challenged := a.header.Get("WWW-Authenticate") != ""; challenged != (a.code == 401) {
				t.Errorf("a challenge with %d: %t", a.code, challenged)
			}
			for _, path := range []string{"/healthz", "/readyz", "/assets/page.css"} {
				if a := g.send("GET", path, "", headers...); a.code != 200 {
					t.Errorf("GET %s: %d, want 200 for everyone", path, a.code)
				}
			}
			if a := g.send("GET", "/readyz", ""); strings.Contains(a.body, "llama") != (g.access.TokensFile == "" ||
				c.options.AnonymousView) {
				t.Errorf("readyz without a token: %q", a.body)
			}
			if strings.Contains(g.log.String(), operateToken) || strings.Contains(a.body, operateToken) {
				t.Error("a token is in the log or in a response")
			}
		})
	}
}

func TestWhatChangesSomethingIsNotReachedByGetNorFromAnotherOrigin(t *testing.T) {
	g := newGuarded(t, AccessOptions{TokensFile: "tokens"})
	token := "Bearer " + operateToken
	for _, method := range []string{"GET", "HEAD"} {
		if a := g.send(method, "/api/v1/test", "", "Authorization", token); a.code != 404 {
			t.Errorf("%s: %d, want 404", method, a.code)
		}
	}
	for _, method := range []string{"PUT", "DELETE", "OPTIONS"} {
		if a := g.send(method, "/api/v1/test", "", "Authorization", token); a.code != 405 {
			t.Errorf("%s: %d, want 405", method, a.code)
		}
	}
	for _, headers := range [][]string{
		{"Origin", "https://evil.example"}, {"Origin", "null"}, {"Sec-Fetch-Site", "cross-site"},
		{"Sec-Fetch-Site", "same-site"},
	} {
		if a := g.send("POST", "/api/v1/test", "", append(headers, "Authorization", token)...); a.code != 403 {
			t.Errorf("%v: %d, want 403", headers, a.code)
		}
	}
	if len(g.changed) != 0 {
		t.Fatalf("changed by %q", g.changed)
	}
	for _, headers := range [][]string{nil, {"Origin", "http://127.0.0.1:19000"}, {"Sec-Fetch-Site", "same-origin"}} {
		if a := g.send("POST", "/api/v1/test", "", append(headers, "Authorization", token)...); a.code != 202 {
			t.Errorf("%v: %d %s", headers, a.code, a.body)
		}
	}
	if !strings.Contains(g.log.String(), `msg="admin operation" by=alice peer=192.0.2.1:1234 method=POST `+
		`path=/api/v1/test code=202`) {
		t.Errorf("the log does not have who did what: %s", g.log.String())
	}
}

func TestABrowserLogsInWithAToken(t *testing.T) {
	g := newGuarded(t, AccessOptions{TokensFile: "tokens", TLS: true})
	form := g.send("GET", "/?rows=all", "", "Accept", "text/html,*/*")
	if form.code != 401 || !strings.Contains(form.body, `action="login"`) ||
		!strings.Contains(form.body, `value="/?rows=all"`) || strings.Contains(form.body, "llama") {
		t.Fatalf("without a session: %d %s", form.code, form.body)
	}
	login := func(token, next string) answer {
		return g.send("POST", "/login", url.Values{"token": {token}, "next": {next}}.Encode(),
			"Content-Type", "application/x-www-form-urlencoded", "Sec-Fetch-Site", "same-origin")
	}
	if a := login("wrong", "/"); a.code != 401 || a.header.Get("Set-Cookie") != "" {
		t.Errorf("with a wrong token: %d, cookie %q", a.code, a.header.Get("Set-Cookie"))
	}
	if a := g.send("POST", "/login", "token="+operateToken, "Content-Type", "application/x-www-form-urlencoded",
		"Sec-Fetch-Site", "cross-site"); a.code != 403 {
		t.Errorf("a login by another site: %d", a.code)
	}
	for next, want := range map[string]string{"/?rows=all": "/?rows=all", "//evil.example": "/", `/\evil.example`: "/",
		"https://evil.example": "/", "": "/"} {
		if a := login(viewToken, next); a.code != 303 || a.header.Get("Location") != want {
			t.Errorf("to %q: %d %q", next, a.code, a.header.Get("Location"))
		}
	}
	a := login(" "+operateToken+"\n", "/")
	cookie := a.header.Get("Set-Cookie")
	for _, part := range []string{"__Host-steelyard=", "HttpOnly", "Secure", "SameSite=Strict", "Path=/"} {
		if !strings.Contains(cookie, part) {
			t.Errorf("the cookie %q has no %s", cookie, part)
		}
	}
	if strings.Contains(cookie, operateToken) {
		t.Error("the cookie contains the token")
	}
	session, _, _ := strings.Cut(cookie, ";")
	if a := g.send("GET", "/api/v1/session", "", "Cookie", session); a.body !=
		`{"name":"alice","role":"operate"}`+"\n" {
		t.Errorf("the session is %s", a.body)
	}
	if a := g.send("POST", "/api/v1/test", "", "Cookie", session, "Sec-Fetch-Site", "same-origin"); a.code != 202 {
		t.Errorf("a POST of the page: %d %s", a.code, a.body)
	}
	if a := g.send("POST", "/api/v1/test", "", "Cookie", session); a.code != 403 {
		t.Errorf("a POST with the cookie and of unknown origin: %d", a.code)
	}
	later := strings.Replace(session, "=1", "=2", 1)
	if a := g.send("GET", "/api/v1/session", "", "Cookie", later); a.code != 401 {
		t.Errorf("a session whose end was changed: %d", a.code)
	}
	if a := g.send("POST", "/logout", "", "Cookie", session, "Sec-Fetch-Site", "same-origin"); a.code != 303 ||
		!strings.Contains(a.header.Get("Set-Cookie"), "Max-Age=0") {
		t.Errorf("logging out: %d %q", a.code, a.header.Get("Set-Cookie"))
	}
	g.access.SetTokens(ParseTokens([]byte("view prometheus " + viewToken)))
	if a := g.send("GET", "/api/v1/session", "", "Cookie", session); a.code != 401 {
		t.Errorf("a session whose token has left the file: %d", a.code)
	}
}

func TestASessionEnds(t *testing.T) {
	tokens, err := ParseTokens([]byte(tokenLines))
	if err != nil {
		t.Fatal(err)
	}
	s := newSession(&tokens[1], noon.Add(sessionTime))
	if got := matchSession(tokens, s, noon.Add(sessionTime-time.Second)); got == nil || got.Name != "alice" {
		t.Errorf("before its end: %+v", got)
	}
	if got := matchSession(tokens, s, noon.Add(sessionTime)); got != nil {
		t.Errorf("at its end: %+v", got)
	}
	for _, garbage := range []string{"", ".", "x", "9999999999.", "9999999999." + strings.Repeat("0", 64)} {
		if matchSession(tokens, garbage, noon) != nil {
			t.Errorf("%q was accepted", garbage)
		}
	}
}

func TestTokensAreReadLineByLine(t *testing.T) {
	tokens, err := ParseTokens([]byte(tokenLines))
	if err != nil || len(tokens) != 2 || tokens[0].Name != "prometheus" || tokens[0].Role != RoleView ||
		tokens[1].Name != "alice" || tokens[1].Role != RoleOperate {
		t.Fatalf("%+v, %v", tokens, err)
	}
	for content, want := range map[string]string{
		"":                                     "no line has a token",
		"# nothing\n":                          "no line has a token",
		"view a\nview b 0123":                  "is view or operate; line 2: ",
		"view a":                               "line 1: write ROLE NAME TOKEN",
		"\nadmin a 0123456789abcdef":           "line 2: write ROLE NAME TOKEN",
		"view a b 0123456789abcdef":            "line 1: write ROLE NAME TOKEN",
		"view a 0123456789abcde":               "15 characters",
		"view a " + strings.Repeat("x", 513):   "513 characters",
		tokenLines + "view b " + viewToken:     "line 5: another line has the same token",
		strings.Repeat("x", 1<<20) + " too 1 ": "too long",
	} {
		_, err := ParseTokens([]byte(content))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), viewToken) {
			t.Errorf("%.60q: %v, want %q", content, err, want)
		}
	}
}

func TestTheStatusHasWhoWasDeniedAndWhatIsOpen(t *testing.T) {
	g := newGuarded(t, AccessOptions{TokensFile: "tokens", AnonymousView: true, Insecure: true})
	for range 3 {
		g.send("GET", "/", "", "Authorization", "Bearer wrong")
	}
	g.send("POST", "/api/v1/test", "", "Authorization", "Bearer "+viewToken)
	g.send("POST", "/api/v1/test", "")
	g.send("POST", "/api/v1/test", "", "Origin", "https://evil.example")
	g.access.SetTokens(nil, http.ErrBodyNotAllowed)
	s := decode[api.Status](t, g.send("GET", "/api/v1/status", ""))
	a := s.AdminAccess
	if a.Loopback || a.TLS || a.TokensFile != "tokens" || a.Tokens != 2 || !a.AnonymousView || !a.Insecure ||
		a.TokensError != http.ErrBodyNotAllowed.Error() {
		t.Errorf("%+v", a)
	}
	want := map[string]uint64{"cross_origin": 1, "no_token": 1, "role": 1, "wrong_token": 3}
	for _, d := range a.Denied {
		if d.Reason == api.DeniedNotReviewed && d.Count == 0 {
			continue
		}
		if d.Count != want[d.Reason] || d.LastPeer != "192.0.2.1:1234" || !d.LastAt.Equal(noon) {
			t.Errorf("%+v", d)
		}
		delete(want, d.Reason)
	}
	if len(want) > 0 {
		t.Errorf("missing %v", want)
	}
	for _, p := range []api.Problem{
		warning("the admin listener is open beyond this machine without TLS, as admin.insecure allows"),
		failure("the file of admin tokens cannot be used, the previous ones (2) stay: " + a.TokensError),
		warning(
			"admin requests are denied (wrong_token): 3 since the start, the latest < 1 s ago, from 192.0.2.1:1234"),
		warning("admin requests are denied (role): 1 since the start, the latest < 1 s ago, from 192.0.2.1:1234"),
	} {
		if !has(s.Problems, p.Severity, p.Message) {
			t.Errorf("no problem %+v in %+v", p, s.Problems)
		}
	}
	if n := strings.Count(g.log.String(), "admin request denied"); n != 3 {
		t.Errorf("%d log lines, want one for each reason but no_token: %s", n, g.log.String())
	}
	if body := g.send("GET", "/metrics", "").body; !strings.Contains(body,
		`steelyard_admin_denied_requests_total{reason="wrong_token"} 3`) {
		t.Error("/metrics does not count the denied requests")
	}
}
