package engine

import (
	"errors"
	"fmt"
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

	// PromptsFirst is for engines that mix no prompts with sequences that decode, as TGI and SGLang by default: while
	// there are prompts to compute, nothing else is generated.
	PromptsFirst bool

	// CacheTokens is the size of the cache of prompts and answers that are no longer
	// executed, in whole blocks; 0: none, and requests say what of them is cached.
	CacheTokens int
}

// CacheBlock is the tokens that are cached together.
const CacheBlock = 128

// Defaults are about those of a model of 70 billion parameters on four H100.
func Defaults() Params {
	return Params{
		Iteration: 20 * time.Millisecond, Sequence: 120 * time.Microsecond, Context: 15 * time.Nanosecond,
		PrefillRate: 12_000, TokenBudget: 8192, MaxSequences: 128, KVTokens: 400_000,
	}
}

// Check returns all mistakes of the constants; nil if there are none.
func (p Params) Check() error {
	var errs []error
	want := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	const shortest, longest = 100 * time.Microsecond, time.Minute
	const most, mostSequences, mostCache = 1_000_000_000, 10_000, 100_000_000
	want(p.Iteration >= shortest && p.Iteration <= longest, "iteration %v: %v to %v", p.Iteration, shortest, longest)
	want(p.Sequence >= 0 && p.Sequence <= longest, "time of a sequence %v: 0 to %v", p.Sequence, longest)
	want(p.Context >= 0 && p.Context <= time.Millisecond, "time of a token of context %v: 0 to %v", p.Context,
		time.Millisecond)
	want(p.PrefillRate >= 1 && p.PrefillRate <= most, "prefill rate %v: 1 to %d tokens per second", p.PrefillRate, most)
	want(p.MaxSequences >= 1 && p.MaxSequences <= mostSequences, "sequences %d: 1 to %d", p.MaxSequences, mostSequences)
	want(p.TokenBudget >= p.MaxSequences && p.TokenBudget <= most,
		"token budget %d: one for each of the %d sequences to %d", p.TokenBudget, p.MaxSequences, most)
	want(p.KVTokens >= 1 && p.KVTokens <= most, "tokens of the KV cache %d: 1 to %d", p.KVTokens, most)
	want(p.CacheTokens >= 0 && p.CacheTokens <= mostCache, "tokens of the prefix cache %d: 0 to %d", p.CacheTokens,
		mostCache)
	return errors.Join(errs...)
}

// Fits reports whether a request can be executed at all.
func (p Params) Fits(prompt, output int) bool { return prompt+output <= p.KVTokens }
