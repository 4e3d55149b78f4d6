package weighting

import (
	"math"
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
