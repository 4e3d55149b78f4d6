package weighting

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// known is a reading of v at that time.
func known(v float64, at time.Time) Reading { return Reading{Value: v, At: at} }

// scraped is an endpoint with gauges of queue and running requests.
func scraped(address string, capacity, queue, running float64, at time.Time) Endpoint {
	return Endpoint{Address: address, Capacity: capacity, Server: ServerReport{
		Queue: known(queue, at), Running: known(running, at),
	}}
}

// counted is an endpoint of which only the in-flight count is known.
func counted(address string, capacity, inFlight float64, at time.Time) Endpoint {
	return Endpoint{Address: address, Capacity: capacity, InFlight: known(inFlight, at)}
}

// of finds an endpoint's decision.
func of(t testing.TB, d Decision, address string) EndpointDecision {
	t.Helper()
	for _, e := range d.Endpoints {
		if e.Address == address {
			return e
		}
	}
	t.Fatalf("no %s in the decision of %v", address, d.At)
	return EndpointDecision{}
}

// input finds a field among an endpoint's inputs.
func input(t testing.TB, e EndpointDecision, field Field) Input {
	t.Helper()
	for _, i := range e.Inputs {
		if i.Field == field {
			return i
		}
	}
	t.Fatalf("no %s in the inputs of %s", field, e.Address)
	return Input{}
}

// near reports whether two numbers agree to within a relative tolerance.
func near(a, b, tolerance float64) bool {
	return a == b || math.Abs(a-b) <= tolerance*max(1, math.Abs(a), math.Abs(b))
}

func wantNear(t testing.TB, what string, got, want, tolerance float64) {
	t.Helper()
	if !near(got, want, tolerance) {
		t.Errorf("%s = %v, want %v (within %g)", what, got, want, tolerance)
	}
}

func want[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s = %v, want %v", what, got, want)
	}
}

// epoch is the moment at which a world's clock stands at zero: a date with a monotonic reading, as real times
// have, because differences of such times take a third of the time.
var epoch = func() time.Time {
	now := time.Now()
	return now.Add(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Sub(now))
}()

func at(seconds float64) time.Time { return epoch.Add(time.Duration(seconds * float64(time.Second))) }

func weighted(r *rand.Rand, weights []float64) int {
	var sum float64
	for _, w := range weights {
		sum += w
	}
	x := r.Float64() * sum
	for i, w := range weights {
		if x -= w; x < 0 {
			return i
		}
	}
	return len(weights) - 1
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func quantile(values []float64, q float64) float64 {
	sorted := slices.Clone(values)
	slices.Sort(sorted)
	return sorted[int(math.Min(q*float64(len(sorted)), float64(len(sorted)-1)))]
}
