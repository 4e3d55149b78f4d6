package trace

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"
)

// A Request is one line of a trace.
type Request struct {
	At             time.Duration // since the first one
	Prompt, Output int32         // tokens, at least 1
}

// A Trace is requests in the order of their arrival, at least two and not all at
// the same moment.
type Trace struct {
	Name     string // as shown: the file, or what was recorded
	Requests []Request
	LeftOut  int // lines without a prompt or without an answer
	// Contents are what each request shares with others; nil where that is not known.
	Contents []Content
}

// A Content is what a request shares with others.
type Content struct {
	// Blocks are hashes of the prompt and the answer, each of all up to the end of a
	// block of BlockTokens.
	Blocks []uint64
	// Ends are the whole blocks up to the end of each message of the prompt.
	Ends []int32
}

// BlockTokens is the size of a block of a Content.
const BlockTokens = 128

// Span is the time from the first request to the last.
func (t *Trace) Span() time.Duration { return t.Requests[len(t.Requests)-1].At }

// Gap is the mean time between two requests.
func (t *Trace) Gap() time.Duration { return t.Span() / time.Duration(len(t.Requests)-1) }

// Means are the mean tokens of the prompts and of the answers.
func (t *Trace) Means() (prompt, output float64) {
	n := float64(len(t.Requests))
	for _, r := range t.Requests {
		prompt += float64(r.Prompt) / n
		output += float64(r.Output) / n
	}
	return prompt, output
}

// Largest is the request with the most tokens.
func (t *Trace) Largest() Request {
	return slices.MaxFunc(t.Requests, func(a, b Request) int {
		return cmp.Compare(a.Prompt+a.Output, b.Prompt+b.Output)
	})
}

// Rounded is what all times between requests are whole multiples of, but for some milliseconds, if that is whole
// seconds: then requests that arrived within as much seem to arrive at the same moment. 0 otherwise.
func (t *Trace) Rounded() time.Duration {
	var step time.Duration
	for _, r := range t.Requests {
		whole := r.At.Round(time.Second)
		if (r.At - whole).Abs() > jitter {
			return 0
		}
		for a := whole; a != 0; { // greatest common divisor
			step, a = a, step%a
		}
	}
	return step
}

// jitter is how far times that were rounded may be from whole seconds: Mooncake's are up to 3 ms from multiples of 3 s.
const jitter = 5 * time.Millisecond

// Spread is the trace with every request at a random moment of what its time was
// rounded to; the trace itself where times are not rounded.
func (t *Trace) Spread(random *rand.Rand) *Trace {
	step := t.Rounded()
	if step == 0 {
		return t
	}
	spread := *t
	spread.Requests = slices.Clone(t.Requests)
	for i := range spread.Requests {
		spread.Requests[i].At += time.Duration(random.Int64N(int64(step)))
	}
	slices.SortStableFunc(spread.Requests, func(a, b Request) int { return cmp.Compare(a.At, b.At) })
	first := spread.Requests[0].At
	for i := range spread.Requests {
		spread.Requests[i].At -= first
	}
	return &spread
}
