package modelserver

import (
	"fmt"
	"testing"
	"time"

	"steelyard/weighting"
)

var t0 = time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)

// body writes a Triton body with one success counter per model.
func body(successes map[string]float64, queueMicroseconds float64) []byte {
	out := "nv_inference_pending_request_count 1\n"
	for model, n := range successes {
		out += fmt.Sprintf("nv_inference_request_success{model=%q} %v\n", model, n)
	}
	out += fmt.Sprintf("nv_inference_queue_duration_us %v\n", queueMicroseconds)
	return []byte(out)
}

func TestSumsNeverGoBack(t *testing.T) {
	r := newReader(t, EngineTriton)
	var c Counters
	for i, step := range []struct {
		what         string
		successes    map[string]float64
		queue        float64 // microseconds
		completions  float64
		queueSeconds float64
		restarts     int
	}{
		{"the first report is where the sums begin", map[string]float64{"a": 100, "b": 10}, 5e6, 110, 5, 0},
		{"growth adds up", map[string]float64{"a": 103, "b": 11}, 6e6, 114, 6, 0},
		{"nothing new", map[string]float64{"a": 103, "b": 11}, 6e6, 114, 6, 0},
		{"a restart, seen in three counters, is one", map[string]float64{"a": 2, "b": 1}, 1e6, 117, 7, 1},
		{"growth after it", map[string]float64{"a": 4, "b": 1}, 1e6, 119, 7, 1},
		{"one model reloaded: the other does not count again", map[string]float64{"a": 1, "b": 3}, 1e6, 122, 7, 2},
		{"a model unloaded", map[string]float64{"b": 5}, 1e6, 124, 7, 2},
		{"the same back in the next report", map[string]float64{"a": 2, "b": 5}, 1e6, 125, 7, 2},
		{"a new model", map[string]float64{"a": 2, "b": 5, "c": 6}, 1e6, 131, 7, 2},
	} {
		at := t0.Add(time.Duration(i) * time.Second)
		report, err := r.Read(body(step.successes, step.queue))
		if err != nil {
			t.Fatal(err)
		}
		got := c.Observe(at, report)
		want := weighting.ServerReport{
			Queue:        weighting.Reading{Value: 1, At: at},
			Completions:  weighting.Reading{Value: step.completions, At: at},
			QueueSeconds: weighting.Reading{Value: step.queueSeconds, At: at},
			Restarts:     step.restarts,
		}
		if got != want {
			t.Errorf("%s:\ngot  %+v\nwant %+v", step.what, got, want)
		}
	}
}

// A value that no server can have come to since the report before is a bad reading, or another server's: it is
// counted, the sums stay as they are, and they go on from there, be it from the new value or from the old one.
func TestACounterThatLeapsShowsNothing(t *testing.T) {
	number := func(v float64) Number { return Number{Value: v, Known: true} }
	for name, steps := range map[string][]struct {
		completions, sum float64
		restarts, leaps  int
	}{
		"and comes back":                   {{100, 100, 0, 0}, {1e18, 100, 1, 1}, {103, 100, 2, 1}, {105, 102, 2, 1}},
		"and stays":                        {{100, 100, 0, 0}, {5e7, 100, 1, 1}, {5e7 + 3, 103, 1, 1}},
		"and comes back to less":           {{100, 100, 0, 0}, {1e18, 100, 1, 1}, {3, 100, 2, 1}, {5, 102, 2, 1}},
		"by as much as tiny requests make": {{100, 100, 0, 0}, {100_100, 100_100, 0, 0}, {500_100, 500_100, 0, 0}},
		"from the start":                   {{1e18, 0, 1, 1}, {103, 0, 2, 1}, {105, 2, 2, 1}},
		"again and again": {{7, 7, 0, 0}, {1e18, 7, 1, 1}, {8, 7, 2, 1}, {1e18, 7, 3, 2}, {9, 7, 4, 2},
			{10, 8, 4, 2}},
		"after a restart is growth": {{5e7, 5e7, 0, 0}, {20, 5e7 + 20, 1, 0}, {22, 5e7 + 22, 1, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			var c Counters
			for i, step := range steps {
				at := t0.Add(time.Duration(i) * 250 * time.Millisecond)
				got := c.Observe(at, Report{Completions: number(step.completions)})
				if got.Completions.Value != step.sum || got.Restarts != step.restarts || got.Implausible != step.leaps {
					t.Errorf("report %d, %v: sum %v, %d restarts, %d leaps; want %v, %d and %d", i, step.completions,
						got.Completions.Value, got.Restarts, got.Implausible, step.sum, step.restarts, step.leaps)
				}
			}
		})
	}
}

