package assignment_test

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"steelyard/e2e/rig/golden"
	"steelyard/weighting"
	"steelyard/xds/assignment"
)

func seeded() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }

func endpoint(address, zone string, share float64) weighting.EndpointDecision {
	return weighting.EndpointDecision{Address: address, Zone: zone, Share: share}
}

func overloaded(e weighting.EndpointDecision, reason string) weighting.EndpointDecision {
	e.Overloaded, e.OverloadReason = true, reason
	return e
}

func drained(e weighting.EndpointDecision) weighting.EndpointDecision {
	e.Override.Drained = true
	return e
}

func decision(endpoints ...weighting.EndpointDecision) weighting.Decision {
	return weighting.Decision{Endpoints: endpoints}
}

func TestGoldens(t *testing.T) {
	dropping := decision(endpoint("10.0.0.1:8000", "", 0.5), endpoint("10.0.0.2:8000", "", 0.5))
	dropping.DropFraction = 0.123456789
	for name, c := range map[string]struct {
		decision weighting.Decision
		options  assignment.Options
	}{
		"empty": {decision: decision()},
		"one":   {decision: decision(endpoint("10.0.0.1:8000", "", 1))},
		"shares": {decision: decision(endpoint("10.0.0.1:8000", "", 0.6), endpoint("10.0.0.2:8000", "", 0.3),
			endpoint("10.0.0.3:8000", "", 0.1))},
		"below_the_bound": {decision: decision(endpoint("10.0.0.1:8000", "", 0.9999),
			endpoint("10.0.0.2:8000", "", 0.0001))},
		"order": {decision: decision(
			endpoint("10.0.0.10:8000", "b", 0.2), endpoint("10.0.0.9:8000", "b", 0.2),
			endpoint("10.0.0.9:80", "a", 0.2), endpoint("10.0.0.9:443", "a", 0.2), endpoint("10.0.0.1:1", "", 0.2))},
		"ipv6": {decision: decision(endpoint("[2001:db8::2]:8000", "", 0.5), endpoint("[2001:0db8:0::1]:8000", "", 0.3),
			endpoint("10.0.0.1:8000", "", 0.2))},
		"overloaded": {decision: decision(
			overloaded(endpoint("10.0.0.1:8000", "", 0.1), "queue"),
			overloaded(endpoint("10.0.0.2:8000", "", 0.1), ""), endpoint("10.0.0.3:8000", "", 0.8))},
		"drained": {decision: decision(drained(overloaded(endpoint("10.0.0.1:8000", "", 0), "queue")),
			endpoint("10.0.0.2:8000", "", 1))},
		"drop": {decision: dropping},
		"stale_after": {decision: decision(endpoint("10.0.0.1:8000", "", 1)),
			options: assignment.Options{EndpointStaleAfter: 3500 * time.Millisecond}},
	} {
		t.Run(name, func(t *testing.T) {
			a, err := new(assignment.Builder).Build("llama", c.decision, c.options, seeded())
			if err != nil {
				t.Fatal(err)
			}
			if err := a.ValidateAll(); err != nil {
				t.Errorf("breaks the rules of the protocol: %v", err)
			}
			golden.Check(t, filepath.Join("testdata", name+".golden"), text(a))
		})
	}
}

