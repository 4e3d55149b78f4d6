package weighting_test

import (
	"fmt"
	"time"

	"steelyard/weighting"
)

// Three engines that batch continuously. Neither the one with the fewest requests nor the one that was sent the fewest
// is the best place for the next request, but the one with the least work.
func Example_work() {
	law := weighting.NewLaw(weighting.DefaultParams())
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	engines := []*engine{{address: "a", inFlight: 11}, {address: "b", inFlight: 12}, {address: "c", inFlight: 20}}
	step := func(at time.Duration) {
		now := start.Add(at)
		decision := law.Step(now, snapshot(engines, now))
		if w := decision.Work; w != nil {
			fmt.Printf("at %v: a request has %.0f prompt tokens (%.2f a byte) and %.0f of output; %.0f tokens/s, "+
				"%.0f ms an iteration\n",
				at, w.PromptTokens, w.TokensPerByte, w.OutputTokens, w.PrefillRate, 1000*w.Iteration)
			for _, e := range decision.Endpoints {
				fmt.Printf("  %s: %2.0f in flight, %4.0f tokens outstanding, %.3f s of work, share %.3f\n",
					e.Address, e.Load, e.Work.PromptTokens, e.Work.Seconds, e.Share)
			}
		}
	}

	// Ten seconds from one scrape to the next, in which each engine computed the prompts of 40 requests of 4,000
	// bytes, 40,000 tokens, and generated 8,000 tokens in 240 iterations, without a pause. Learned from that:
	//
	//	a request     1,000 prompt tokens, 0.25 for each byte, and 200 tokens of output
	//	one that runs 1.5 · 200 / 2 = 150 prompt tokens: half of its output is left, a token of which costs 1.5
	//	a mean one    1,000 + 150 = 1,150 prompt tokens: the unit of load
	//	the cost      10 s = 240 iterations · 20 ms + (40,000 + 1.5 · 8,000) tokens / 10,000 tokens/s
	//
	// What an engine did is counted from the end of an iteration on, which the scrape before shows by a token.
	for _, e := range engines {
		e.scrape(start.Add(-time.Second))
	}
	step(-time.Second)
	for _, e := range engines {
		e.computed(start, 0, 0, 1, 1)
	}
	step(0)
	for _, e := range engines {
		e.computed(start.Add(10*time.Second), 40, 40_000, 8000, 240)
		e.begun(40, 40*4000)
	}
	step(10 * time.Second)

	// A request of 16,000 bytes begins at a, and two of 2,000 at b:
	//
	//	a   16,000 · 0.25 = 4,000 tokens    4,000 + 12 · 150 = 5,800    0.580 s    5.043 mean requests
	//	b    4,000 · 0.25 = 1,000 tokens    1,000 + 14 · 150 = 3,100    0.310 s    2.696
	//	c                       0 tokens        0 + 20 · 150 = 3,000    0.300 s    2.609
	//
	// One request is to be placed before the next push. Filled up to a level L, (L − 2.696) + (L − 2.609) = 1, so
	// L = 3.152: b gets 3.152 − 2.696 = 0.457 of it and c 0.543, less a thousandth for the floor, of which a gets a
	// third.
	engines[0].begun(1, 16_000)
	engines[0].inFlight++
	engines[1].begun(2, 4000)
	engines[1].inFlight += 2
	step(10*time.Second + 20*time.Millisecond)

	// A quarter of a second later b has computed its 1,000 tokens: by the account, which runs down at two thirds of
	// 10,000 tokens/s. At a 4,000 − 0.25 · 6,667 = 2,333 are left by that. But the scrape shows the first token of that
	// request, so that none is outstanding.
	engines[0].computed(start.Add(10*time.Second+270*time.Millisecond), 1, 4000, 0, 1)
	step(10*time.Second + 270*time.Millisecond)

	// Output:
	// at 10s: a request has 1000 prompt tokens (0.25 a byte) and 200 of output; 10000 tokens/s, 20 ms an iteration
	//   a: 11 in flight,    0 tokens outstanding, 0.165 s of work, share 0.565
	//   b: 12 in flight,    0 tokens outstanding, 0.180 s of work, share 0.435
	//   c: 20 in flight,    0 tokens outstanding, 0.300 s of work, share 0.000
	// at 10.02s: a request has 1000 prompt tokens (0.25 a byte) and 200 of output; 10000 tokens/s, 20 ms an iteration
	//   a: 12 in flight, 4000 tokens outstanding, 0.580 s of work, share 0.000
	//   b: 14 in flight, 1000 tokens outstanding, 0.310 s of work, share 0.456
	//   c: 20 in flight,    0 tokens outstanding, 0.300 s of work, share 0.543
	// at 10.27s: a request has 1025 prompt tokens (0.25 a byte) and 198 of output; 10000 tokens/s, 20 ms an iteration
	//   a: 12 in flight,    0 tokens outstanding, 0.179 s of work, share 0.626
	//   b: 14 in flight,    0 tokens outstanding, 0.208 s of work, share 0.373
	//   c: 20 in flight,    0 tokens outstanding, 0.298 s of work, share 0.000
}

// An engine is what is known of one, from its metrics and from the proxies.
type engine struct {
	address              string
	inFlight             float64
	issued, sizes        float64 // requests, bytes
	scraped              time.Time
	first, prompt        float64
	generated, scheduled float64
}

func (e *engine) scrape(at time.Time) { e.scraped = at }

// computed is what the engine did until a scrape.
func (e *engine) computed(at time.Time, requests, prompt, generated, iterations float64) {
	e.scraped = at
	e.first, e.prompt = e.first+requests, e.prompt+prompt
	e.generated, e.scheduled = e.generated+generated, e.scheduled+iterations
}

// begun is requests that the proxies sent there.
func (e *engine) begun(requests, bytes float64) { e.issued, e.sizes = e.issued+requests, e.sizes+bytes }

func snapshot(engines []*engine, now time.Time) weighting.Snapshot {
	s := weighting.Snapshot{PushDelay: 10 * time.Millisecond, PushPeriod: 30 * time.Millisecond}
	for _, e := range engines {
		read := func(value float64) weighting.Reading { return weighting.Reading{Value: value, At: now} }
		scraped := func(value float64) weighting.Reading { return weighting.Reading{Value: value, At: e.scraped} }
		s.Endpoints = append(s.Endpoints, weighting.Endpoint{
			Address: e.address,
			Server: weighting.ServerReport{
				Queue: scraped(0), Running: scraped(e.inFlight),
				Tokens: weighting.TokenCounts{
					At: e.scraped, First: e.first, Prompt: e.prompt, Generated: e.generated, Iterations: e.scheduled,
				},
			},
			InFlight: read(e.inFlight), Exact: true,
			Proxies: weighting.ProxyReport{
				Issued: read(e.issued), Ended: read(e.issued - e.inFlight), Sized: read(e.issued),
				SizedBytes: read(e.sizes),
			},
		})
	}
	return s
}
