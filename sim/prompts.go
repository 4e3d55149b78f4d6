package sim

import (
	"math"
	"math/rand/v2"

	"steelyard/sim/engine"
	"steelyard/sim/trace"
)

// A prompt is what a request asks of an engine.
type prompt struct {
	prompt, cached, output int
	bytes                  float64  // content-length; 0 where there is none
	blocks                 []uint64 // of the prompt and the answer; nil where its content is not known
	ends                   []int32  // of its messages, in blocks
}

// prompts are the requests of a trace, one after the other, again and again.
type prompts struct {
	*Prompts
	sizes  *rand.Rand
	next   int     // index
	laps   uint64  // of the trace, before this one
	gap    float64 // mean, nanoseconds
	prompt float64 // mean, tokens
	output float64
}

func newPrompts(s *Scenario) *prompts {
	p := &prompts{Prompts: s.Prompts, sizes: source(s.Seed, streamPrompts), gap: float64(s.Prompts.Trace.Gap())}
	p.prompt, p.output = s.Prompts.Trace.Means()
	return p
}

// gaps is the interval before the next request, in mean ones. Where the trace begins
// again it is a mean one.
func (p *prompts) gaps() float64 {
	if p.next == 0 {
		return 1
	}
	r := p.Trace.Requests
	return float64(r[p.next].At-r[p.next-1].At) / p.gap
}

func (p *prompts) take() prompt {
	r := p.Trace.Requests[p.next]
	tokens := int(r.Prompt)
	asked := prompt{
		prompt: tokens, cached: engine.Cached(tokens, p.Cached, p.sizes.Float64()), output: int(r.Output),
		bytes: p.bytes(r),
	}
	if len(p.Trace.Contents) > 0 {
		c := p.Trace.Contents[p.next]
		asked.blocks, asked.ends = p.again(c.Blocks), c.Ends
	}
	if p.next++; p.next == len(p.Trace.Requests) {
		p.next = 0
		p.laps++
	}
	return asked
}

// again is blocks as they are in this lap: the same conversations, about something else.
func (p *prompts) again(blocks []uint64) []uint64 {
	if p.laps == 0 {
		return blocks
	}
	other := make([]uint64, len(blocks))
	for i, b := range blocks {
		other[i] = scrambled(b + p.laps)
	}
	return other
}

func (p *prompts) bytes(r trace.Request) float64 {
	spread := max(0, p.BytesSpread)
	each := p.BytesPerToken * math.Exp(spread*p.sizes.NormFloat64()-spread*spread/2)
	if p.sizes.Float64() < p.Chunked {
		return 0
	}
	return math.Ceil(each * float64(r.Prompt))
}
