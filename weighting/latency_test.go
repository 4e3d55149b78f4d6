package weighting

import (
	"fmt"
	"math"
	"testing"
	"time"
)

func TestTheLatencyIsTheMovingAverageOfTheAnswersOneByOne(t *testing.T) {
	const alpha = 0.3
	law := NewLaw(DefaultParams())
	want, sum, n := math.NaN(), 0.0, 0.0
	for i, answers := range [][]float64{{}, {2}, {}, {1}, {4, 4, 4}, {0.5}} {
		for _, a := range answers {
			if math.IsNaN(want) {
				want = a
			} else {
				want += alpha * (a - want)
			}
			sum, n = sum+a, n+1
		}
		now := at(float64(i))
		read := func(v float64) Reading { return Reading{Value: v, At: now} }
		d := law.Step(now, Snapshot{Endpoints: []Endpoint{{
			Address: "10.0.0.1:80", InFlight: read(0),
			Proxies: ProxyReport{LatencySeconds: read(sum), Answered: read(n)},
		}}})
		got := d.Endpoints[0].Latency
		if math.IsNaN(want) != math.IsNaN(got) || math.Abs(got-want) > 1e-9 {
			t.Errorf("after %v: %v, want %v", answers, got, want)
		}
	}
	d := law.Step(at(100), Snapshot{Endpoints: []Endpoint{{Address: "10.0.0.1:80"}}})
	if e := d.Endpoints[0]; math.Abs(e.Latency-want) > 1e-9 || e.LatencyAge != 95*time.Second {
		t.Errorf("95 s later: %v of %v ago, want %v", e.Latency, e.LatencyAge, want)
	}
}

// timing is an endpoint whose only answer took so many seconds (0: none), with
// requests in flight.
type timing struct{ latency, inFlight float64 }

func sharesByLatency(t *testing.T, arrivals float64, endpoints ...timing) []EndpointDecision {
	t.Helper()
	params := DefaultParams()
	params.LeastLatency.Enabled = true
	law := NewLaw(params)
	var d Decision
	for i := range 20 {
		now := at(float64(i) * 0.1)
		read := func(v float64) Reading { return Reading{Value: v, At: now} }
		s := Snapshot{PushPeriod: seconds(1)}
		for j, e := range endpoints {
			p := ProxyReport{LatencySeconds: read(0), Answered: read(0),
				Issued: read(arrivals / float64(len(endpoints)) * float64(i) * 0.1)}
			if i > 0 && e.latency > 0 {
				p.LatencySeconds, p.Answered = read(e.latency), read(1)
			}
			s.Endpoints = append(s.Endpoints, Endpoint{
				Address: fmt.Sprintf("10.0.0.%d:80", j+1), InFlight: read(e.inFlight), Exact: true, Proxies: p,
			})
		}
		d = law.Step(now, s)
	}
	return d.Endpoints
}

func TestLeastLatencyPrefersTheUntriedThenTheFastestUnderTheThreshold(t *testing.T) {
	for _, c := range []struct {
		name      string
		arrivals  float64 // per second, which is the horizon
		endpoints []timing
		want      []float64 // shares
		reasons   []Reason
	}{
		{"all alike", 1, []timing{{1, 0}, {1, 0}}, []float64{0.5, 0.5}, []Reason{ReasonFill, ReasonFill}},
		{"the untried first", 1, []timing{{1, 0}, {0, 0}, {1, 0}}, []float64{0, 1, 0},
			[]Reason{ReasonFloor, ReasonFill, ReasonFloor}},
		{"untried with a request on its way is as good as another", 1, []timing{{1, 0}, {0, 1}}, []float64{1, 0},
			[]Reason{ReasonFill, ReasonFloor}},
		{"the fastest first", 1, []timing{{2, 0}, {0.5, 0}}, []float64{0, 1}, []Reason{ReasonFloor, ReasonFill}},
		{"requests in flight count", 1, []timing{{1, 0}, {0.5, 3}}, []float64{1, 0}, []Reason{ReasonFill, ReasonFloor}},
		{"many go by speed", 1000, []timing{{2, 0}, {1, 0}, {1, 0}}, []float64{0.2, 0.4, 0.4},
			[]Reason{ReasonFill, ReasonFill, ReasonFill}},
		{"above the threshold a floor is left", 1000, []timing{{3.1, 0}, {2.9, 0}}, []float64{0, 1},
			[]Reason{ReasonSlow, ReasonFill}},
		{"all above it share", 1000, []timing{{8, 0}, {4, 0}}, []float64{1. / 3, 2. / 3},
			[]Reason{ReasonFill, ReasonFill}},
		{"none has answered: by load", 1, []timing{{0, 0}, {0, 3}}, []float64{1, 0}, []Reason{ReasonFill, ReasonFloor}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for i, e := range sharesByLatency(t, c.arrivals, c.endpoints...) {
				if math.Abs(e.Share-c.want[i]) > 0.015 || e.Reason != c.reasons[i] {
					t.Errorf("endpoint %d: share %.3f for %s, want %.3f for %s", i, e.Share, e.Reason, c.want[i],
						c.reasons[i])
				}
			}
		})
	}
}

