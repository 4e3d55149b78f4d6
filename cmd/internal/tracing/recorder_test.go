package tracing

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"steelyard/weighting"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func at(ms int) time.Time { return epoch.Add(time.Duration(ms) * time.Millisecond) }

// A keeper is an exporter that keeps the spans, or fails.
type keeper struct {
	mu    sync.Mutex
	spans []sdktrace.ReadOnlySpan
	err   error
}

func (k *keeper) Start(context.Context) error    { return nil }
func (k *keeper) Shutdown(context.Context) error { return nil }

func (k *keeper) ExportSpans(_ context.Context, spans []sdktrace.ReadOnlySpan) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err == nil {
		k.spans = append(k.spans, spans...)
	}
	return k.err
}

func (k *keeper) fail(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.err = err
}

func (k *keeper) named(name string) (out []sdktrace.ReadOnlySpan) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, s := range k.spans {
		if s.Name() == name {
			out = append(out, s)
		}
	}
	return out
}

// recorder traces every push.
func recorder() (*Recorder, *keeper) {
	k := &keeper{}
	return newRecorder(Options{SampleRatio: 1, Log: slog.New(slog.DiscardHandler)}, k), k
}

// flush exports what is recorded, as the end of Run does.
func flush(r *Recorder) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = r.Run(ctx)
}

func valueOf(s sdktrace.ReadOnlySpan, key string) any {
	for _, a := range s.Attributes() {
		if string(a.Key) == key {
			return a.Value.AsInterface()
		}
	}
	return nil
}