func TestAnUnknownCounterKeepsItsSum(t *testing.T) {
	number := func(v float64) Number { return Number{Value: v, Known: true} }
	var c Counters
	c.Observe(t0, Report{Completions: number(10), BusySeconds: number(3)})
	gap := c.Observe(t0.Add(1*time.Second), Report{Running: number(2)})
	if gap.Completions.Known() || gap.BusySeconds.Known() || gap.QueueSeconds.Known() {
		t.Errorf("counters known in the gap: %+v", gap)
	}
	if want := (weighting.Reading{Value: 2, At: t0.Add(time.Second)}); gap.Running != want {
		t.Errorf("running %v, want %v", gap.Running, want)
	}
	after := c.Observe(t0.Add(2*time.Second), Report{Completions: number(12), BusySeconds: number(1)})
	if after.Completions.Value != 12 || after.BusySeconds.Value != 4 || after.Restarts != 1 {
		t.Errorf("completions %v, busy %v, restarts %d; want 12, 4, 1",
			after.Completions.Value, after.BusySeconds.Value, after.Restarts)
	}
}

func TestWhetherTheEngineIsAwakeIsDated(t *testing.T) {
	r := newReader(t, EngineVLLM)
	var c Counters
	for page, want := range map[string]weighting.Reading{
		"vllm:num_requests_waiting 1\n": {},
		"vllm:num_requests_waiting 1\nvllm:engine_sleep_state{sleep_state=\"awake\"} 0\n": {Value: 0, At: t0},
		"vllm:num_requests_waiting 1\nvllm:engine_sleep_state{sleep_state=\"awake\"} 1\n": {Value: 1, At: t0},
	} {
		report, err := r.Read([]byte(page))
		if got := c.Observe(t0, report).Awake; err != nil || got != want {
			t.Errorf("%q: %+v, %v, want %+v", page, got, err, want)
		}
	}
}

func TestForgetsSeriesThatAreGone(t *testing.T) {
	r := newReader(t, EngineTriton)
	var c Counters
	last := 0.0
	for i := range 1000 {
		report, err := r.Read(body(map[string]float64{fmt.Sprint("model-", i): 5}, 0))
		if err != nil {
			t.Fatal(err)
		}
		now := c.Observe(t0.Add(time.Duration(i)*time.Second), report).Completions.Value
		if now < last {
			t.Fatalf("report %d: the sum fell from %v to %v", i, last, now)
		}
		last = now
	}
	if n := len(c.completions.last); n > 100 {
		t.Errorf("%d series remembered, one is alive", n)
	}
	if last != 5000 {
		t.Errorf("sum %v, want 5000", last)
	}
}

func TestCountersOfTheRecordings(t *testing.T) {
	r := newReader(t, EngineVLLM)
	var c Counters
	for _, step := range []struct {
		file        string
		completions float64
		restarts    int
	}{
		{"vllm-0.32.0-idle.prom", 0, 0},
		{"vllm-0.32.0-loaded.prom", 43, 0},
		{"vllm-0.32.0-drained.prom", 68, 0},
		{"vllm-0.32.0-idle.prom", 68, 1},
	} {
		report, err := r.Read(read(t, "recorded", step.file))
		if err != nil {
			t.Fatal(err)
		}
		got := c.Observe(t0, report)
		if got.Completions.Value != step.completions || got.Restarts != step.restarts {
			t.Errorf("%s: %v completions, %d restarts; want %v, %d",
				step.file, got.Completions.Value, got.Restarts, step.completions, step.restarts)
		}
	}
}

// Counts of tokens come as one, or not at all; what an engine does not export, or not in this body, does not move.
func TestTokensAreReadTogether(t *testing.T) {
	number := func(v float64) Number { return Number{Value: v, Known: true} }
	full := func(prompt, first, generated float64) Report {
		return Report{PromptTokens: number(prompt), FirstTokens: number(first), GeneratedTokens: number(generated),
			Queue: number(0)}
	}
	var c Counters
	cached := full(1000, 2, 300)
	cached.CachedTokens, cached.Iterations = number(160), number(40)
	want := func(what string, got, want weighting.TokenCounts) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %+v, want %+v", what, got, want)
		}
	}
	at := func(n int) time.Time { return t0.Add(time.Duration(n) * time.Second) }
	want("all", c.Observe(at(0), cached).Tokens,
		weighting.TokenCounts{At: at(0), Prompt: 1000, Cached: 160, Generated: 300, First: 2, Iterations: 40})
	want("two are missing", c.Observe(at(1), full(1500, 3, 400)).Tokens,
		weighting.TokenCounts{At: at(1), Prompt: 1500, Cached: 160, Generated: 400, First: 3, Iterations: 40})
	if got := c.Observe(at(2), Report{Queue: number(0), PromptTokens: number(1600)}).Tokens; !got.At.IsZero() {
		t.Errorf("without a count of first tokens: %+v", got)
	}
	restarted := c.Observe(at(3), full(70, 1, 10))
	want("after a restart", restarted.Tokens,
		weighting.TokenCounts{At: at(3), Prompt: 1670, Cached: 160, Generated: 410, First: 4, Iterations: 40})
	if restarted.Restarts != 1 {
		t.Errorf("%d restarts, want 1", restarted.Restarts)
	}
}
