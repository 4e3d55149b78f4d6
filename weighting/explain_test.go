package weighting

import (
	"regexp"
	"strings"
	"testing"
	"time"
)

// Each cause of a share is one sentence with its numbers and their units.
func TestTheReasonOfAShareInASentence(t *testing.T) {
	start := at(0)
	slots := func(law *Law, now time.Time) Decision {
		return law.Step(now, Snapshot{PushDelay: 10 * time.Millisecond, PushPeriod: 90 * time.Millisecond,
			Endpoints: []Endpoint{
				scraped("a", 2, 0, 1, now), scraped("b", 2, 9, 2, now), scraped("c", 2, 0, 1, now),
				scraped("d", 2, 0, 1, now),
			}})
	}
	for _, c := range []struct {
		name     string
		decide   func() Decision
		endpoint int
		want     string
	}{
		{"filled", func() Decision { return slots(NewLaw(DefaultParams()), start) }, 0,
			"It gets 33.3 % of this decision's requests, and is 25.0 % of the capacity: it has a load of 1 (requests " +
				"waiting and running), a level of 0.5 for each slot; 4 more, one for each endpoint until " +
				"arrivals are known, fill the pool up to 1.17."},
		{"flagged for its queue", func() Decision { return slots(NewLaw(DefaultParams()), start) }, 1,
			"It gets less than 0.1 % of this decision's requests, and is 25.0 % of the capacity, " +
				"but the proxies prefer endpoints without a flag, and it has one: queue per slot 4.5 >= 4; besides, " +
				"it has a load of 11 " +
				"(requests waiting and running), a level of 5.5 for each slot; 4 more, one for each endpoint until " +
				"arrivals are known, fill the pool up to 1.17, so it gets its floor."},
		{"fading", func() Decision {
			law := NewLaw(DefaultParams())
			slots(law, start)
			return law.Step(start.Add(5*time.Second), Snapshot{Endpoints: []Endpoint{
				scraped("a", 2, 0, 1, start), scraped("b", 2, 0, 1, start.Add(5*time.Second)),
			}})
		}, 0, `^It gets \d+\.\d % of this decision's requests, and is 50\.0 % of the capacity: ` +
			`its load fades into the median ` +
			`one, as its reports are late \(queue is 5 s old\); it has a load of 1 .*\.$`},
		{"unknown", func() Decision {
			return NewLaw(DefaultParams()).Step(start, Snapshot{Endpoints: []Endpoint{
				scraped("a", 2, 0, 1, start), {Address: "b", Capacity: 2},
			}})
		}, 1, `^It gets \d+\.\d % of this decision's requests, and is 50\.0 % of the capacity: ` +
			`no report of its load is usable ` +
			`\(none was ever read\), so it counts as a median endpoint; it has a load of 1 .*\.$`},
		{"new", func() Decision {
			law := NewLaw(DefaultParams())
			law.Step(start, Snapshot{Endpoints: []Endpoint{scraped("a", 2, 0, 1, start)}})
			return law.Step(start, Snapshot{Endpoints: []Endpoint{
				scraped("a", 2, 0, 1, start), scraped("b", 2, 0, 0, start),
			}})
		}, 1, `^It gets .* % of the capacity: it is new, its reports do not count yet, and it is trusted with ` +
			`10\.0 % of its capacity\.$`},
		{"by latency", func() Decision {
			p := DefaultParams()
			p.LeastLatency.Enabled = true
			law := NewLaw(p)
			var d Decision
			for second := range 2 {
				now := start.Add(time.Duration(second) * time.Second)
				e := scraped("a", 2, 0, 1, now)
				n := float64(10 * second)
				e.Proxies = ProxyReport{Answered: known(n, now), LatencySeconds: known(n/2, now)}
				d = law.Step(now, Snapshot{Endpoints: []Endpoint{e}})
			}
			return d
		}, 0, `and takes 500 ms for an answer, a level of 2 times the median latency; the next request fills the ` +
			`pool up to .*\.$`},
		{"not of a law", func() Decision { return Decision{Endpoints: []EndpointDecision{{Share: 1, Capacity: 3}}} }, 0,
			"It gets 100.0 % of this decision's requests, and is 100.0 % of the capacity."},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := c.decide()
			got := d.Explain(c.endpoint)
			if ok := got == c.want; !ok && !(strings.ContainsAny(c.want, `\^`) &&
				regexp.MustCompile(c.want).MatchString(got)) {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

// What a decision is for is not always what its horizon brings.
func TestTheRequestsThatADecisionIsForInWords(t *testing.T) {
	for want, d := range map[string]Decision{
		"4 more, expected within 100 ms, fill": {ArrivalRate: 40, ArrivalRateSource: RateIssued, Arrivals: 4},
		"the next request fills":               {ArrivalRate: 4, ArrivalRateSource: RateIssued, Arrivals: 1},
		"7 more, as many as come together, fill": {ArrivalRate: 40, ArrivalRateSource: RateIssued,
			Arrivals: 7},
		"3 more, one for each endpoint until arrivals are known, fill": {ArrivalRateSource: RateUnknown, Arrivals: 3},
	} {
		d.Horizon = 100 * time.Millisecond
		if got := d.coming(); got != want {
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
	p := engines(1, 4, nil)
	p.atLoad(0.8)
	p.run(20, nil)
	d := p.decide()
	want := regexp.MustCompile(`^It gets [\d.a-z ]+ % of this decision's requests, and is \d+\.\d % of the capacity: ` +
		`it has .* ` +
		`m?s of work \(\d+ prompt tokens outstanding, guessed by the sizes of requests, at \d+ tokens/s ` +
		`\(measured\), and ` +
		`\d+ requests in flight\), a level of .* mean requests; .*\.$`)
	for i := range d.Endpoints {
		if got := d.Explain(i); !want.MatchString(got) {
			t.Error(got)
		}
	}
}

// Each number of the work of an engine has the source and the reading that it comes from.
func TestTheWorkOfAnEngineHasSourcesAndAges(t *testing.T) {
	for name, c := range map[string]struct {
		sized, counts bool
		alter         func(now float64, s *Snapshot)
		want          WorkSource
		wantPrefill   PrefillSource
	}{
		"sizes":        {true, true, nil, WorkSizes, PrefillMeasured},
		"chunked":      {false, true, nil, WorkRequests, PrefillMeasured},
		"scrapes only": {true, false, nil, WorkExpected, PrefillMeasured},
		"counts in flight": {true, true, func(_ float64, s *Snapshot) {
			for i := range s.Endpoints {
				s.Endpoints[i].Proxies = ProxyReport{}
			}
		}, WorkInFlight, PrefillMeasured},
		"configured": {true, true, func(_ float64, s *Snapshot) {
			for i := range s.Endpoints {
				s.Endpoints[i].Capacity = float64(20 + i)
			}
		}, WorkSizes, PrefillConfigured},
	} {
		p := engines(1, 4, nil)
		p.counts, p.alter = c.counts, c.alter
		if !c.sized {
			p.size = nil
		}
		p.atLoad(0.8)
		p.run(20, nil)
		d := p.decide()
		w := d.Work
		if w == nil || w.Engines != 4 || !recent(d.At, w.CountedAt, 1) || !recent(d.At, w.RatedAt, 4) {
			t.Fatalf("%s: work %+v", name, w)
		}
		if sized := c.want == WorkSizes; w.BySize != sized || sized && !recent(d.At, w.SizedAt, 1) {
			t.Errorf("%s: sizes %v, of %v", name, w.BySize, w.SizedAt)
		}
		for i, e := range d.Endpoints {
			reported := c.want == WorkExpected && e.Work.ReportedAt.IsZero() || recent(d.At, e.Work.ReportedAt, 1)
			if e.Work.Source != c.want || e.Work.PrefillSource != c.wantPrefill || !reported ||
				!recent(d.At, e.Work.CountedAt, 1) || !recent(d.At, e.Work.RatedAt, 4) {
				t.Errorf("%s: %+v, want by %s, prefill rate %s", name, *e.Work, c.want, c.wantPrefill)
			}
			if says := d.Explain(i); !strings.Contains(says, guessedBy[c.want]) {
				t.Errorf("%s: %s", name, says)
			}
		}
	}
}

func recent(now, at time.Time, seconds float64) bool {
	age := now.Sub(at).Seconds()
	return age >= 0 && age <= seconds
}
