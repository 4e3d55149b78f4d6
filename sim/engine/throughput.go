package engine

import "time"

// Throughput is the requests per second that an engine completes while it never
// lacks work: after it has filled up, over ten minutes or twenty thousand requests,
// whichever is less, and over ten times as many as it runs at once at least. next gives
// the sizes of the requests, which must fit. Nothing is found in a cache but what next
// says.
func (p Params) Throughput(next func() (prompt, cached, output int)) float64 {
	const enough, many = 10 * time.Minute, 20_000
	p.CacheTokens = 0
	e := New(p)
	var now, began time.Duration
	for done, full := 0, 0; ; {
		for e.Queued() <= p.MaxSequences { // more than one iteration admits
			prompt, cached, output := next()
			e.Arrive(now, &Request{Prompt: prompt, Cached: cached, Output: output})
		}
		now, _ = e.Next()
		done += len(e.Step(now))
		switch {
		case full == 0 && done >= p.MaxSequences:
			full, began = done, now
		case full > 0 && (now-began >= enough || done-full >= many) && done-full >= 10*p.MaxSequences:
			return float64(done-full) / (now - began).Seconds()
		}
	}
}
