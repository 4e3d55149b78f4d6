package admin

import (
	"context"
	"errors"
	"maps"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"steelyard/internal/api"
)

// A fakeKubernetes has tokens by their holders.
type fakeKubernetes struct {
	mu      sync.Mutex
	holders map[string]Reviewed
	err     error
	asked   int
}

func (k *fakeKubernetes) review(_ context.Context, token string) (Reviewed, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.asked++
	if k.err != nil {
		return Reviewed{}, k.err
	}
	return k.holders[token], nil
}

var tokens = map[string]Reviewed{
	"0123456789abcdef-alice": {"alice", RoleOperate}, "0123456789abcdef-bob": {"bob", RoleView},
	"0123456789abcdef-carol": {"carol", ""},
}

func TestAHolderOfAKubernetesTokenMayWhatItsRightsSay(t *testing.T) {
	for _, c := range []struct {
		name, token   string
		err           error
		file          string
		view, operate int
		says          string
	}{
		{"an operator", "0123456789abcdef-alice", nil, "", 200, 202, ""},
		{"a viewer", "0123456789abcdef-bob", nil, "", 200, 403, "bob has the role view"},
		{"one without rights", "0123456789abcdef-carol", nil, "", 403, 403, "bind the Role steelyard-viewer"},
		{"one that is not accepted", "0123456789abcdef-dave", nil, "", 401, 401, "kubectl create token"},
		{"one too short to be asked about", "alice", nil, "", 401, 401, "not accepted"},
		{"none", "", nil, "", 401, 401, "kubectl create token"},
		{"one of the file", operateToken, nil, "tokens", 200, 202, ""},
		{"one while it is away", "0123456789abcdef-alice", errors.New("away"), "", 503, 503, "cannot be asked"},
		{"one of the file while nobody can be asked", operateToken, errors.New("away"), "tokens", 200, 202, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := &fakeKubernetes{holders: tokens, err: c.err}
			g := newGuarded(t, AccessOptions{TLS: true, TokensFile: c.file, Review: k.review})
			var headers []string
			if c.token != "" {
				headers = []string{"Authorization", "Bearer " + c.token}
			}
			a := g.send("GET", "/api/v1/status", "", headers...)
			b := g.send("POST", "/api/v1/test", "", headers...)
			if a.code != c.view || b.code != c.operate || !strings.Contains(a.body+b.body, c.says) {
				t.Errorf("%d and %d, want %d and %d: %s %s", a.code, b.code, c.view, c.operate, a.body, b.body)
			}
			if c.token != "" && strings.Contains(g.log.String(), c.token) {
				t.Error("the token is in the log")
			}
			if code := g.send("GET", "/healthz", "").code; code != 200 {
				t.Errorf("healthz: %d", code)
			}
		})
	}
}

func TestAReviewIsUsedForAMomentAndWhileNobodyCanBeAskedForAQuarterOfAnHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &fakeKubernetes{holders: tokens}
		a := NewAccess(AccessOptions{Review: k.review})
		const alice = "0123456789abcdef-alice"
		want := func(role string, asked int) {
			t.Helper()
			c, _ := a.holder(t.Context(), alice, time.Now())
			if c.role != role || k.asked != asked {
				t.Fatalf("role %q after %d questions, want %q after %d", c.role, k.asked, role, asked)
			}
		}
		want(RoleOperate, 1)
		time.Sleep(29 * time.Second)
		want(RoleOperate, 1)
		time.Sleep(2 * time.Second)
		want(RoleOperate, 2)
		k.err = errors.New("the API server is away")
		time.Sleep(14 * time.Minute)
		want(RoleOperate, 3)
		if s := a.status(); !s.Kubernetes || s.KubernetesError != "the API server is away" {
			t.Errorf("the state is %+v", s)
		}
		time.Sleep(2 * time.Minute)
		want("", 4)
		k.err = nil
		want(RoleOperate, 5)
		if s := a.status(); s.KubernetesError != "" {
			t.Errorf("the state is %+v", s)
		}
		k.holders = nil // the right is taken away
		time.Sleep(31 * time.Second)
		want("", 6)
		k.err = errors.New("away again")
		want("", 7) // and not back
	})
}

func TestABrowserStaysLoggedInWithAKubernetesTokenWhileThatHasRights(t *testing.T) {
	k := &fakeKubernetes{holders: tokens}
	g := newGuarded(t, AccessOptions{Review: k.review})
	form := []string{"Content-Type", "application/x-www-form-urlencoded"}
	for token, code := range map[string]int{"0123456789abcdef-carol": 403, "0123456789abcdef-dave": 401} {
		if a := g.send("POST", "/login", "token="+token, form...); a.code != code {
			t.Errorf("a login of %s: %d, want %d", token, a.code, code)
		}
	}
	a := g.send("POST", "/login", "token="+url.QueryEscape("0123456789abcdef-alice"), form...)
	cookie, _, _ := strings.Cut(a.header.Get("Set-Cookie"), ";")
	if a.code != 303 || strings.Contains(cookie, "alice") {
		t.Fatalf("%d, cookie %q", a.code, cookie)
	}
	if a := g.send("GET", "/api/v1/session", "", "Cookie", cookie); !strings.Contains(a.body, `"alice"`) {
		t.Errorf("the session is %s", a.body)
	}
	g.send("POST", "/logout", "", "Cookie", cookie, "Sec-Fetch-Site", "same-origin")
	if a := g.send("GET", "/api/v1/session", "", "Cookie", cookie); a.code != 401 {
		t.Errorf("after the logout: %d", a.code)
	}
}