func TestATraceHasTheScrapesTheStepThePushAndTheAnswers(t *testing.T) {
	r, exported := recorder()
	r.Scraped("llama", "10.0.0.1:80", at(10), 10*time.Millisecond, "")
	r.Scraped("llama", "10.0.0.2:80", at(12), 4*time.Millisecond, "status 500")
	r.Scraped("mixtral", "10.0.0.3:80", at(12), 4*time.Millisecond, "")
	p := r.Publishing("llama", at(22))
	r.Answered("llama", "v7", "edge-1", false, "", at(23)) // sooner than the push returns
	r.Answered("llama", "v6", "edge-2", false, "", at(23))
	p.Published("v7", nil, at(24))
	r.Decided("llama", &weighting.Decision{At: at(20), ArrivalRate: math.NaN(),
		Endpoints: make([]weighting.EndpointDecision, 2)}, "changed")
	r.Answered("llama", "v7", "edge-2", true, "bad weight", at(30))
	r.Answered("llama", "v8", "edge-3", false, "", at(31))
	r.Answered("mixtral", "v7", "edge-4", false, "", at(32))
	flush(r)

	roots := exported.named("decision")
	if len(roots) != 1 {
		t.Fatalf("%d decisions, want 1", len(roots))
	}
	root := roots[0]
	for key, want := range map[string]any{"steelyard.cluster": "llama", "steelyard.version": "v7",
		"steelyard.reason": "changed", "steelyard.scrapes": int64(2), "steelyard.acks": int64(1),
		"steelyard.nacks": int64(1), "steelyard.endpoints": int64(2), "steelyard.arrival_rate": nil} {
		if got := valueOf(root, key); got != want {
			t.Errorf("%s is %v, want %v", key, got, want)
		}
	}
	type part struct {
		name, key, value string
		began, ended     time.Time
		code             codes.Code
		status           string
	}
	want := []part{
		{"scrape", "steelyard.endpoint", "10.0.0.1:80", at(5), at(15), codes.Unset, ""},
		{"scrape", "steelyard.endpoint", "10.0.0.2:80", at(10), at(14), codes.Error, "status 500"},
		{"decide", "", "", at(20), at(22), codes.Unset, ""},
		{"push", "", "", at(22), at(24), codes.Unset, ""},
		{"ack", "steelyard.envoy", "edge-1", at(22), at(23), codes.Unset, ""},
		{"ack", "steelyard.envoy", "edge-2", at(22), at(30), codes.Error, "NACK: bad weight"},
		{"decision", "", "", at(5), at(30), codes.Unset, ""},
	}
	var got []part
	for _, s := range exported.spans {
		g := part{name: s.Name(), began: s.StartTime(), ended: s.EndTime(), code: s.Status().Code,
			status: s.Status().Description}
		for _, key := range []string{"steelyard.endpoint", "steelyard.envoy"} {
			if v, ok := valueOf(s, key).(string); ok {
				g.key, g.value = key, v
			}
		}
		got = append(got, g)
		if s.Name() != "decision" && s.Parent().SpanID() != root.SpanContext().SpanID() {
			t.Errorf("%s is no child of the decision", s.Name())
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("spans:\n%v\nwant:\n%v", got, want)
	}
}

func TestAPushThatFailsIsAnError(t *testing.T) {
	r, exported := recorder()
	p := r.Publishing("llama", at(0))
	r.Answered("llama", "v1", "edge-1", false, "", at(0))
	p.Published("v1", errors.New("no \xff address"), at(1))
	r.Answered("llama", "v1", "edge-2", false, "", at(2))
	flush(r)
	if got := exported.named("ack"); len(got) != 0 {
		t.Errorf("%d answers to the push before are its own", len(got))
	}
	for _, name := range []string{"decision", "push"} {
		s := exported.named(name)
		if len(s) != 1 || s[0].Status().Code != codes.Error || s[0].Status().Description != "no \uFFFD address" {
			t.Errorf("%s: %v", name, s)
		}
	}
}

func TestATraceBelongsToItsOwnStep(t *testing.T) {
	r, exported := recorder()
	r.Publishing("llama", at(0)).Published("v1", nil, at(1))
	r.Decided("llama", &weighting.Decision{At: at(0)}, "first")
	r.Decided("llama", &weighting.Decision{At: at(5)}, "of a push that was not drawn")
	flush(r)
	if got := valueOf(exported.named("decision")[0], "steelyard.reason"); got != "first" {
		t.Errorf("reason %v", got)
	}
}

func TestTracesAreBounded(t *testing.T) {
	r, exported := recorder()
	push := func(ms int) *Push {
		p := r.Publishing("llama", at(ms))
		p.Published("v", nil, at(ms))
		return p
	}
	for i := range 100 {
		r.Scraped("llama", "10.0.0.1:80", at(i), 0, "")
	}
	first := push(100)
	for range 100 {
		r.Answered("llama", "v", "edge", false, "", at(101))
	}
	if first == nil {
		t.Fatal("the first push is not traced")
	}
	for i := range 99 {
		push(101 + i)
	}
	if got := r.Status().Skipped; got != 100-mostPerSecond {
		t.Errorf("%d of 100 pushes within a second are skipped, want all but %d", got, mostPerSecond)
	}
	for i := range 20 {
		for range mostPerSecond {
			push(2000 + 1000*i)
		}
	}
	flush(r)
	if got := len(exported.named("decision")); got != mostOpen {
		t.Errorf("%d traces waited for answers, want %d", got, mostOpen)
	}
	if scrapes := exported.named("scrape"); len(scrapes) != mostScrapes || !scrapes[0].StartTime().Equal(at(68)) {
		t.Errorf("%d scrapes, want the latest %d", len(scrapes), mostScrapes)
	}
	if got := len(exported.named("ack")); got != mostAnswers {
		t.Errorf("%d answers, want %d", got, mostAnswers)
	}
	root := exported.named("decision")[0]
	if got := valueOf(root, "steelyard.scrapes"); got != int64(100) {
		t.Errorf("%v scrapes are counted, want 100", got)
	}
	if got := valueOf(root, "steelyard.acks"); got != int64(100) {
		t.Errorf("%v ACKs are counted, want 100", got)
	}
}

func TestScrapesBelongToTheNextPushEvenIfThatIsNotTraced(t *testing.T) {
	r, exported := recorder()
	drawn := false
	r.draw = func() bool { return drawn }
	r.Scraped("llama", "10.0.0.1:80", at(0), 0, "")
	if r.Publishing("llama", at(1)) != nil {
		t.Fatal("a push that is not drawn is traced")
	}
	drawn = true
	r.Publishing("llama", at(2)).Published("v", nil, at(3))
	flush(r)
	if got := exported.named("scrape"); len(got) != 0 {
		t.Errorf("%d scrapes of the push before", len(got))
	}
}

func TestRunExportsATraceWhenEnvoysHadTimeToAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, exported := recorder()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- r.Run(ctx) }()
		r.Publishing("llama", time.Now()).Published("v1", nil, time.Now())
		time.Sleep(patience - time.Millisecond)
		synctest.Wait()
		if got := exported.named("decision"); len(got) != 0 {
			t.Error("it does not wait for the answers")
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if got := exported.named("decision"); len(got) != 1 {
			t.Errorf("%d traces, want 1", len(got))
		}
		exported.fail(errors.New("no collector"))
		r.Publishing("llama", time.Now()).Published("v2", nil, time.Now())
		time.Sleep(patience + time.Second)
		synctest.Wait()
		s := r.Status()
		if s.Exported != 2 || s.Failed != 2 || s.Error != "no collector" || s.ErrorAt.IsZero() {
			t.Errorf("status %+v", s)
		}
		exported.fail(nil)
		r.Publishing("llama", time.Now()).Published("v3", nil, time.Now())
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if s := r.Status(); s.Exported != 4 || s.Error != "" {
			t.Errorf("the end does not export the rest: %+v", s)
		}
	})
}

