package api

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"steelyard/weighting"
)

// scraped is an endpoint with gauges of waiting and running requests.
func scraped(address string, capacity, queue, running float64, at time.Time) weighting.Endpoint {
	return weighting.Endpoint{Address: address, Capacity: capacity, Server: weighting.ServerReport{
		Queue: weighting.Reading{Value: queue, At: at}, Running: weighting.Reading{Value: running, At: at},
	}}
}

// Each cause of a share is one sentence with its numbers and their units.
func TestTheReasonOfAShareInASentence(t *testing.T) {
	start := noon
	slots := func(law *weighting.Law, now time.Time) weighting.Decision {
		return law.Step(now, weighting.Snapshot{PushDelay: 10 * time.Millisecond, PushPeriod: 90 * time.Millisecond,
			Endpoints: []weighting.Endpoint{
				scraped("a", 2, 0, 1, now), scraped("b", 2, 9, 2, now), scraped("c", 2, 0, 1, now),
				scraped("d", 2, 0, 1, now),
			}})
	}
	newLaw := func() *weighting.Law { return weighting.NewLaw(weighting.DefaultParams()) }
	for _, c := range []struct {
		name     string
		decide   func() weighting.Decision
		endpoint int
		want     string
	}{
		{"filled", func() weighting.Decision { return slots(newLaw(), start) }, 0,
			"It gets 33.3 % of this decision's requests, and is 25.0 % of the capacity: it has a load of 1 (requests " +
				"waiting and running), a level of 0.5 for each slot; 4 more, one for each endpoint until " +
				"arrivals are known, fill the pool up to 1.17."},
		{"flagged for its queue", func() weighting.Decision { return slots(newLaw(), start) }, 1,
			"It gets less than 0.1 % of this decision's requests, and is 25.0 % of the capacity, " +
				"but the proxies prefer endpoints without a flag, and it has one: queue per slot 4.5 >= 4; besides, " +
				"it has a load of 11 " +
				"(requests waiting and running), a level of 5.5 for each slot; 4 more, one for each endpoint until " +
				"arrivals are known, fill the pool up to 1.17, so it gets its floor."},
		{"fading", func() weighting.Decision {
			law := newLaw()
			slots(law, start)
			return law.Step(start.Add(5*time.Second), weighting.Snapshot{Endpoints: []weighting.Endpoint{
				scraped("a", 2, 0, 1, start), scraped("b", 2, 0, 1, start.Add(5*time.Second)),
			}})
		}, 0, `^It gets \d+\.\d % of this decision's requests, and is 50\.0 % of the capacity: ` +
			`its load fades into the median ` +
			`one, as its reports are late \(queue is 5 s old\); it has a load of 1 .*\.$`},
		{"unknown", func() weighting.Decision {
			return newLaw().Step(start, weighting.Snapshot{Endpoints: []weighting.Endpoint{
				scraped("a", 2, 0, 1, start), {Address: "b", Capacity: 2},
			}})
		}, 1, `^It gets \d+\.\d % of this decision's requests, and is 50\.0 % of the capacity: ` +
			`no report of its load is usable ` +
			`\(none was ever read\), so it counts as a median endpoint; it has a load of 1 .*\.$`},
		{"new", func() weighting.Decision {
			law := newLaw()
			law.Step(start, weighting.Snapshot{Endpoints: []weighting.Endpoint{scraped("a", 2, 0, 1, start)}})
			return law.Step(start, weighting.Snapshot{Endpoints: []weighting.Endpoint{
				scraped("a", 2, 0, 1, start), scraped("b", 2, 0, 0, start),
			}})
		}, 1, `^It gets .* % of the capacity: it is new, its reports do not count yet, and it is trusted with ` +
			`10\.0 % of its capacity\.$`},
		{"by latency", func() weighting.Decision {
			p := weighting.DefaultParams()
			p.LeastLatency.Enabled = true
			law := weighting.NewLaw(p)
			var d weighting.Decision
			for second := range 2 {
				now := start.Add(time.Duration(second) * time.Second)
				e := scraped("a", 2, 0, 1, now)
				n := float64(10 * second)
				e.Proxies.Answered = weighting.Reading{Value: n, At: now}
				e.Proxies.LatencySeconds = weighting.Reading{Value: n / 2, At: now}
				d = law.Step(now, weighting.Snapshot{Endpoints: []weighting.Endpoint{e}})
			}
			return d
		}, 0, `and takes 500 ms for an answer, a level of 2 times the median latency; the next request fills the ` +
			`pool up to .*\.$`},
		{"asleep", func() weighting.Decision {
			e := scraped("b", 2, 0, 0, start)
			e.Server.Awake = weighting.Reading{Value: 0, At: start}
			return newLaw().Step(start, weighting.Snapshot{
				Endpoints: []weighting.Endpoint{scraped("a", 2, 0, 1, start), e}})
		}, 1, `^It gets 0\.1 % .* % of the capacity: its engine sleeps, by its own metrics, and the proxies ` +
			`prefer others until it is awake\.$`},
		{"probed", func() weighting.Decision {
			d := slots(newLaw(), start)
			d.Endpoints[2].Probed = "stalled since 12:00:00Z"
			return d
		}, 2, `: it was stalled since 12:00:00Z, and is tried with few requests until one is answered\.$`},
		{"not of a law", func() weighting.Decision {
			return weighting.Decision{Endpoints: []weighting.EndpointDecision{{Share: 1, Capacity: 3}}}
		}, 0,
			"It gets 100.0 % of this decision's requests, and is 100.0 % of the capacity."},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := c.decide()
			got := explain(&d, c.endpoint)
			if ok := got == c.want; !ok && !(strings.ContainsAny(c.want, `\^`) &&
				regexp.MustCompile(c.want).MatchString(got)) {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

// What a decision is for is not always what its horizon brings.
func TestTheRequestsThatADecisionIsForInWords(t *testing.T) {
	for want, d := range map[string]weighting.Decision{
		"4 more, expected within 100 ms, fill": {ArrivalRate: 40, ArrivalRateSource: weighting.RateIssued, Arrivals: 4},
		"the next request fills":               {ArrivalRate: 4, ArrivalRateSource: weighting.RateIssued, Arrivals: 1},
		"7 more, as many as come together, fill": {ArrivalRate: 40, ArrivalRateSource: weighting.RateIssued,
			Arrivals: 7},
		"3 more, one for each endpoint until arrivals are known, fill": {ArrivalRateSource: weighting.RateUnknown,
			Arrivals: 3},
	} {
		d.Horizon = 100 * time.Millisecond
		if got := coming(&d); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// As on the page and in the terminal.
func TestHalvesOfAPercentAreRoundedUp(t *testing.T) {
	for v, text := range map[float64]string{0: "0.0 %", 0.0004: "less than 0.1 %", 1.0 / 16: "6.3 %",
		3.0 / 16: "18.8 %", 1: "100.0 %"} {
		if got := percentText(v); got != text {
			t.Errorf("%g: %q, want %q", v, got, text)
		}
	}
}

// The sentence about engines has their work.
func TestTheReasonOfAShareByWorkInASentence(t *testing.T) {
	law := weighting.NewLaw(weighting.DefaultParams())
	want := regexp.MustCompile(`^It gets [\d.a-z ]+ % of this decision's requests, and is \d+\.\d % of the capacity: ` +
		`it has .* m?s of work \(\d+ prompt tokens outstanding, guessed by the sizes of requests, at \d+ tokens/s ` +
		`\(measured\), and \d+ requests in flight\), a level of .* mean requests; .*\.$`)
	var d weighting.Decision
	for second := range 60 {
		now, n := noon.Add(time.Duration(second)*time.Second), float64(second)
		read := func(v float64) weighting.Reading { return weighting.Reading{Value: v, At: now} }
		var s weighting.Snapshot
		for _, address := range []string{"a", "b", "c"} {
			e := scraped(address, 0, 0, 10, now)
			e.Server.Tokens = weighting.TokenCounts{At: now, Prompt: 5000 * n, Generated: 1000 * n, First: 5 * n,
				Iterations: 25 * n}
			e.InFlight, e.Exact = read(10), true
			e.Proxies = weighting.ProxyReport{Issued: read(5*n + 10), Ended: read(5 * n), Answered: read(5 * n),
				Sized: read(5*n + 10), SizedBytes: read(4000 * (5*n + 10))}
			s.Endpoints = append(s.Endpoints, e)
		}
		d = law.Step(now, s)
	}
	for i := range d.Endpoints {
		if got := explain(&d, i); !want.MatchString(got) {
			t.Error(got)
		}
	}
}
