package weighting

import (
	"math"
	"time"
)

// Without A_b, ten requests at once have 1.10 of the p99 and 1.44 of the mean of least request, with it 0.77 and 0.92;
// independent requests have the same (docs/design/engines.md).
const (
	burstTau      = 30 * time.Second       // memory: after which a burst counts for 1/e
	shortestBurst = 20 * time.Millisecond  // bound: no decision is between requests within it
	longestBurst  = 200 * time.Millisecond // bound: a decision answers what comes later
	mostTogether  = 8                      // bound on a counter that leaps: arrivals for each endpoint
)

// bursts measures how many requests arrive together. With n the arrivals within one of the windows that follow each
// other,
//
//	A_b = Σ n·(n−1) / Σ n
//
// is how many others arrive within the window of a request. Where requests are independent of one another that is the
// arrival rate times the window, as in the horizon; where they come by forty, it is 39 at any rate. A window without
// arrivals counts in neither sum. More than mostTogether for each endpoint make no difference to the shares, so a
// counter that leaps is forgotten soon.
type bursts struct {
	from         time.Time // of the window
	before       float64   // requests that arrived at the pool until then
	latest       float64   // the same until the last step
	sum, squares float64   // Σ n and Σ n·(n−1), fading
}

// observe takes in the requests that arrived so far at so many endpoints, and the window.
func (b *bursts) observe(now time.Time, arrived float64, endpoints int, window time.Duration) {
	window = min(max(window, shortestBurst), longestBurst)
	if b.from.IsZero() || arrived < b.latest || now.Before(b.from) {
		b.from, b.before, b.latest = now, arrived, arrived
		return
	}
	if passed := now.Sub(b.from); passed >= window {
		n := min(b.latest-b.before, float64(mostTogether*endpoints))
		keep := math.Exp(-passed.Seconds() / burstTau.Seconds())
		b.sum, b.squares = keep*b.sum+n, keep*b.squares+n*max(0, n-1)
		b.from, b.before = b.from.Add(passed-passed%window), b.latest
	}
	b.latest = arrived
}

// together is A_b; 0 until it is of ten requests.
func (b *bursts) together() float64 {
	if b.sum < 10 {
		return 0
	}
	return b.squares / b.sum
}
