package assignment_test

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"steelyard/weighting"
	"steelyard/xds/assignment"
)

// decisions draws decisions as the law makes them: shares that add up to 1, some of them tiny.
var decisions = rapid.Custom(func(t *rapid.T) weighting.Decision {
	n := rapid.IntRange(1, 60).Draw(t, "endpoints")
	zones := rapid.IntRange(1, 4).Draw(t, "zones")
	d := weighting.Decision{DropFraction: rapid.SampledFrom([]float64{0, 0, 0.1, 1}).Draw(t, "drop")}
	sum := 0.0
	for i := range n {
		e := weighting.EndpointDecision{
			Address: fmt.Sprintf("10.0.0.%d:8000", i),
			Zone:    fmt.Sprint(rapid.IntRange(0, zones-1).Draw(t, "zone")),
			Share: rapid.OneOf(rapid.Float64Range(0, 1), rapid.Float64Range(0, 1e-9), rapid.Just(0.5)).
				Draw(t, "share"),
			Overloaded: rapid.Bool().Draw(t, "overloaded"),
		}
		sum += e.Share
		d.Endpoints = append(d.Endpoints, e)
	}
	d.Endpoints[0].Share++
	for i := range d.Endpoints {
		d.Endpoints[i].Share /= sum + 1
	}
	return d
})

func build(t *rapid.T, d weighting.Decision, seed uint64) *endpointv3.ClusterLoadAssignment {
	a, err := new(assignment.Builder).Build("c", d, assignment.Options{}, rand.New(rand.NewPCG(seed, 0)))
	if err != nil {
		t.Fatalf("building: %v", err)
	}
	return a
}

func TestWeightsStayInRange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := build(t, decisions.Draw(t, "decision"), rapid.Uint64().Draw(t, "seed"))
		checkRange(t, a, 1_000, 10_000_000)
	})
}

func TestLargestShareGetsAboutTheLargestWeight(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := build(t, decisions.Draw(t, "decision"), rapid.Uint64().Draw(t, "seed"))
		largest := slices.Max(slices.Collect(maps.Values(weights(a))))
		if largest < 9_600_000 {
			t.Fatalf("the largest weight is %d", largest)
		}
	})
}

func TestOrderOfTheEndpointsDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d, seed := decisions.Draw(t, "decision"), rapid.Uint64().Draw(t, "seed")
		shuffled := d
		shuffled.Endpoints = rapid.Permutation(d.Endpoints).Draw(t, "order")
		if a, b := build(t, d, seed), build(t, shuffled, seed); !proto.Equal(a, b) {
			t.Fatalf("differs:\n%s%s", text(a), text(b))
		}
	})
}

func TestSameRandomSourceGivesTheSameAssignment(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d, seed := decisions.Draw(t, "decision"), rapid.Uint64().Draw(t, "seed")
		if a, b := build(t, d, seed), build(t, d, seed); !proto.Equal(a, b) {
			t.Fatalf("differs:\n%s%s", text(a), text(b))
		}
	})
}

func TestOrderOfTheSharesIsKept(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := decisions.Draw(t, "decision")
		w := weights(build(t, d, rapid.Uint64().Draw(t, "seed")))
		for _, a := range d.Endpoints {
			for _, b := range d.Endpoints {
				if a.Share > 1.05*b.Share && w[a.Address] < w[b.Address] && w[b.Address] > 1_044 {
					t.Fatalf("share %v weighs %d, share %v weighs %d", a.Share, w[a.Address], b.Share, w[b.Address])
				}
			}
		}
	})
}

func TestWeightsFollowTheSharesWithinTheDither(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := decisions.Draw(t, "decision")
		w := weights(build(t, d, rapid.Uint64().Draw(t, "seed")))
		largest := slices.MaxFunc(d.Endpoints, func(a, b weighting.EndpointDecision) int {
			return cmp.Compare(a.Share, b.Share)
		})
		for _, e := range d.Endpoints {
			want := max(e.Share/largest.Share*9_803_921, 1_021.4)
			if got := float64(w[e.Address]); math.Abs(got-want) > 0.021*want+2 {
				t.Fatalf("share %v of %v weighs %v, want %v within 2 %%", e.Share, largest.Share, got, want)
			}
		}
	})
}

func TestDitherIsFreshInEveryAssignment(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := decisions.Draw(t, "decision")
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		first, err := new(assignment.Builder).Build("c", d, assignment.Options{}, rng)
		if err != nil {
			t.Fatalf("building: %v", err)
		}
		d.DropFraction = 0.5
		second, err := new(assignment.Builder).Build("c", d, assignment.Options{Previous: first}, rng)
		if err != nil {
			t.Fatalf("building again: %v", err)
		}
		// At the floor the dither is 43 whole numbers wide, so some of them repeat.
		was, is, same := weights(first), weights(second), 0
		for address, w := range was {
			if w > 10_000 && is[address] == w {
				same++
			}
		}
		if changed := changedWeights(first, second); changed == 0 || same > 2 {
			t.Fatalf("%d weights changed and %d large ones did not", changed, same)
		}
	})
}

// TestDitherDoesNotBiasTheShares asserts that the mean over many assignments is that of the shares, at both ends of
// the range.
func TestDitherDoesNotBiasTheShares(t *testing.T) {
	d := decision(endpoint("10.0.0.1:80", "", 0.9), endpoint("10.0.0.2:80", "", 0.09),
		endpoint("10.0.0.3:80", "", 0.01))
	rng, sums := seeded(), map[string]float64{}
	const rounds = 4000
	for range rounds {
		a, err := new(assignment.Builder).Build("c", d, assignment.Options{}, rng)
		if err != nil {
			t.Fatal(err)
		}
		for address, w := range weights(a) {
			sums[address] += float64(w) / rounds
		}
	}
	// The standard error is 2 % / sqrt(3 * 4000) = 0.02 % of the weight.
	for address, want := range map[string]float64{"10.0.0.1:80": 9_803_921, "10.0.0.2:80": 980_392,
		"10.0.0.3:80": 108_932} {
		if got := sums[address]; got < want*0.999 || got > want*1.001 {
			t.Errorf("%s weighs %.0f on average, want %.0f within 0.1 %%", address, got, want)
		}
	}
}
