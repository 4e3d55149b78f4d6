package customrouter

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"steelyard/picking"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestBothFormsOfABackendAreRead(t *testing.T) {
	got, err := parseBackends(strings.NewReader(
		`{"backends": ["http://10.0.0.1:8000", "10.0.0.2:80", "http://[::1]:90/", "http://pod", "10.0.0.2:80"]}`))
	if want := "10.0.0.1:8000 10.0.0.2:80 [::1]:90 pod:80"; err != nil || strings.Join(got, " ") != want {
		t.Errorf("got %v, %v; want %s", got, err, want)
	}
}

func FuzzBackends(f *testing.F) {
	f.Add(`{"backends": ["http://10.0.0.1:8000"]}`)
	f.Add(`{"backends": ["[::1]:1", "x:0", "http://a:1/b?c#d"]}`)
	f.Fuzz(func(t *testing.T, body string) {
		got, err := parseBackends(strings.NewReader(body))
		for _, b := range got {
			if again, failed := parseBackend(b); err == nil && (failed != nil || again != b) {
				t.Errorf("%q reads as %q, %v", b, again, failed)
			}
		}
	})
}

func TestAnEndIsAnAnswerAFailureOrAbandoned(t *testing.T) {
	for _, c := range []struct {
		name    string
		status  int
		details string
		want    picking.Outcome
	}{
		{"200", 200, "via_upstream", picking.Answered},
		{"a client's own error", 404, "via_upstream", picking.Answered},
		{"too many requests", 429, "via_upstream", picking.Failed},
		{"503 of the backend", 503, "via_upstream", picking.Failed},
		{"no connection", 503, "upstream_reset_before_response_started{connection_termination}", picking.Failed},
		{"no answer", 0, "", picking.Failed},
		{"cut off", 200, "upstream_reset_after_response_started{connection_termination}", picking.Failed},
		{"the client left", 0, "downstream_remote_disconnect", picking.Abandoned},
		{"the client left while the answer came", 200, "downstream_remote_disconnect", picking.Abandoned},
		{"the client left an HTTP/2 stream", 200, "http2.remote_reset", picking.Abandoned},
	} {
		if got := OutcomeOf(c.status, c.details); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestTheAPIRefusesOtherMethodsAndLargeBodies(t *testing.T) {
	r := New(Options{Queue: picking.QueuedOptions{QueueMax: 1}, Log: slog.New(slog.DiscardHandler)})
	for _, c := range []struct {
		method, path, body string
		want               int
	}{
		{http.MethodGet, "set-backends", "", http.StatusMethodNotAllowed},
		{http.MethodPost, "health", "", http.StatusMethodNotAllowed},
		{http.MethodPost, "set-backends", `{"backends": ["` + strings.Repeat("x", maxBody) + `"]}`,
			http.StatusBadRequest},
		{http.MethodPost, "set-backends", `{"backends": []} trailing`, http.StatusBadRequest},
		{http.MethodPost, "set-backends", `{"backends": []}`, http.StatusOK},
		{http.MethodGet, "", "", http.StatusOK},
		{http.MethodGet, "nothing", "", http.StatusNotFound},
	} {
		w := httptest.NewRecorder()
		r.Handler().ServeHTTP(w, httptest.NewRequest(c.method, APIPath+c.path, strings.NewReader(c.body)))
		if w.Code != c.want {
			t.Errorf("%s %s: %d, want %d: %s", c.method, c.path, w.Code, c.want, w.Body)
		}
	}
}

func TestThePageShowsTheQueueAndWhatEachBackendTakes(t *testing.T) {
	r := New(Options{Queue: picking.QueuedOptions{Threshold: time.Second, QueueMax: 7, Alpha: 0.3}})
	show := func() string {
		w := httptest.NewRecorder()
		r.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, APIPath, nil))
		return w.Body.String()
	}
	if text := show(); !strings.Contains(text, "No backend is set") {
		t.Errorf("without backends the page is\n%s", text)
	}
	now := time.Now()
	r.set(now, []string{"a:1", "b:1"}, map[string]string{"a:1": "10.0.0.1:1", "b:1": "10.0.0.2:1"})
	var verdicts []Verdict
	for range 3 {
		r.Arrive(now, func(v Verdict) { verdicts = append(verdicts, v) })
	}
	r.End(now.Add(2*time.Second), 1, picking.Answered)
	want := []Verdict{{Address: "10.0.0.1:1"}, {Address: "10.0.0.2:1"}, {Address: "10.0.0.1:1"}}
	if !slices.Equal(verdicts, want) {
		t.Errorf("the verdicts are %v, want %v", verdicts, want)
	}
	r.Arrive(now, func(Verdict) {})
	for _, part := range []string{"<td>1</td><td>7</td><td>3</td><td>0</td><td>0</td>", "<td>2s</td>",
		meanings[picking.BackendSlow], meanings[picking.BackendProbed], "none yet"} {
		if text := show(); !strings.Contains(text, part) {
			t.Errorf("the page lacks %q:\n%s", part, text)
		}
	}
}

func TestTheRouterHasNoTraceOfRequestsThatEnded(t *testing.T) {
	r := New(Options{Queue: picking.QueuedOptions{QueueMax: 2, Alpha: 0.3, QueueTimeout: time.Hour}})
	now := time.Now()
	var refused []picking.Refusal
	for range 3 {
		r.Arrive(now, func(v Verdict) { refused = append(refused, v.Refused) })
	}
	if !slices.Equal(refused, []picking.Refusal{picking.RefusedEvicted}) {
		t.Errorf("refused %v, want the oldest", refused)
	}
	r.End(now, 2, picking.Abandoned)
	r.set(now, []string{"a:1"}, map[string]string{"a:1": "10.0.0.1:1"})
	r.set(now, nil, nil)
	for number := range uint64(4) {
		r.End(now, number, picking.Answered)
	}
	if s := r.state(); s.depth != 0 || len(s.backends) != 0 || len(r.waiting)+len(r.running) != 0 || s.dispatched != 1 {
		t.Errorf("the state is %+v, with %d waiting and %d running", s, len(r.waiting), len(r.running))
	}
}

func TestRequestsThatWaitForTooLongAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New(Options{Queue: picking.QueuedOptions{QueueMax: 2, QueueTimeout: 3 * time.Second}, Log: slog.Default()})
		began := time.Now()
		refused := make(chan Verdict, 1)
		r.Arrive(began, func(v Verdict) { refused <- v })
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- r.Run(ctx) }()
		v := <-refused
		took := time.Since(began)
		if v.Refused != picking.RefusedTimeout || took < 3*time.Second || took > 3*time.Second+tick {
			t.Errorf("the verdict is %+v after %v", v, took)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
