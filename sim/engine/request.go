package engine

import (
	"math"
	"time"
)

// A Request is a prompt and what is generated after it. The caller sets the sizes;
// the rest is the engine's to write. All times are since the same start as those
// that the engine is called with.
type Request struct {
	ID int32 // the caller's

	Prompt int // tokens, at least 1
	Cached int // tokens of the prompt in the prefix cache, fewer than Prompt
	Output int // tokens to generate, at least 1
	// Blocks are hashes of the prompt and the answer, each up to the end of a block of
	// CacheBlock tokens. An engine with a cache finds Cached by them.
	Blocks []uint64

	Arrived   time.Duration
	Scheduled time.Duration // admitted for the first time
	First     time.Duration // the first token
	Last      time.Duration // the newest token
	Gap       time.Duration // between the two newest tokens
	Generated int           // tokens so far
	Preempted int           // times

	place    place
	computed int // tokens of context in the KV cache, or cached
	granted  int // tokens to compute in this iteration
	held     int // tokens of KV cache
}

type place uint8

const (
	outside place = iota
	waiting
	running
	leaving // aborted in the middle of an iteration
)

// Ended reports whether all tokens are generated.
func (r *Request) Ended() bool { return r.Generated == r.Output }

// TimePerOutputToken is the mean time between two tokens; false with fewer than two.
func (r *Request) TimePerOutputToken() (time.Duration, bool) {
	if r.Generated < 2 {
		return 0, false
	}
	return (r.Last - r.First) / time.Duration(r.Generated-1), true
}

// left is how many tokens are to be computed before the next one is generated.
func (r *Request) left() int { return r.Prompt + r.Generated - r.computed }

// decodes reports whether the prompt is computed, and what was generated before an eviction.
func (r *Request) decodes() bool { return r.Generated > 0 && r.left() == 1 }

// Cached is how many tokens of a prompt are in the prefix cache, where a share of all
// prompts is, on average: u^((1 − share)/share) of this one, with u uniform in 0..1.
// They are whole blocks, and never the last token.
func Cached(prompt int, share, u float64) int {
	const block = 16 // tokens, as in vLLM
	if share <= 0 {
		return 0
	}
	tokens := min(int(math.Pow(u, (1-share)/share)*float64(prompt)), prompt-1)
	return tokens - tokens%block
}