func TestAPushThatIsUnderWayIsNotExported(t *testing.T) {
	r, exported := recorder()
	p := r.Publishing("llama", at(0))
	flush(r)
	if got := exported.named("decision"); len(got) != 0 {
		t.Errorf("%d traces of a push that has not ended", len(got))
	}
	p.Published("v", nil, at(1))
	flush(r)
	if got := exported.named("decision"); len(got) != 1 {
		t.Errorf("%d traces, want 1", len(got))
	}
}

func TestNothingIsRecordedWithoutARecorder(t *testing.T) {
	var r *Recorder
	r.Scraped("llama", "10.0.0.1:80", at(0), 0, "")
	p := r.Publishing("llama", at(0))
	p.Published("v", nil, at(0))
	r.Decided("llama", &weighting.Decision{}, "first")
	r.Answered("llama", "v", "edge", false, "", at(0))
	r.Forget("llama")
	if p != nil {
		t.Error("a push is traced")
	}
}

func TestTheProtocolComesFromTheEnvironmentWhereTheConfigurationHasNone(t *testing.T) {
	for _, c := range []struct {
		name, configured, traces, all string
		good                          bool
	}{
		{"none", "", "", "", true},
		{"configured", ProtocolGRPC, "http/json", "http/json", true},
		{"of traces", "", ProtocolHTTP, "http/json", true},
		{"of all signals", "", "", ProtocolGRPC, true},
		{"unknown", "", "", "http/json", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", c.traces)
			t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", c.all)
			if _, err := New(Options{Protocol: c.configured}); (err == nil) != c.good {
				t.Errorf("error %v", err)
			}
		})
	}
}

func TestTracesAreSentBelowTheBaseOfTheCollector(t *testing.T) {
	for base, want := range map[string]string{
		"http://c:4318":             "http://c:4318/v1/traces",
		"http://c:4318/":            "http://c:4318/v1/traces",
		"https://c/otlp":            "https://c/otlp/v1/traces",
		"https://c/otlp/v1/traces/": "https://c/otlp/v1/traces",
	} {
		if got := tracesURL(base); got != want {
			t.Errorf("%s: %s, want %s", base, got, want)
		}
	}
}

func TestTheProcessIsNamedAndTheEnvironmentMayRenameIt(t *testing.T) {
	t.Setenv("OTEL_SERVICE_NAME", "steelyard-eu")
	for _, a := range resourceOf(Options{Version: "1.2.3", Replica: "r1"}).Attributes() {
		want := map[string]string{"service.name": "steelyard-eu", "service.version": "1.2.3",
			"service.instance.id": "r1"}[string(a.Key)]
		if got := a.Value.AsString(); got != want {
			t.Errorf("%s is %q, want %q", a.Key, got, want)
		}
	}
}

// BenchmarkRecord is what tracing costs for each push with four scrapes before it and ten answers: without a Recorder,
// with one that draws nothing, and with the default share.
//
//	go test -run '^$' -bench Record ./cmd/internal/tracing
func BenchmarkRecord(b *testing.B) {
	drawing := func(ratio float64) *Recorder {
		return newRecorder(Options{SampleRatio: ratio, Log: slog.New(slog.DiscardHandler)}, &keeper{})
	}
	for _, c := range []struct {
		name     string
		recorder *Recorder
	}{{"off", nil}, {"none-drawn", drawing(0)}, {"default", drawing(0.01)}} {
		b.Run(c.name, func(b *testing.B) {
			d := weighting.Decision{Endpoints: make([]weighting.EndpointDecision, 100)}
			b.ReportAllocs()
			now := epoch
			for b.Loop() {
				now = now.Add(30 * time.Millisecond)
				for range 4 {
					c.recorder.Scraped("llama", "10.0.0.1:80", now, time.Millisecond, "")
				}
				p := c.recorder.Publishing("llama", now)
				p.Published("v", nil, now)
				c.recorder.Decided("llama", &d, "changed")
				for range 10 {
					c.recorder.Answered("llama", "v", "edge", false, "", now)
				}
				if c.recorder != nil {
					c.recorder.due(now.Add(-patience))
				}
			}
		})
	}
}
