package weighting

import (
	"math"
	"testing"
)

// A count that cannot leak is not corrected downwards by a server that does not show the requests: a server that stalls
// before it counts looks idle and is not.
func TestAnExactCountIsNotCorrectedDownwards(t *testing.T) {
	for _, c := range []struct {
		name      string
		exact     bool
		running   float64 // as the server reports
		want      float64 // load
		unproxied float64
	}{
		{"a count that may leak follows the server", false, 0, 0, -5},
		{"an exact one stands", true, 0, 5, 0},
		{"traffic that bypasses the proxies counts either way", true, 8, 8, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			law := NewLaw(DefaultParams())
			var d Decision
			for i := range 100 {
				now := at(float64(i) * 0.1)
				read := func(v float64) Reading { return Reading{Value: v, At: now} }
				d = law.Step(now, Snapshot{Endpoints: []Endpoint{{
					Address: "10.0.0.1:80", Capacity: 4, InFlight: read(5), Exact: c.exact,
					Server: ServerReport{Queue: read(0), Running: read(c.running)},
				}}})
			}
			e := d.Endpoints[0]
			if math.Abs(e.Load-c.want) > 0.01 || math.Abs(e.Unproxied-c.unproxied) > 0.01 || e.LoadSource != LoadFused {
				t.Errorf("load %.2f (unproxied %.2f, %s), want %.2f (%.2f, %s)", e.Load, e.Unproxied, e.LoadSource,
					c.want, c.unproxied, LoadFused)
			}
		})
	}
}

func TestTheArrivalRateIsTheLargerOfWhatServersCompletedAndProxiesSent(t *testing.T) {
	for _, c := range []struct {
		name              string
		completed, issued float64 // per second; NaN: not reported
		want              float64
		source            RateSource
	}{
		{"servers only", 4, math.NaN(), 4, RateCompletions},
		{"proxies only", math.NaN(), 3, 3, RateIssued},
		{"traffic past the proxies", 4, 3, 4, RateCompletions},
		{"a server that does not count all", 1, 3, 3, RateIssued},
		{"none", math.NaN(), math.NaN(), 0, RateUnknown},
	} {
		t.Run(c.name, func(t *testing.T) {
			law := NewLaw(DefaultParams())
			var d Decision
			for i := range 300 {
				s := float64(i) * 0.1
				sum := func(rate float64) Reading {
					if math.IsNaN(rate) {
						return Reading{}
					}
					return Reading{Value: rate * s, At: at(s)}
				}
				d = law.Step(at(s), Snapshot{Endpoints: []Endpoint{{
					Address: "10.0.0.1:80", Capacity: 4,
					Server:  ServerReport{Completions: sum(c.completed)},
					Proxies: ProxyReport{Issued: sum(c.issued)},
				}}})
			}
			if math.Abs(d.ArrivalRate-c.want) > 0.05 || d.ArrivalRateSource != c.source {
				t.Errorf("%.2f a second by %s, want %.2f by %s", d.ArrivalRate, d.ArrivalRateSource, c.want, c.source)
			}
		})
	}
}
