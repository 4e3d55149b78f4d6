package load

import (
	"math/rand/v2"
	"sync"
)

// A Picker chooses targets at the moment when requests leave, instead of the
// plan's draw in advance. Its methods are called from the requests' goroutines.
type Picker interface {
	// Pick returns the index of a target, where a request begins with the call.
	Pick() int
	// Done is called when the request that Pick sent there has ended.
	Done(target int)
}

// LeastLoaded is a Picker that sees every request and sends each to the target
// with the fewest requests out for its capacity, and to any of them where they
// are several: one queue's view of the whole pool, which no balancer can better
// that has to decide at arrival and does not know how long a request will take.
type LeastLoaded struct {
	mu         sync.Mutex
	capacities []float64
	out        []int
	ties       *rand.Rand
}

// NewLeastLoaded makes a picker for targets with these capacities, any positive
// scale. The seed is that of its choices among equals.
func NewLeastLoaded(capacities []float64, seed uint64) *LeastLoaded {
	return &LeastLoaded{
		capacities: capacities,
		out:        make([]int, len(capacities)),
		ties:       rand.New(rand.NewPCG(seed, 4)),
	}
}

// Pick implements Picker.
func (l *LeastLoaded) Pick() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	best, least, equals := 0, 0.0, 0
	for i, n := range l.out {
		load := float64(n+1) / l.capacities[i]
		switch {
		case equals == 0 || load < least:
			best, least, equals = i, load, 1
		case load == least:
			// Each of k equals is kept with a chance of 1/k.
			if equals++; l.ties.IntN(equals) == 0 {
				best = i
			}
		}
	}
	l.out[best]++
	return best
}

// Done implements Picker.
func (l *LeastLoaded) Done(target int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.out[target]--
}
