package history

import (
	"slices"
	"sync"
	"time"

	"steelyard/xds/envoyspec"
)

// A Decided is what a decision gave each endpoint, as far as the served shares are compared with it. The lists go
// together by index.
type Decided struct {
	Addresses   []string // sorted
	Shares      []float64
	Flagged     []bool
	Unused      []bool  // the Envoys send it nothing, whatever its share
	ArrivalRate float64 // requests per second
}

// decided adds up what was decided since the last tick, each decision for as long as it was in force, weighed by the
// arrivals of that time. The loop of the cluster writes and the recorder reads.
type decided struct {
	mu        sync.Mutex
	addresses []string
	shares    []float64 // in force, as Envoys follow them
	sums      []float64
	weight    float64 // of the sums
	since     time.Time
	rate      float64
}

// pushed takes in a decision that was sent to the Envoys.
func (d *decided) pushed(at time.Time, n Decided) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.flush(at)
	if !slices.Equal(d.addresses, n.Addresses) {
		d.addresses = slices.Clone(n.Addresses)
		d.sums, d.weight = make([]float64, len(n.Addresses)), 0
	}
	d.shares = append(d.shares[:0], n.Shares...)
	avoidUnused(d.shares, n.Unused)
	avoidFlagged(d.shares, n.Flagged)
	d.since, d.rate = at, n.ArrivalRate
}

// avoidUnused moves the shares of endpoints that the Envoys do not use to the others. That they are not used is an
// incident of its own.
func avoidUnused(shares []float64, unused []bool) {
	var used float64
	for i, share := range shares {
		if !unused[i] {
			used += share
		}
	}
	if used == 0 {
		return
	}
	for i := range shares {
		if unused[i] {
			shares[i] = 0
		} else {
			shares[i] /= used
		}
	}
}

// avoidFlagged moves the shares of flagged endpoints to the others, as Envoy does while enough of them are left.
func avoidFlagged(shares []float64, flagged []bool) {
	var healthy, degraded float64 // shares
	count := 0
	for i, share := range shares {
		if flagged[i] {
			degraded += share
		} else {
			healthy += share
			if share > 0 { // Envoy has no use for one that is drained or ejected
				count++
			}
		}
	}
	if degraded == 0 || count == 0 || healthy == 0 {
		return
	}
	first := min(1, envoyspec.Overprovisioning*float64(count)/float64(len(shares)))
	for i := range shares {
		if flagged[i] {
			shares[i] *= (1 - first) / degraded
		} else {
			shares[i] *= first / healthy
		}
	}
}

// flush adds what is in force until now.
func (d *decided) flush(now time.Time) {
	elapsed := now.Sub(d.since).Seconds()
	if d.since.IsZero() || elapsed <= 0 {
		return
	}
	const idle = 1e-3 // requests per second, so that there is always a weight
	w := elapsed * max(d.rate, idle)
	for i, share := range d.shares {
		d.sums[i] += w * share
	}
	d.weight += w
	d.since = now
}

// mean writes the mean shares since the last call over into, with the addresses; nil while nothing was decided.
func (d *decided) mean(now time.Time, into []float64) (addresses []string, shares []float64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.flush(now)
	if d.weight == 0 {
		return nil, into[:0]
	}
	shares = into[:0]
	for i, sum := range d.sums {
		shares = append(shares, sum/d.weight)
		d.sums[i] = 0
	}
	d.weight = 0
	return d.addresses, shares
}
