package engine

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// Params are the constants of an engine.
type Params struct {
	// Iteration is what every iteration takes, Sequence what each sequence that
	// decodes adds, Context what each token of their context adds.
	Iteration, Sequence, Context time.Duration
	// PrefillRate is prompt tokens per second.
	PrefillRate float64

	TokenBudget  int // tokens of one iteration (max_num_batched_tokens)
	MaxSequences int // running at once (max_num_seqs)
	KVTokens     int // size of the KV cache
}

// Defaults are about those of a model of 70 billion parameters on four H100.
func Defaults() Params {
	return Params{
		Iteration: 20 * time.Millisecond, Sequence: 120 * time.Microsecond, Context: 15 * time.Nanosecond,
		PrefillRate: 12_000, TokenBudget: 8192, MaxSequences: 128, KVTokens: 400_000,
	}
}

// Check says what is wrong with the constants, all of it; nil if nothing.
func (p Params) Check() error {
	var errs []error
	want := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	const longest, most = time.Minute, 1_000_000_000
	want(p.Iteration > 0 && p.Iteration <= longest, "iteration %v: above 0, at most %v", p.Iteration, longest)
	want(p.Sequence >= 0 && p.Sequence <= longest, "time of a sequence %v: 0 to %v", p.Sequence, longest)
	want(p.Context >= 0 && p.Context <= time.Millisecond, "time of a token of context %v: 0 to %v", p.Context, time.Millisecond)
	want(p.PrefillRate > 0 && !math.IsInf(p.PrefillRate, 0), "prefill rate %v: positive and finite", p.PrefillRate)
	for _, n := range []struct {
		what  string
		value int
	}{{"token budget", p.TokenBudget}, {"sequences", p.MaxSequences}, {"tokens of the KV cache", p.KVTokens}} {
		want(n.value >= 1 && n.value <= most, "%s %d: 1 to %d", n.what, n.value, most)
	}
	return errors.Join(errs...)
}

// Fits reports whether a request can be executed at all.
func (p Params) Fits(prompt, output int) bool { return prompt+output <= p.KVTokens }

// Throughput is the requests per second that an engine completes while it never
// lacks work, measured over so many requests or a few more. next gives their sizes,
// which must fit, in the order of their execution.
func (p Params) Throughput(requests int, next func() (prompt, cached, output int)) float64 {
	e := New(p)
	var now, began time.Duration
	done, before := 0, -1 // before: done when the engine was full
	for before < 0 || done-before < requests {
		for e.Queued() <= p.MaxSequences { // more than one iteration admits
			prompt, cached, output := next()
			e.Arrive(now, &Request{Prompt: prompt, Cached: cached, Output: output})
		}
		now, _ = e.Next()
		done += len(e.Step(now))
		if before < 0 && done >= requests/10 {
			before, began = done, now
		}
	}
	return float64(done-before) / (now - began).Seconds()
}
