package sim

import (
	"math"
	"math/rand/v2"
	"slices"

	"steelyard/xds/envoyspec"
)

// An assignment is what the Envoys were sent: the endpoints and their weights.
type assignment struct {
	weights  []uint32 // by pod; 0 where it is not an endpoint
	shares   []float64
	degraded []bool
	drop     float64
	hosts    [2]hostSet // the healthy and the degraded ones

	// healthyPercent of the picks go to the healthy ones.
	healthyPercent int
}

// A hostSet is one list that a balancer picks from.
type hostSet struct {
	hosts []int32 // pods, in their order
	equal bool    // all of one weight: no scheduler
}

const (
	healthy  = 0
	degraded = 1
)

// settle computes the host sets of the weights and flags.
func (a *assignment) settle() {
	for set := range a.hosts {
		h := &a.hosts[set]
		h.hosts, h.equal = h.hosts[:0], true
		for pod, w := range a.weights {
			if w == 0 || a.degraded[pod] != (set == degraded) {
				continue
			}
			h.equal = h.equal && (len(h.hosts) == 0 || w == a.weights[h.hosts[0]])
			h.hosts = append(h.hosts, int32(pod))
		}
	}
	a.healthyPercent = healthyPercent(len(a.hosts[healthy].hosts), len(a.hosts[degraded].hosts))
}

// healthyPercent is Envoy's split between healthy and degraded hosts of one
// priority, in whole percent: each is worth its part times the overprovisioning
// factor, at most all; where the two together are worth less, both are scaled up;
// the healthy ones are served first.
func healthyPercent(healthy, degraded int) int {
	all := healthy + degraded
	if all == 0 {
		return 100
	}
	worth := func(n int) int { return min(100, 100*envoyspec.Overprovisioning*n/all) }
	total := min(100, worth(healthy)+worth(degraded))
	return min(100, worth(healthy)*100/total)
}

// same reports whether the bytes of the two would be the same to a balancer.
func (a *assignment) same(b *assignment) bool {
	return slices.Equal(a.weights, b.weights) && slices.Equal(a.degraded, b.degraded)
}

func newAssignment(pods int) *assignment {
	return &assignment{
		weights: make([]uint32, pods), shares: make([]float64, pods), degraded: make([]bool, pods),
	}
}

// An envoy is a proxy: workers that pick, and counts of requests that they share.
type envoy struct {
	policy  Balancer
	bias    float64
	active  []int32 // own requests, by pod
	issued  []int32 // requests ever sent, by pod
	workers []worker
	weights []float64 // scratch, by pod
}

// A worker picks by schedulers of its own. They are rebuilt when an assignment
// with other weights comes in. That is put off until it matters, because between two
// requests of an Envoy there may be many assignments: the outcome is the same, as
// a rebuild keeps nothing.
type worker struct {
	seed  uint64
	built *assignment // nil: none yet
	next  [2]uint64   // turn of the hosts of equal weights; outlives rebuilds
	edf   [2]edf
}

func newEnvoy(policy Balancer, bias float64, pods, workers int, seeds *rand.Rand) *envoy {
	e := &envoy{policy: policy, bias: bias, workers: make([]worker, workers)}
	e.active, e.issued, e.weights = make([]int32, pods), make([]int32, pods), make([]float64, pods)
	for i := range e.workers {
		seed := seeds.Uint64()
		e.workers[i] = worker{seed: seed, next: [2]uint64{seed, seed}}
	}
	return e
}

// pick chooses a pod for a request that came to this worker; -1 when there is none.
func (e *envoy) pick(a *assignment, w int, random *rand.Rand) int32 {
	set := healthy
	if a.healthyPercent < 100 && (a.healthyPercent == 0 || random.IntN(100) >= a.healthyPercent) {
		set = degraded
	}
	hosts := &a.hosts[set]
	switch {
	case len(hosts.hosts) == 0:
		return -1
	case e.policy == Random:
		return hosts.hosts[random.IntN(len(hosts.hosts))]
	}
	e.current(a, w)
	k := &e.workers[w]
	switch {
	case !hosts.equal:
		pod := k.edf[set].pick()
		k.edf[set].putBack(e.weight(a, pod))
		return pod
	case e.policy == LeastRequest:
		return e.twoChoices(hosts.hosts, random)
	}
	pod := hosts.hosts[k.next[set]%uint64(len(hosts.hosts))]
	k.next[set]++
	return pod
}

// twoChoices is the less busy of two hosts, by the Envoy's own requests.
func (e *envoy) twoChoices(hosts []int32, random *rand.Rand) int32 {
	first := hosts[random.IntN(len(hosts))]
	second := hosts[random.IntN(len(hosts))]
	if e.active[second] < e.active[first] {
		return second
	}
	return first
}

// moved is to be called before a count of active requests changes, which is part
// of the weights of least request.
func (e *envoy) moved(a *assignment) {
	if e.policy != LeastRequest || e.bias == 0 {
		return
	}
	for w := range e.workers {
		e.current(a, w)
	}
}

// current rebuilds a worker's schedulers if the assignment is new to it.
func (e *envoy) current(a *assignment, w int) {
	k := &e.workers[w]
	if k.built == a {
		return
	}
	k.built = a
	for set := range a.hosts {
		h := &a.hosts[set]
		unused := set == healthy && a.healthyPercent == 0 || set == degraded && a.healthyPercent == 100
		if h.equal || unused {
			continue
		}
		for _, pod := range h.hosts {
			e.weights[pod] = e.weight(a, pod)
		}
		k.edf[set].start(h.hosts, e.weights, uint32(k.seed))
	}
}

// weight is what a pod counts as now.
func (e *envoy) weight(a *assignment, pod int32) float64 {
	weight := float64(a.weights[pod])
	switch {
	case e.policy != LeastRequest || e.bias == 0:
		return weight
	case e.bias == 1:
		return weight / float64(e.active[pod]+1)
	}
	return weight / math.Pow(float64(e.active[pod]+1), e.bias)
}