func TestRefusesWhatEnvoyWouldRefuseOrMisread(t *testing.T) {
	share := func(v float64) weighting.Decision { return decision(endpoint("10.0.0.1:80", "", v)) }
	drop := func(v float64) weighting.Decision {
		d := share(1)
		d.DropFraction = v
		return d
	}
	for name, c := range map[string]struct {
		cluster  string
		decision weighting.Decision
		options  assignment.Options
		want     string
	}{
		"no cluster name": {cluster: "", decision: share(1), want: "no name"},
		"host name":       {cluster: "c", decision: decision(endpoint("gpu-1:80", "", 1)), want: `"gpu-1:80"`},
		"no port": {cluster: "c", decision: decision(endpoint("10.0.0.1", "", 1)),
			want: "write IP:PORT"},
		"port zero":             {cluster: "c", decision: decision(endpoint("10.0.0.1:0", "", 1)), want: "port 0"},
		"port too large":        {cluster: "c", decision: decision(endpoint("10.0.0.1:65536", "", 1)), want: "65536"},
		"IPv6 without brackets": {cluster: "c", decision: decision(endpoint("::1:80", "", 1)), want: "[IP]:PORT"},
		"IPv6 with a zone": {cluster: "c", decision: decision(endpoint("[fe80::1%eth0]:80", "", 1)),
			want: "IPv6 zone"},
		"address twice": {cluster: "c",
			decision: decision(endpoint("[::1]:80", "", .5), endpoint("[0::1]:80", "b", .5)), want: "twice"},
		"share NaN":         {cluster: "c", decision: share(math.NaN()), want: "share NaN"},
		"share infinite":    {cluster: "c", decision: share(math.Inf(1)), want: "share +Inf"},
		"share negative":    {cluster: "c", decision: share(-0.1), want: "share -0.1"},
		"no positive share": {cluster: "c", decision: share(0), want: "positive share"},
		"drop NaN":          {cluster: "c", decision: drop(math.NaN()), want: "drop fraction NaN"},
		"drop above one":    {cluster: "c", decision: drop(1.5), want: "drop fraction 1.5"},
		"drop negative":     {cluster: "c", decision: drop(-0.5), want: "drop fraction -0.5"},
		"stale time is negative": {cluster: "c", decision: share(1),
			options: assignment.Options{EndpointStaleAfter: -1}, want: "endpoint_stale_after"},
	} {
		t.Run(name, func(t *testing.T) {
			a, err := new(assignment.Builder).Build(c.cluster, c.decision, c.options, seeded())
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
			if a != nil {
				t.Error("there is a message in addition to the error")
			}
		})
	}
}

func TestDropsOfLessThanAMillionthAreLeftOut(t *testing.T) {
	for drop, want := range map[float64]int{0: 0, 1e-9: 0, 4e-7: 0, 6e-7: 1, 0.5: 1, 1: 1} {
		d := decision(endpoint("10.0.0.1:80", "", 1))
		d.DropFraction = drop
		a, err := new(assignment.Builder).Build("c", d, assignment.Options{}, seeded())
		if err != nil {
			t.Fatal(err)
		}
		if got := len(a.GetPolicy().GetDropOverloads()); got != want {
			t.Errorf("drop %v has %d categories, want %d", drop, got, want)
		}
	}
}

func TestOverloadReasonIsShortAndValid(t *testing.T) {
	reason := strings.Repeat("ü", 100) + "\xff"
	a, err := new(assignment.Builder).Build("c", decision(overloaded(endpoint("10.0.0.1:80", "", 1), reason)),
		assignment.Options{}, seeded())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := proto.Marshal(a); err != nil {
		t.Errorf("cannot be marshalled: %v", err)
	}
	e := a.GetEndpoints()[0].GetLbEndpoints()[0]
	got := e.GetMetadata().GetFilterMetadata()[assignment.MetadataNamespace].GetFields()["reason"].GetStringValue()
	if want := strings.Repeat("ü", 48); got != want {
		t.Errorf("reason %q, want %q", got, want)
	}
}

