package sim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"steelyard/xds/envoyspec"
)

func want[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s = %v, want %v", what, got, want)
	}
}

func wantNear(t *testing.T, what string, got, want, tolerance float64) {
	t.Helper()
	if !(math.Abs(got-want) <= tolerance*math.Abs(want)) {
		t.Errorf("%s = %.4g, want %.4g within %.3g %%", what, got, want, 100*tolerance)
	}
}

// Emulated first picks are those of a scheduler that started with none.
func TestSchedulerStartsAsIfPicksHadBeenMade(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	for range 300 {
		hosts, weights := someWeights(random, 2+random.IntN(20))
		picks := uint32(random.IntN(5000))
		var s, plain edf
		s.start(hosts, weights, picks)
		plain.start(hosts, weights, 0)
		for range picks {
			plain.putBack(weights[plain.pick()])
		}
		for n := range 3 * len(hosts) {
			a, b := s.pick(), plain.pick()
			if a != b {
				t.Fatalf("weights %v after %d picks: pick %d is %d, want %d", weights, picks, n, a, b)
			}
			s.putBack(weights[a])
			plain.putBack(weights[b])
		}
	}
}

func someWeights(random *rand.Rand, n int) (hosts []int32, weights []float64) {
	for i := range n {
		hosts = append(hosts, int32(i))
		weights = append(weights, float64(10_000+random.IntN(990_000)))
	}
	return hosts, weights
}

func TestSchedulerServesInProportionAndTiesTakeTurns(t *testing.T) {
	var s edf
	s.start([]int32{0, 1, 2}, []float64{1, 1, 2}, 0)
	var order []int32
	for range 8 {
		host := s.pick()
		order = append(order, host)
		s.putBack([]float64{1, 1, 2}[host])
	}
	// Deadlines 1, 1 and a half; at 1 the two that were put in before go first.
	want(t, "picks", fmt.Sprint(order), fmt.Sprint([]int32{2, 0, 1, 2, 2, 0, 1, 2}))
}

// The trap that the dither is for, measured on a real Envoy 1.40 with one worker:
// how far picks are from the intended shares when schedulers are rebuilt after every
// few of them. Total variation distance: 0.5, 0.25 and 0.1 with 1, 4 and 16 picks
// between two vectors that alternate, 0.04, 0.02 and 0.01 with dither.
func TestRebuildSkew(t *testing.T) {
	shares := []float64{0.4, 0.3, 0.2, 0.1}
	bounds, err := envoyspec.BoundsFor(len(shares))
	if err != nil {
		t.Fatal(err)
	}
	dither := rand.New(rand.NewPCG(1, 3))
	for _, v := range []struct {
		name   string
		vector func(push int, weights []uint32)
		least  map[int]float64 // distance, by picks for each rebuild
		most   map[int]float64
	}{
		{"two vectors that alternate", func(push int, w []uint32) {
			copy(w, []uint32{400, 300, 200, 100 + uint32(push%2)})
		}, map[int]float64{1: 0.4, 4: 0.1, 16: 0.02}, map[int]float64{1: 0.7, 4: 0.3, 16: 0.12}},
		{"dithered", func(_ int, w []uint32) { bounds.Weights(w, shares, dither) },
			nil, map[int]float64{1: 0.04, 4: 0.02, 16: 0.01}},
	} {
		for _, picks := range []int{1, 4, 16} {
			distance := rebuildSkew(shares, picks, v.vector)
			t.Logf("%s, %d picks for each rebuild: %.3f", v.name, picks, distance)
			if distance < v.least[picks] || distance > v.most[picks] {
				t.Errorf("%s, %d picks for each rebuild: distance %.3f, want %v to %v", v.name, picks, distance,
					v.least[picks], v.most[picks])
			}
		}
	}
}

// rebuildSkew is the mean distance from the shares over some workers.
func rebuildSkew(shares []float64, picks int, vector func(push int, weights []uint32)) float64 {
	const workers, pushes = 20, 1000
	random := rand.New(rand.NewPCG(7, 7))
	var sum float64
	for range workers {
		e := newEnvoy(RoundRobin, 0, len(shares), 1, random)
		hits := make([]float64, len(shares))
		for push := range pushes {
			a := newAssignment(len(shares))
			vector(push, a.weights)
			a.settle()
			for range picks {
				hits[e.pick(a, 0, random)]++
			}
		}
		for host, n := range hits {
			sum += math.Abs(n/(pushes*float64(picks))-shares[host]) / 2
		}
	}
	return sum / workers
}

