package engine

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

const ms = time.Millisecond

func want[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s = %v, want %v", what, got, want)
	}
}

// round has numbers that are easy to calculate with: 1 ms for each prompt token.
func round() Params {
	return Params{Iteration: 10 * ms, Sequence: ms, PrefillRate: 1000, TokenBudget: 100, MaxSequences: 4,
		KVTokens: 1000}
}

// run steps until nothing is left to do, or until the given time, and returns when
// it last stepped.
func run(t *testing.T, e *Engine, until time.Duration) (last time.Duration) {
	t.Helper()
	for steps := 0; ; steps++ {
		next, ok := e.Next()
		if !ok || next > until {
			return last
		}
		if next < last || steps > 1_000_000 {
			t.Fatalf("step %d at %v after one at %v", steps, next, last)
		}
		last = next
		e.Step(next)
	}
}

func TestARequestAlone(t *testing.T) {
	e := New(Defaults())
	r := &Request{Prompt: 1200, Output: 3}
	e.Arrive(time.Second, r)
	run(t, e, time.Hour)
	want(t, "time to first token: an iteration and 1,200 of 12,000 tokens", r.First-r.Arrived, 120*ms)
	second := 20*ms + 120*time.Microsecond + 1201*15*time.Nanosecond
	third := second + 15*time.Nanosecond
	want(t, "time of the last token", r.Last-r.First, second+third)
	want(t, "gap before the last token", r.Gap, third)
	mean, ok := r.TimePerOutputToken()
	want(t, "time per output token", mean, (second+third)/2)
	want(t, "there is one", ok, true)
	want(t, "it has ended", r.Ended(), true)
	_, ok = (&Request{Generated: 1}).TimePerOutputToken()
	want(t, "there is one of a single token", ok, false)
}

func TestCachedTokensAreNotComputed(t *testing.T) {
	e := New(Defaults())
	r := &Request{Prompt: 1200, Cached: 1080, Output: 1}
	e.Arrive(0, r)
	want(t, "share of the KV cache", e.Gauges().KVUsage, 1200.0/400_000)
	run(t, e, time.Hour)
	want(t, "time to first token", r.First, 30*ms)
	want(t, "prompt tokens", e.Counters().PromptTokens, 1200)
	want(t, "cached ones", e.Counters().CachedTokens, 1080)
	want(t, "computed ones", e.Counters().IterationTokens, 120)
}

// Sequences that decode come first, then the prompt that is begun, then new ones.
func TestABudgetIsShared(t *testing.T) {
	e := New(round())
	decoding := &Request{Prompt: 10, Output: 100}
	e.Arrive(0, decoding)
	long, short := &Request{Prompt: 150, Output: 1}, &Request{Prompt: 40, Output: 1}
	e.Arrive(ms, long)
	e.Arrive(2*ms, short)
	want(t, "waiting until the next scheduling", e.Gauges(), Gauges{Running: 1, KVUsage: 0.01})
	want(t, "in flight", e.InFlight(), 3)

	e.Step(20 * ms) // 10 prompt tokens and 10 ms
	want(t, "when long was admitted", long.Scheduled, 20*ms)
	want(t, "gauges", e.Gauges(), Gauges{Running: 2, Waiting: 1, KVUsage: (11 + 150) / 1000.0})
	next, _ := e.Next()
	want(t, "end of an iteration of one sequence and the 99 tokens that it leaves", next, (20+10+1+99)*ms)
	want(t, "backlog: what neither this iteration nor one before computes", e.Backlog(), 51+40)

	e.Step(130 * ms)
	want(t, "backlog", e.Backlog(), 0)
	want(t, "when short was admitted", short.Scheduled, 130*ms)
	next, _ = e.Next()
	want(t, "end of one of a sequence and the 51 and 40 tokens that remain", next, (130+10+1+91)*ms)
	done := e.Step(next)
	want(t, "both are done at once", len(done) == 2 && done[0] == long && done[1] == short, true)
	want(t, "tokens of the one that decodes", decoding.Generated, 3)
}