// Envoy acknowledges a new drop policy and ignores it unless a weight changes in the same message.
func TestAWeightAlwaysChanges(t *testing.T) {
	d := decision(endpoint("10.0.0.1:80", "", 1))
	for _, c := range []struct {
		name      string
		endpoints []weighting.EndpointDecision
	}{
		{"one endpoint", []weighting.EndpointDecision{endpoint("10.0.0.1:80", "", 1)}},
		{"two zones", []weighting.EndpointDecision{endpoint("10.0.0.1:80", "a", 0.5),
			endpoint("10.0.0.2:80", "b", 0.5)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d.Endpoints, d.DropFraction = c.endpoints, 0
			before, err := new(assignment.Builder).Build("c", d, assignment.Options{}, seeded())
			if err != nil {
				t.Fatal(err)
			}
			d.DropFraction = 0.25
			// The worst case: the same random numbers again.
			after, err := new(assignment.Builder).Build("c", d, assignment.Options{Previous: before}, seeded())
			if err != nil {
				t.Fatal(err)
			}
			if changed := changedWeights(before, after); changed != 1 {
				t.Errorf("%d weights changed, want 1:\n%s%s", changed, text(before), text(after))
			}
			if got := after.GetPolicy().GetDropOverloads()[0].GetDropPercentage().GetNumerator(); got != 250_000 {
				t.Errorf("drops %d millionths, want 250000", got)
			}
		})
	}
}

