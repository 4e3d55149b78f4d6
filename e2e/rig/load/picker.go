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

// LeastMeasured is a Picker that looks at all targets for every request and takes the
// one of the least measure, any of them where they are several.
type LeastMeasured struct {
	mu      sync.Mutex
	out     []int
	measure func(target, out int) float64
	ties    *rand.Rand
}

// NewLeastMeasured makes a picker for this many targets. The measure is not called concurrently; out is the number of
// requests that were sent to the target and have not ended. Choices among equals depend on the seed.
func NewLeastMeasured(targets int, measure func(target, out int) float64, seed uint64) *LeastMeasured {
	return &LeastMeasured{out: make([]int, targets), measure: measure, ties: rand.New(rand.NewPCG(seed, 4))}
}

// NewLeastLoaded makes a picker that sends every request to the target with the fewest requests out for its capacity,
// any positive scale: one queue's view of the whole pool, which no balancer can better that has to decide at arrival
// and does not know how long a request will take.
func NewLeastLoaded(capacities []float64, seed uint64) *LeastMeasured {
	return NewLeastMeasured(len(capacities), func(target, out int) float64 {
		return float64(out+1) / capacities[target]
	}, seed)
}

// Pick implements Picker.
func (l *LeastMeasured) Pick() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	best, least, equals := 0, 0.0, 0
	for i, out := range l.out {
		switch m := l.measure(i, out); {
		case equals == 0 || m < least:
			best, least, equals = i, m, 1
		case m == least:
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
func (l *LeastMeasured) Done(target int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.out[target]--
}