func TestPromptsGoBeforeWhatDecodes(t *testing.T) {
	p := round()
	p.PromptsFirst = true
	e := New(p)
	decoding := &Request{Prompt: 10, Output: 100}
	e.Arrive(0, decoding)
	long, short := &Request{Prompt: 150, Output: 1}, &Request{Prompt: 40, Output: 2}
	e.Arrive(ms, long)
	e.Arrive(2*ms, short)
	e.Step(20 * ms) // 10 prompt tokens and 10 ms
	next, _ := e.Next()
	want(t, "end of an iteration of a prompt's first 100 tokens", next, (20+10+100)*ms)
	e.Step(next)
	want(t, "tokens of the one that decodes", decoding.Generated, 1)
	next, _ = e.Next()
	want(t, "end of one of the 50 and 40 tokens that remain", next, (130+10+90)*ms)
	e.Step(next)
	want(t, "first token of the short prompt", short.First, 230*ms)
	next, _ = e.Next()
	want(t, "end of one of the two sequences", next, (230+10+2)*ms)
	e.Step(next)
	want(t, "tokens of the first one", decoding.Generated, 2)
	want(t, "the short one has ended", short.Ended(), true)
}

func TestOnlySoManySequencesRun(t *testing.T) {
	e := New(round())
	var all []*Request
	for range 6 {
		all = append(all, &Request{Prompt: 5, Output: 2})
		e.Arrive(0, all[len(all)-1])
	}
	next, _ := e.Next()
	e.Step(next) // the first came alone
	want(t, "gauges", e.Gauges(), Gauges{Running: 4, Waiting: 2, KVUsage: (6 + 3*5) / 1000.0})
	run(t, e, time.Hour)
	want(t, "gauges when all is done", e.Gauges(), Gauges{})
	want(t, "finished", e.Counters().Finished, 6)
	want(t, "the last waited for a place", all[5].Scheduled > all[0].Last, true)
}

// A sequence that finds the KV cache full evicts the one that was admitted last,
// which keeps its place in front of those that wait and is computed again.
func TestPreemption(t *testing.T) {
	p := round()
	p.KVTokens = 100
	e := New(p)
	first, second, third := &Request{Prompt: 40, Output: 30}, &Request{Prompt: 50, Output: 20},
		&Request{Prompt: 60, Output: 1}
	for _, r := range []*Request{first, second, third} {
		e.Arrive(0, r)
	}
	run(t, e, 300*ms)
	want(t, "preemptions", e.Counters().Preemptions, 1)
	want(t, "of the second", second.Preempted, 1)
	want(t, "its tokens are kept", second.Generated > 0 && !second.Ended(), true)
	want(t, "the first goes on", first.Generated > second.Generated, true)
	want(t, "gauges", e.Gauges(), Gauges{Running: 1, Waiting: 2, KVUsage: float64(40+first.Generated) / 100})
	want(t, "prompt tokens not computed, with what it had generated", e.Backlog(), 50+second.Generated+60)
	scheduled := second.Scheduled

	run(t, e, time.Hour)
	want(t, "admitted for the first time", second.Scheduled, scheduled)
	want(t, "it comes back when the first is done, before the third",
		second.Last < third.First && second.Last > first.Last, true)
	want(t, "prompt tokens count once", e.Counters().PromptTokens, 150)
	want(t, "tokens generated", e.Counters().GenerationTokens, 51)
	want(t, "finished", e.Counters().Finished, 3)
	want(t, "KV cache in the end", e.Gauges().KVUsage, 0)
}

// A prompt waits for room, and nobody overtakes it.
func TestAPromptWaitsForTheKVCache(t *testing.T) {
	p := round()
	p.KVTokens = 100
	e := New(p)
	e.Arrive(0, &Request{Prompt: 60, Output: 3})
	large, small := &Request{Prompt: 90, Output: 1}, &Request{Prompt: 5, Output: 1}
	e.Arrive(0, large)
	e.Arrive(0, small)
	next, _ := e.Next()
	e.Step(next)
	want(t, "gauges", e.Gauges(), Gauges{Running: 1, Waiting: 2, KVUsage: 0.61})
	run(t, e, time.Hour)
	want(t, "in order", small.Scheduled >= large.Scheduled, true)
	want(t, "preemptions", e.Counters().Preemptions, 0)
}