// Between two answers that take a minute each there is no new report of an endpoint, and yet it is not unknown; nor is
// it known for ever.
func TestALatencyLastsUntilTheNextAnswerIsOverdue(t *testing.T) {
	for _, c := range []struct {
		name       string
		takes, gap float64   // seconds of an answer, and from one to the next
		after      []float64 // seconds since the last of three answers
		known      []bool
	}{
		{"short answers", 1, 1, []float64{9, 11}, []bool{true, false}},
		{"long answers, one after another", 60, 60, []float64{59, 150, 190}, []bool{true, true, false}},
		{"long answers, several at once", 60, 6, []float64{17, 19}, []bool{true, false}},
		{"short answers of few requests", 1, 300, []float64{9, 11}, []bool{true, false}},
	} {
		t.Run(c.name, func(t *testing.T) {
			params := DefaultParams()
			params.LeastLatency.Enabled, params.LeastLatency.Threshold = true, time.Hour
			for i, after := range c.after {
				law := NewLaw(params)
				step := func(now, answers float64, fresh time.Time) EndpointDecision {
					read := func(v float64) Reading { return Reading{Value: v, At: at(now)} }
					slow := Endpoint{Address: "10.0.0.1:80", InFlight: read(0), Proxies: ProxyReport{
						Answered:       Reading{Value: answers, At: fresh},
						LatencySeconds: Reading{Value: answers * c.takes, At: fresh},
						Issued:         read(0),
					}}
					quick := Endpoint{Address: "10.0.0.2:80", InFlight: read(0), Proxies: ProxyReport{
						Answered: read(now), LatencySeconds: read(now * c.takes / 10), Issued: read(1000 * now),
					}}
					d := law.Step(at(now), Snapshot{PushPeriod: seconds(1), Endpoints: []Endpoint{slow, quick}})
					return d.Endpoints[0]
				}
				var last float64
				for n := range 4 { // the first begins the count
					last = float64(n) * c.gap
					step(last, float64(n), at(last))
				}
				// Ten times slower than the other: an eleventh, if that is known, and else a
				// share like that of a median one.
				e := step(last+after, 3, at(last))
				if known := e.Share < 0.15; known != c.known[i] {
					t.Errorf("%v s after an answer its share is %.3f; want that of a known latency: %v", after, e.Share,
						c.known[i])
				}
			}
		})
	}
}

// The mean of the smallest part of an answer is infinite.
func TestALatencyStaysFinite(t *testing.T) {
	params := DefaultParams()
	params.LeastLatency.Enabled = true
	law := NewLaw(params)
	var d Decision
	for i, answered := range []float64{0, 1, 1 + 1e-15, 2} {
		now := at(float64(i))
		read := func(v float64) Reading { return Reading{Value: v, At: now} }
		d = law.Step(now, Snapshot{Endpoints: []Endpoint{{
			Address: "10.0.0.1:80", InFlight: read(0),
			Proxies: ProxyReport{LatencySeconds: read(float64(i) * 1e308), Answered: read(answered)},
		}, {
			Address: "10.0.0.2:80", InFlight: read(0),
			Proxies: ProxyReport{LatencySeconds: read(float64(i)), Answered: read(answered * 5e-324)},
		}}})
	}
	for _, e := range d.Endpoints {
		if e.Latency >= 1e16 || !(e.Share > 0) { // unknown where the sum is not finite
			t.Errorf("%s: latency %v, share %v", e.Address, e.Latency, e.Share)
		}
	}
}

// Until it has answered, the requests that an endpoint has are few and say nothing.
func TestLeastLatencyTrustsANewEndpointWithItsRamp(t *testing.T) {
	p := DefaultParams()
	p.LeastLatency.Enabled = true
	law := NewLaw(p)
	for i := range 260 {
		now, passed := at(float64(i)*0.05), float64(i)*0.05
		s := Snapshot{PushPeriod: seconds(0.2)}
		for j := range 4 {
			answered, inFlight := 40*passed, 20.0
			if j == 3 {
				answered, inFlight = 0, float64(min(20, max(0, i-200)))
			}
			if j < 3 || i >= 200 {
				s.Endpoints = append(s.Endpoints, Endpoint{Address: fmt.Sprint(j), Exact: true,
					InFlight: known(inFlight, now), Proxies: ProxyReport{
						Issued: known(answered+inFlight, now), Ended: known(answered, now),
						Answered:       known(answered, now),
						LatencySeconds: known(answered/2, now), Succeeded: known(answered, now),
						Failed: known(0, now), Errors: known(0, now)}})
			}
		}
		d := law.Step(now, s)
		if i >= 200 {
			if e := d.Endpoints[3]; e.Share > 0.3 {
				t.Fatalf("%v after it came its share is %.2f, with %.2f of its capacity", now.Sub(at(10)), e.Share,
					e.Ramp)
			}
		}
	}
}
