package load

import (
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"steelyard/e2e/rig/modelsim"
)

// serve runs a handler on loopback for the time of the test.
func serve(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // or a disconnect goes unnoticed
		h(w, r)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func TestRunRecordsTheServersReports(t *testing.T) {
	var urls, servers []string
	for _, speed := range []float64{1, 0.5} {
		s, err := modelsim.Start(modelsim.Options{Slots: 1, Speed: speed})
		if err != nil {
			t.Fatalf("starting a server: %v", err)
		}
		t.Cleanup(func() { _ = s.Close() })
		urls = append(urls, "http://"+s.Address()+"/v1/completions")
		servers = append(servers, s.Address())
	}
	meter := new(Meter)
	got, err := Run(t.Context(), Plan{
		Targets: urls, Rate: 2000, Count: 100, Seed: 1, Meter: meter,
		Work: Work{Mean: 2 * time.Millisecond, Shape: Deterministic},
	})
	if err != nil {
		t.Fatalf("Run: %v", err)
	}
	if got.Requests != 100 || got.Errors != 0 || got.Codes[200] != 100 {
		t.Errorf("%d requests, %d errors, %d answered 200; want 100, 0, 100: %v", got.Requests, got.Errors,
			got.Codes[200], got.Codes)
	}
	if n := got.Servers[servers[0]] + got.Servers[servers[1]]; n != 100 {
		t.Errorf("the servers answered %v, want 100 in all", got.Servers)
	}
	if got.Wait.N != 100 || got.Wait.Max < 0.02 || got.Latency.Max < got.Wait.Max {
		t.Errorf("waits %+v, latencies %+v; want 100 waits, a queue of some 20 ms at the end, latency above wait",
			got.Wait, got.Latency)
	}
	for i, s := range got.Samples {
		if s.Server != servers[s.Target] {
			t.Fatalf("request %d for target %d was answered by %s, want %s", i, s.Target, s.Server, servers[s.Target])
		}
	}
	if s := meter.Snapshot(); s.Sent != 100 || s.Done != 100 || s.Errors != 0 || s.Wait != got.Wait {
		t.Errorf("the meter shows %+v, want all of %+v", s, got.Wait)
	}
}

// However long the answers take, every request leaves when it is due.
func TestRunIsOpenLoop(t *testing.T) {
	const n = 50
	release := make(chan struct{})
	var arrived sync.WaitGroup
	arrived.Add(n)
	url := serve(t, func(http.ResponseWriter, *http.Request) {
		arrived.Done()
		<-release
	})
	go func() {
		arrived.Wait() // only reached if no request waits for another one's answer
		close(release)
	}()
	got, err := Run(t.Context(), Plan{Targets: []string{url}, Process: Fixed, Rate: 1000, Count: n})
	if err != nil || got.Errors != 0 || got.Requests != n {
		t.Errorf("%d requests, %d errors, %v; want %d, 0, nil", got.Requests, got.Errors, err, n)
	}
}

func TestRunCountsErrorsByKind(t *testing.T) {
	busy := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	broken := serve(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	meter := new(Meter)
	got, err := Run(t.Context(), Plan{Targets: []string{busy, broken}, Rate: 1000, Count: 40, Seed: 3, Meter: meter})
	if err != nil {
		t.Fatalf("Run: %v", err)
	}
	if got.Errors != 40 || got.Unanswered+got.Codes[503] != 40 || got.Unanswered == 0 || got.ServerErrors() == 0 {
		t.Errorf("%d errors, %d unanswered, codes %v; want 40 of both kinds", got.Errors, got.Unanswered, got.Codes)
	}
	if s := meter.Snapshot(); s.Answered() != 0 || s.Errors != 40 || s.Refused != got.Codes[503] || s.Latency != 0 {
		t.Errorf("the meter has %+v, want none answered, 40 errors and %d refused", s, got.Codes[503])
	}
	if got.Unfinished != 0 {
		t.Errorf("%d given up at the end, want 0", got.Unfinished)
	}
	if got.Wait.N != 0 {
		t.Errorf("%d waits though no answer says one", got.Wait.N)
	}
}

func TestRunGivesUpWhatIsOutAfterTheDrain(t *testing.T) {
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get(headerWork) != "" {
			t.Errorf("the request asks for work, though the plan does not")
		}
		<-r.Context().Done()
	})
	got, err := Run(t.Context(), Plan{Targets: []string{url}, Rate: 1000, Count: 5, Drain: 50 * time.Millisecond})
	if err != nil {
		t.Fatalf("Run: %v", err)
	}
	if got.Errors != 5 || got.Unfinished != 5 || got.Unanswered != 5 {
		t.Errorf("%d errors, %d unfinished, %d unanswered; want 5 of each", got.Errors, got.Unfinished, got.Unanswered)
	}
	for _, s := range got.Samples {
		if !errors.Is(s.Err, errGivenUp) || !math.IsNaN(s.Wait) {
			t.Errorf("error %v, wait %v; want given up and none", s.Err, s.Wait)
		}
	}
}

func TestRunStopsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	first := make(chan struct{})
	var once sync.Once
	url := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		once.Do(func() { close(first) })
		<-r.Context().Done()
	})
	go func() {
		<-first
		cancel()
	}()
	got, err := Run(ctx, Plan{Targets: []string{url}, Rate: 10, Duration: time.Hour})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want the context's", err)
	}
	if got.Requests == 0 || got.Errors != got.Requests || got.Unfinished != 0 {
		t.Errorf("%d requests, %d errors, %d unfinished; want what was sent, all of it failed", got.Requests,
			got.Errors, got.Unfinished)
	}
}

func TestMeterForgetsTheOldest(t *testing.T) {
	m := new(Meter)
	for range meterWindow {
		m.begin()
		m.end(Sample{Status: 200, Wait: 1, Latency: time.Second})
	}
	for range meterWindow {
		m.end(Sample{Status: 500, Wait: 2})
	}
	m.end(Sample{Status: 200, Wait: math.NaN(), Latency: time.Second})
	want := Snapshot{Sent: meterWindow, Done: 2*meterWindow + 1, Errors: meterWindow, Latency: time.Second,
		Wait: Summary{N: meterWindow, Mean: 2, P50: 2, P90: 2, P99: 2, Max: 2}}
	if got := m.Snapshot(); got != want {
		t.Errorf("snapshot %+v, want %+v", got, want)
	}
}

func TestRequestsCarryTheHeaderOfThePlanAndTheirPlaceAmongTheSamples(t *testing.T) {
	url := serve(t, func(w http.ResponseWriter,
		r *http.Request) {
		w.Header().Set("X-Server", r.Header.Get("X-Class")+r.Header.Get("X-Request-Id"))
	})
	before := time.Now()
	got, err := Run(t.Context(), Plan{Targets: []string{url}, Rate: 1000, Count: 20, RequestIDs: "run",
		Header: http.Header{"X-Class": {"batch-"}}})
	if err != nil {
		t.Fatal(err)
	}
	if got.Start.Before(before) || got.Start.Add(got.Elapsed).After(time.Now()) {
		t.Errorf("the result has the run begin at %v and take %v; it began after %v", got.Start, got.Elapsed, before)
	}
	for i, s := range got.Samples {
		if want := "batch-" + RequestID("run", i); s.Server != want {
			t.Errorf("sample %d carried %q, want %q", i, s.Server, want)
		}
	}
	anonymous, err := Run(t.Context(), Plan{Targets: []string{url}, Rate: 1000, Count: 1})
	if err != nil || anonymous.Samples[0].Server != "" {
		t.Errorf("without a prefix the id is %q (%v), want none", anonymous.Samples[0].Server, err)
	}
}