func TestSpeed(t *testing.T) {
	e := New(round())
	r := &Request{Prompt: 90, Output: 2} // 100 ms, then 11
	e.Arrive(0, r)
	e.SetSpeed(50*ms, 0.5)
	next, _ := e.Next()
	want(t, "end of the iteration of which half was left", next, 150*ms)
	e.SetSpeed(100*ms, 0)
	_, ok := e.Next()
	want(t, "a step while it stands still", ok, false)
	e.SetSpeed(time.Second, 2)
	next, ok = e.Next()
	want(t, "a step when it goes on", ok, true)
	want(t, "end of the quarter that was left", next, time.Second+12500*time.Microsecond)
	e.Step(next)
	run(t, e, time.Hour)
	want(t, "the next iteration at twice the speed", r.Gap, 5500*time.Microsecond)
}

func TestAbort(t *testing.T) {
	p := round()
	p.MaxSequences = 2
	e := New(p)
	var r [4]*Request
	for i := range r {
		r[i] = &Request{Prompt: 10, Output: 5}
		e.Arrive(0, r[i])
	}
	e.Step(20 * ms)
	e.Abort(r[3]) // waits
	want(t, "in flight when one that waits is gone", e.InFlight(), 3)
	e.Abort(r[0]) // runs
	want(t, "tokens before", r[0].Generated, 1)
	next, _ := e.Next()
	e.Step(next)
	want(t, "tokens of the one that is gone", r[0].Generated, 1)
	want(t, "its place is taken", e.Gauges(), Gauges{Running: 2, KVUsage: (11 + 10) / 1000.0})
	run(t, e, time.Hour)
	e.Abort(r[1]) // is done
	c := e.Counters()
	want(t, "aborted", c.Aborted, 2)
	want(t, "finished", c.Finished, 2)
	want(t, "KV cache in the end", e.Gauges(), Gauges{})
}

// What an engine completes when it never lacks work: each request costs the prompt
// tokens that are not cached, its part of the iterations that it is in, and what its
// own tokens add to them.
func TestThroughput(t *testing.T) {
	p := Defaults()
	const prompt, mean = 1000, 200
	for _, cached := range []int{0, 500} {
		random := rand.New(rand.NewPCG(1, 1))
		var seconds, requests float64
		got := p.Throughput(func() (int, int, int) {
			output := 1 + random.IntN(2*mean)
			decoded := float64(output - 1)
			requests++
			seconds += (prompt-float64(cached))/p.PrefillRate +
				float64(output)*p.Iteration.Seconds()/float64(p.MaxSequences) +
				decoded*(p.Sequence.Seconds()+(prompt+float64(output)/2)*p.Context.Seconds())
			return prompt, cached, output
		})
		if want := requests / seconds; math.Abs(got/want-1) > 0.02 {
			t.Errorf("%d tokens cached: %.3f requests per second, want %.3f", cached, got, want)
		}
	}
}

func TestWorkIsThePromptsAndAPartForEachInFlight(t *testing.T) {
	e := New(Defaults())
	e.Arrive(0, &Request{Prompt: 6000, Output: 10})
	e.Arrive(0, &Request{Prompt: 11_000, Cached: 2000, Output: 10})
	if got, want := e.Work(200), 9000.0/12_000+2*100*120e-6; math.Abs(got-want) > 1e-12 {
		t.Errorf("work %v s, want %v", got, want)
	}
	e.SetSpeed(0, 0.5)
	if got, want := e.Work(0), 2*9000.0/12_000; math.Abs(got-want) > 1e-12 {
		t.Errorf("work %v s at half the speed, want %v", got, want)
	}
	idle := New(Defaults())
	idle.SetSpeed(0, 0)
	want(t, "work of one that stands still", idle.Work(200), math.Inf(1))
}

