package admin

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"steelyard/controlplane/admin/history"
	"steelyard/internal/api"
)

// answer is what a request got.
type answer struct {
	code   int
	header http.Header
	body   string
}

// ask sends one request to a handler.
func ask(t *testing.T, h http.Handler, method, target string) answer {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, request(method, target))
	return answer{w.Code, w.Header(), w.Body.String()}
}

// request is one to the address of the listener.
func request(method, target string) *http.Request {
	r := httptest.NewRequest(method, target, nil)
	r.Host = "127.0.0.1:19000"
	return r
}

// handlerOf is a handler over a source that never changes, at noon.
func handlerOf(f fixed) http.Handler { return New(optionsOf(f)) }

// optionsOf has a recorder that looked once, and measured as if it had for a minute.
func optionsOf(f fixed) Options {
	now := func() time.Time { return noon }
	h := recent(noon.Add(-time.Second), f.clusters...)
	r := history.NewRecorder(history.RecorderOptions{Source: f, History: h, Now: now})
	r.Tick()
	for _, m := range r.Latest().Measures {
		if len(m.Endpoints) < 8 {
			continue
		}
		m.Served = api.Served{Source: api.ServedBegun, Requests10s: api.Num(417), Requests1m: api.Num(2502),
			VsDecided: api.Num(0.012), Noise: api.Num(0.021)}
		for i := range m.Endpoints {
			e := &m.Endpoints[i]
			e.Served10s, e.Served1m, e.Requests1m = api.Num(0.12), api.Num(0.125), api.Num(313)
		}
	}
	return Options{Source: f, Operator: &deskOperator{level: "info"}, Recorder: r, Version: "1.2.3",
		Now: now}
}

// decode reads a JSON answer into T.
func decode[T any](t *testing.T, a answer) T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(a.body), &v); err != nil {
		t.Fatalf("answer %d is no JSON: %v\n%s", a.code, err, a.body)
	}
	return v
}

// askWith sends a GET with one header; it may be called from any goroutine.
func askWith(h http.Handler, target, name, value string) answer {
	w := httptest.NewRecorder()
	r := request(http.MethodGet, target)
	r.Header.Set(name, value)
	h.ServeHTTP(w, r)
	return answer{w.Code, w.Header(), w.Body.String()}
}

func failure(message string) api.Problem {
	return api.Problem{Severity: api.SeverityError, Message: message}
}

func warning(message string) api.Problem {
	return api.Problem{Severity: api.SeverityWarning, Message: message}
}

// sameWorking compares decisions by identity.
var sameWorking = cmp.Comparer(func(a, b api.Working) bool { return a == b })