func TestUnchangedBytesRebuildNothing(t *testing.T) {
	w := newWorld(ptr(small()), &Policy{Balancer: RoundRobin})
	before := w.groups[0].assignment
	again := w.evenly()
	again.drop = 0.5 // alone, it does not count
	w.groups[0].send(again, 0)
	w.groups[0].receive()
	want(t, "the assignment in force is the one before", w.groups[0].assignment == before, true)
	other := w.evenly()
	other.weights[0]++
	other.drop = 0.5
	other.settle()
	w.groups[0].send(other, 0)
	w.groups[0].receive()
	want(t, "the drop in force", w.groups[0].assignment.drop, 0.5)
}

func ptr[T any](v T) *T { return &v }

// Measured on Envoy 1.40 with four hosts, and for the largest overprovisioning.
func TestHealthyPercent(t *testing.T) {
	for _, c := range []struct{ healthy, degraded, percent int }{
		{4, 0, 100}, {3, 1, 100}, {2, 2, 100}, {1, 3, 100}, {0, 4, 0},
		{1, 19, 50}, {1, 9, 100}, {0, 0, 100},
	} {
		want(t, fmt.Sprintf("percent to %d healthy ones of %d", c.healthy, c.healthy+c.degraded),
			healthyPercent(c.healthy, c.degraded), c.percent)
	}
}

// Degraded hosts get nothing while others are worth all, and everything once all
// are degraded.
func TestDegradedHosts(t *testing.T) {
	for _, policy := range []Balancer{RoundRobin, LeastRequest, Random} {
		for _, c := range []struct {
			flags []bool
			hits  []int
		}{
			{[]bool{true, false, false, false}, []int{0, 1, 1, 1}},
			{[]bool{true, true, true, false}, []int{0, 0, 0, 1}},
			{[]bool{true, true, true, true}, []int{1, 1, 1, 1}},
		} {
			random := rand.New(rand.NewPCG(1, 1))
			e, a := newEnvoy(policy, 1, 4, 2, random), newAssignment(4)
			copy(a.weights, []uint32{10, 20, 20, 30})
			copy(a.degraded, c.flags)
			a.settle()
			hits := make([]int, 4)
			for i := range 400 {
				hits[e.pick(a, i%2, random)] = 1
			}
			want(t, fmt.Sprintf("hosts that %s picks with flags %v", policy, c.flags), fmt.Sprint(hits),
				fmt.Sprint(c.hits))
		}
	}
}

// With equal weights least request is a choice of two by own requests; with
// unequal ones it is the scheduler, on weights that shrink with own requests.
func TestLeastRequest(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	hits := func(bias float64, weights ...uint32) []float64 {
		e, a := newEnvoy(LeastRequest, bias, len(weights), 1, random), newAssignment(len(weights))
		copy(a.weights, weights)
		a.settle()
		e.active[0] = 3 // for ever
		hits := make([]float64, len(weights))
		const picks = 40_000
		for range picks {
			hits[e.pick(a, 0, random)] += 1.0 / picks
		}
		return hits
	}
	wantNear(t, "share of the busier of two by two choices (both have to be it)", hits(1, 5, 5)[0], 0.25, 0.05)
	wantNear(t, "share of the busier of two with bias 1: 1/4 to 1", hits(1, 1_000_000, 1_000_001)[0], 0.2, 0.01)
	wantNear(t, "share of the busier of two with bias 0.5: 1/2 to 1", hits(0.5, 1_000_000, 1_000_001)[0], 1.0/3, 0.01)
	wantNear(t, "share of the busier of two without bias", hits(0, 1_000_000, 1_000_001)[0], 0.5, 0.01)
}

// A rebuild that is put off until a request needs it picks what one at the time of
// the assignment would have.
func TestRebuildsThatArePutOffChangeNothing(t *testing.T) {
	for _, policy := range []Balancer{RoundRobin, LeastRequest} {
		run := func(eager bool) (picked []int32) {
			random := rand.New(rand.NewPCG(4, 4))
			e := newEnvoy(policy, 1, 8, 3, random)
			var open []int32
			a := newAssignment(8)
			for range 3000 {
				switch random.IntN(4) {
				case 0:
					a = newAssignment(8)
					for i := range a.weights {
						a.weights[i] = uint32(10_000 + random.IntN(990_000))
					}
					a.settle()
					for w := 0; eager && w < 3; w++ {
						e.current(a, w)
					}
				case 1:
					if len(open) > 0 {
						e.moved(a)
						e.active[open[0]]--
						open = open[1:]
					}
				default:
					if len(a.hosts[healthy].hosts) == 0 {
						continue
					}
					pod := e.pick(a, random.IntN(3), random)
					e.moved(a)
					e.active[pod]++
					picked, open = append(picked, pod), append(open, pod)
				}
			}
			return picked
		}
		want(t, fmt.Sprintf("%s: the same picks", policy), slices.Equal(run(true), run(false)), true)
	}
}