// Whatever arrives and leaves: everything ends, in time, and all sums agree.
func TestNothingGetsLost(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		p := Params{
			Iteration: time.Duration(1+random.IntN(20)) * ms,
			Sequence:  time.Duration(random.IntN(1000)) * time.Microsecond,
			Context:   time.Duration(random.IntN(20)), PrefillRate: 100 + 10_000*random.Float64(),
			TokenBudget: 1 + random.IntN(300), MaxSequences: 1 + random.IntN(20), KVTokens: 300 + random.IntN(1000),
		}
		e := New(p)
		var now, last time.Duration
		var all, aborted []*Request
		var done int
		for range 300 {
			now += time.Duration(random.ExpFloat64() * float64(30*ms))
			for next, ok := e.Next(); ok && next <= now; next, ok = e.Next() {
				done += len(e.Step(next))
				last = next
				check(t, e, seed)
			}
			now = max(now, last)
			switch r := random.IntN(20); {
			case r == 0 && len(all) > 0:
				r := all[random.IntN(len(all))]
				e.Abort(r)
				aborted = append(aborted, r)
			case r == 1:
				e.SetSpeed(now, 0.1+2*random.Float64())
			default:
				prompt := 1 + random.IntN(250)
				all = append(all, &Request{Prompt: prompt, Cached: random.IntN(prompt), Output: 1 + random.IntN(50)})
				e.Arrive(now, all[len(all)-1])
			}
		}
		for next, ok := e.Next(); ok; next, ok = e.Next() {
			done += len(e.Step(next))
			check(t, e, seed)
		}
		tokens := 0
		for _, r := range all {
			tokens += r.Generated
			if !r.Ended() && !slices.Contains(aborted, r) {
				t.Fatalf("seed %d: %+v did not end", seed, r)
			}
		}
		c := e.Counters()
		want(t, "finished", c.Finished, done)
		want(t, "finished and aborted", c.Finished+c.Aborted, len(all))
		want(t, "tokens generated", c.GenerationTokens, tokens)
		want(t, "KV cache in the end", e.used, 0)
		want(t, "busy in the end", e.Busy(), false)
	}
}

// check holds an engine to its invariants.
func check(t *testing.T, e *Engine, seed uint64) {
	t.Helper()
	used, granted := 0, 0
	for _, r := range e.running {
		used += r.held
		granted += r.granted
		if r.held != r.Prompt+r.Generated || r.place != running {
			t.Fatalf("seed %d: %+v runs", seed, r)
		}
	}
	if used != e.used || used > e.p.KVTokens || granted > e.p.TokenBudget || len(e.running) > e.p.MaxSequences ||
		e.Busy() != (len(e.running) > 0) || e.Busy() && granted == 0 {
		t.Fatalf("seed %d: %d tokens held, %d counted; %d of %d granted to %d sequences", seed, used, e.used, granted,
			e.p.TokenBudget, len(e.running))
	}
}

func TestConstantsThatMakeNoSense(t *testing.T) {
	if err := Defaults().Check(); err != nil {
		t.Errorf("the defaults: %v", err)
	}
	for _, c := range []struct {
		change func(*Params)
		says   string
	}{
		{func(p *Params) { p.Iteration = 0 }, "iteration 0s: 100µs to 1m0s"},
		{func(p *Params) { p.Sequence = -1 }, "time of a sequence -1ns"},
		{func(p *Params) { p.Context = time.Second }, "time of a token of context 1s"},
		{func(p *Params) { p.PrefillRate = math.NaN() }, "prefill rate NaN"},
		{func(p *Params) { p.TokenBudget = 0 }, "token budget 0: one for each of the 128 sequences"},
		{func(p *Params) { p.MaxSequences = -1 }, "sequences -1: 1 to"},
		{func(p *Params) { p.KVTokens = 0 }, "tokens of the KV cache 0: 1 to"},
	} {
		p := Defaults()
		c.change(&p)
		if err := p.Check(); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("error = %v, want it to say %q", err, c.says)
		}
	}
}

// go test -run '^$' -bench . ./sim/engine
func BenchmarkIteration(b *testing.B) {
	e := New(Defaults())
	var now time.Duration
	for b.Loop() {
		for e.InFlight() < 70 {
			e.Arrive(now, &Request{Prompt: 1155, Output: 211})
		}
		now, _ = e.Next()
		e.Step(now)
	}
}
