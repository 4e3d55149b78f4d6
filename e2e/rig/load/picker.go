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
	best := leastOf(len(l.out), l.ties, func(i int) float64 { return float64(l.out[i]+1) / l.capacities[i] })
	l.out[best]++
	return best
}

// Done implements Picker.
func (l *LeastLoaded) Done(target int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.out[target]--
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

// Pick implements Picker.
func (l *LeastMeasured) Pick() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	best := leastOf(len(l.out), l.ties, func(i int) float64 { return l.measure(i, l.out[i]) })
	l.out[best]++
	return best
}

// Done implements Picker.
func (l *LeastMeasured) Done(target int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.out[target]--
}

// leastOf returns the index, of n, with the least measure; of several, any.
func leastOf(n int, ties *rand.Rand, measure func(i int) float64) int {
	best, least, equals := 0, 0.0, 0
	for i := range n {
		switch m := measure(i); {
		case equals == 0 || m < least:
			best, least, equals = i, m, 1
		case m == least:
			// Each of k equals is kept with a chance of 1/k.
			if equals++; ties.IntN(equals) == 0 {
				best = i
			}
		}
	}
	return best
}