func TestPreviousDoesNotMatterWhenTheWeightsDifferAnyway(t *testing.T) {
	d := decision(endpoint("10.0.0.1:80", "", 0.4), endpoint("10.0.0.2:80", "", 0.6))
	plain, err := new(assignment.Builder).Build("c", d, assignment.Options{}, seeded())
	if err != nil {
		t.Fatal(err)
	}
	other := decision(endpoint("10.0.0.1:80", "", 1))
	for name, previous := range map[string]weighting.Decision{"fewer endpoints": other, "none": decision(),
		"other weights": decision(endpoint("10.0.0.1:80", "", 0.6), endpoint("10.0.0.2:80", "", 0.4))} {
		t.Run(name, func(t *testing.T) {
			p, err := new(assignment.Builder).Build("c", previous, assignment.Options{}, seeded())
			if err != nil {
				t.Fatal(err)
			}
			got, err := new(assignment.Builder).Build("c", d, assignment.Options{Previous: p}, seeded())
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(text(plain), text(got)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func changedWeights(a, b *endpointv3.ClusterLoadAssignment) int {
	was, is, n := weights(a), weights(b), 0
	for address, w := range is {
		if was[address] != w {
			n++
		}
	}
	return n
}

func weights(m *endpointv3.ClusterLoadAssignment) map[string]uint32 {
	out := make(map[string]uint32)
	for _, l := range m.GetEndpoints() {
		for _, e := range l.GetLbEndpoints() {
			out[address(e)] = e.GetLoadBalancingWeight().GetValue()
		}
	}
	return out
}

func TestRangeShrinksWhenALocalityIsTooLargeForItsSum(t *testing.T) {
	for _, c := range []struct {
		name     string
		zones    []int // endpoints in each
		min, max uint32
	}{
		{"the most that fits", []int{429}, 1_000, 10_000_000},
		{"one more", []int{430}, 998, 9_988_296},
		{"a thousand", []int{1000}, 429, 4_294_967},
		{"a hundred times as many", []int{42_950}, 9, 99_999},
		{"many, but in two zones", []int{429, 429}, 1_000, 10_000_000},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := pool(c.zones)
			for i := range len(d.Endpoints) / 10 { // so that both ends of the range are met
				d.Endpoints[i].Share = 0
			}
			a, err := new(assignment.Builder).Build("c", d, assignment.Options{}, seeded())
			if err != nil {
				t.Fatal(err)
			}
			checkRange(t, a, c.min, c.max)
			w := slices.Collect(maps.Values(weights(a)))
			if smallest, largest := slices.Min(w), slices.Max(w); float64(smallest) > 1.01*float64(c.min)+1 ||
				float64(largest) < 0.99*float64(c.max) {
				t.Errorf("weights of %d..%d, want nearly all of %d..%d", smallest, largest, c.min, c.max)
			}
		})
	}
}

// pool has as many endpoints in each zone as asked for, all of one share.
func pool(zones []int) weighting.Decision {
	var d weighting.Decision
	for zone, n := range zones {
		for i := range n {
			d.Endpoints = append(d.Endpoints,
				endpoint(fmt.Sprintf("10.%d.%d.%d:80", zone, i/256, i%256), fmt.Sprint(zone), 1))
		}
	}
	for i := range d.Endpoints {
		d.Endpoints[i].Share = 1 / float64(len(d.Endpoints))
	}
	return d
}

// fataler is a *testing.T or a *rapid.T.
type fataler interface{ Fatalf(string, ...any) }

// checkRange asserts the bounds of each weight and those of the sums that Envoy makes.
func checkRange(t fataler, a *endpointv3.ClusterLoadAssignment, low, high uint32) {
	var localities uint64
	for _, l := range a.GetEndpoints() {
		var sum uint64
		for _, e := range l.GetLbEndpoints() {
			w := e.GetLoadBalancingWeight().GetValue()
			if w < low || w > high {
				t.Fatalf("%s weighs %d, outside of %d..%d", address(e), w, low, high)
			}
			sum += uint64(w)
		}
		if sum > math.MaxUint32 {
			t.Fatalf("the weights of zone %q add up to %d", l.GetLocality().GetZone(), sum)
		}
		localities += uint64(l.GetLoadBalancingWeight().GetValue())
	}
	if localities > math.MaxUint32 {
		t.Fatalf("the weights of the localities add up to %d", localities)
	}
}

// BenchmarkBuild builds for unchanged endpoints, which is the usual case, and for new ones.
func BenchmarkBuild(b *testing.B) {
	for _, same := range []bool{true, false} {
		b.Run(map[bool]string{true: "same endpoints", false: "new endpoints"}[same], func(b *testing.B) {
			d, rng := pool([]int{1000}), seeded()
			var builder assignment.Builder
			var previous *endpointv3.ClusterLoadAssignment
			b.ReportAllocs()
			for b.Loop() {
				if !same {
					builder = assignment.Builder{}
				}
				a, err := builder.Build("c", d, assignment.Options{Previous: previous}, rng)
				if err != nil {
					b.Fatal(err)
				}
				previous = a
			}
		})
	}
}

// TestAReusedBuilderBuildsWhatANewOneBuilds follows a pool whose endpoints are added, removed, moved and
// reordered: what a builder keeps must not change the result.
func TestAReusedBuilderBuildsWhatANewOneBuilds(t *testing.T) {
	var builder assignment.Builder
	a, b := endpoint("10.0.0.1:8000", "", 0.5), endpoint("10.0.0.2:8000", "", 0.3)
	c := endpoint("10.0.0.3:8000", "", 0.2)
	moved, other := b, endpoint("10.0.0.2:8001", "", 0.3)
	moved.Zone = "east"
	for i, d := range []weighting.Decision{
		decision(a, b, c), decision(a, b, c), decision(c, b, a), decision(a, b), decision(a, moved), decision(a, moved),
		decision(a, other), decision(overloaded(a, "queue"), other), decision(a, other), decision(), decision(a, b, c),
	} {
		random, again := rand.New(rand.NewPCG(1, uint64(i))), rand.New(rand.NewPCG(1, uint64(i)))
		got, err := builder.Build("c", d, assignment.Options{}, random)
		want, wantErr := new(assignment.Builder).Build("c", d, assignment.Options{}, again)
		if err != nil || wantErr != nil {
			t.Fatal(err, wantErr)
		}
		if !proto.Equal(got, want) {
			t.Errorf("decision %d: %v\nwant %v", i, got, want)
		}
	}
}

func TestABuilderStillWorksAfterAnError(t *testing.T) {
	var builder assignment.Builder
	good, bad := decision(endpoint("10.0.0.1:8000", "", 1)), decision(endpoint("10.0.0.1:0", "", 1))
	for i, d := range []weighting.Decision{good, bad, good, decision(endpoint("10.0.0.1:8000", "", -1)), good} {
		_, err := builder.Build("c", d, assignment.Options{}, seeded())
		if failed := err != nil; failed != (i%2 == 1) {
			t.Errorf("decision %d: error %v", i, err)
		}
	}
}