// Or each request of an operator takes five seconds on the day that counts.
func TestWhileTheAuthorityHangsAHolderWaitsForItOnceInHalfAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs := false
		a := NewAccess(AccessOptions{Review: func(ctx context.Context, token string) (Reviewed, error) {
			if hangs {
				<-ctx.Done()
				return Reviewed{}, ctx.Err()
			}
			return tokens[token], nil
		}})
		const alice = "0123456789abcdef-alice"
		waits := func() (n int) {
			t.Helper()
			for range 60 {
				began := time.Now()
				if _, denied := a.holder(t.Context(), alice, began); denied != "" {
					t.Fatal(denied)
				}
				if time.Since(began) > time.Second {
					n++
				}
				time.Sleep(time.Second)
			}
			return n
		}
		waits()
		hangs = true
		if n := waits(); n < 1 || n > 3 {
			t.Errorf("of 60 requests in a minute %d wait", n)
		}
		hangs = false
		time.Sleep(reviewFresh)
		waits()
		if err := a.reviews.failing(); err != nil {
			t.Errorf("once it answers again, the state is %v", err)
		}
	})
}

func TestATokenThatIsNoneOfHeadersIsRefusedAndNobodyIsAsked(t *testing.T) {
	k := &fakeKubernetes{err: errors.New("net/http: invalid header field value")}
	g := newGuarded(t, AccessOptions{Review: k.review})
	for _, token := range []string{"0123456789abcdef\nalice", "0123456789abcdef\x00", "0123456789abcdef alice",
		"0123456789abcdef-é"} {
		a := g.send("POST", "/login", "token="+url.QueryEscape(token), "Content-Type",
			"application/x-www-form-urlencoded")
		if a.code != 401 || k.asked != 0 || g.access.status().KubernetesError != "" {
			t.Errorf("%q: %d after %d questions, and the state is %+v", token, a.code, k.asked, g.access.status())
		}
	}
}

func TestAStreamEndsWithTheRightToViewIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &fakeKubernetes{holders: maps.Clone(tokens)}
		g := newGuarded(t, AccessOptions{Review: k.review})
		g.clock = time.Now
		r := httptest.NewRequestWithContext(t.Context(), "GET", "/api/v1/stream", nil)
		r.Host = "127.0.0.1:19000"
		r.Header.Set("Authorization", "Bearer 0123456789abcdef-bob")
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			g.ServeHTTP(httptest.NewRecorder(), r)
		}()
		select {
		case <-ended:
			t.Fatal("it ended, though the right stayed")
		case <-time.After(10 * time.Minute):
		}
		k.mu.Lock()
		delete(k.holders, "0123456789abcdef-bob")
		k.mu.Unlock()
		select {
		case <-ended:
		case <-time.After(31 * time.Second):
			t.Error("it goes on though the right was taken away")
		}
	})
}

func TestStrangersTokensTakeNoMemoryAndTheirQuestionsAreBounded(t *testing.T) {
	k := &fakeKubernetes{holders: tokens}
	a := NewAccess(AccessOptions{Review: k.review})
	for i := range 2 * maxReviewed {
		_, denied := a.holder(t.Context(), strings.Repeat("x", shortestToken+i%100), time.Now())
		if denied != api.DeniedWrongToken {
			t.Fatal(denied)
		}
	}
	if n := len(a.reviews.known); n != 0 {
		t.Errorf("%d are remembered", n)
	}
	for range maxReviewing {
		a.reviews.turns <- struct{}{}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, denied := a.holder(ctx, "0123456789abcdef-alice", time.Now()); denied != api.DeniedNotReviewed {
		t.Errorf("beyond the bound: %q", denied)
	}
}

func TestAnOldAnswerIsUsedOnlyIfTheAuthorityFails(t *testing.T) {
	const token = "0123456789abcdef-alice"
	for _, c := range []struct {
		name string
		err  error
		want string
	}{
		{"it is away", errors.New("away"), "alice"},
		{"it does not answer in time", context.DeadlineExceeded, "alice"},
		{"the client has gone", context.Canceled, ""},
		{"too many ask", errBusy, ""},
	} {
		k := &fakeKubernetes{holders: tokens}
		r := newReviews(k.review)
		if got, err := r.of(t.Context(), token, noon); err != nil || got.Name != "alice" {
			t.Fatalf("%s: %+v, %v", c.name, got, err)
		}
		k.err = c.err
		got, err := r.of(t.Context(), token, noon.Add(10*time.Minute))
		if got.Name != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s: %q, %v; want %q", c.name, got.Name, err, c.want)
		}
	}
}
