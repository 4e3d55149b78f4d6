package weighting

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"steelyard/sim/engine"
)

// An engine that stands still goes on to show the requests that it has: nothing is missing in its report but progress.
// One whose iterations take two seconds is not taken for it.
func TestAnEngineThatStandsStillWithItsRequestsShownIsFoundWithinThreeSeconds(t *testing.T) {
	t.Parallel()
	const stands = 60.0 // seconds
	for _, c := range sampled(2, []struct {
		name   string
		engine func(*engine.Params)
		load   float64
		within float64 // seconds
	}{
		{"load 0.2", nil, 0.2, 3},
		{"load 0.8", nil, 0.8, 3},
		{"iterations of up to two seconds", func(p *engine.Params) { p.PrefillRate = 4000 }, 0.8, 5},
	}) {
		t.Run(c.name, func(t *testing.T) {
			for seed := range seeds(1, 3) {
				at := stands + 0.11*float64(seed)
				p := engines(seed, 12, c.engine)
				p.atLoad(c.load)
				found := math.Inf(1)
				see := func(d Decision) {
					for i, e := range d.Endpoints {
						switch {
						case !e.Failing:
						case i > 0 || p.now <= at:
							t.Fatalf("at %.2f s %s: %s", p.now, e.Address, e.OverloadReason)
						case math.IsInf(found, 1):
							if found = p.now - at; !strings.HasPrefix(e.OverloadReason, "stalled since ") {
								t.Errorf("the reason is %q", e.OverloadReason)
							}
						}
					}
				}
				p.run(at, see)
				p.engines[0].SetSpeed(seconds(at), 0)
				p.run(at+c.within+1, see)
				if t.Logf("found after %.2f s", found); found > c.within {
					t.Errorf("found after %.2f s, want %v at most", found, c.within)
				}
			}
		})
	}
}

// A gauge of waiting requests that stands still while requests come and go is not used, and one that stays the same
// because its queue is always full is.
func TestAGaugeThatStandsStillIsStuckOnceTheRestMoves(t *testing.T) {
	for _, c := range []struct {
		name    string
		running func(n int) float64
		queue   func(n int) float64
		want    FieldState
	}{
		{"the number running changes", func(n int) float64 { return float64(40 + n%3) },
			func(int) float64 { return 40 }, StateStuck},
		{"a queue that is always full", func(int) float64 { return 4 }, func(int) float64 { return 40 }, StateFresh},
		{"nothing waits", func(n int) float64 { return float64(40 + n%3) }, func(int) float64 { return 0 }, StateFresh},
		{"it moves again", func(n int) float64 { return float64(40 + n%3) },
			func(n int) float64 { return 40 - float64(n/29) }, StateFresh},
	} {
		t.Run(c.name, func(t *testing.T) {
			law := NewLaw(DefaultParams())
			var d Decision
			for n := range 30 {
				now := at(float64(n) / 4)
				e := scraped("a", 0, c.queue(n), c.running(n), now)
				other := scraped("b", 0, 0, 40, now)
				d = law.Step(now, Snapshot{Endpoints: []Endpoint{e, other}})
			}
			want(t, "state of the queue", input(t, of(t, d, "a"), FieldQueue).State, c.want)
			load := c.queue(29) + c.running(29)
			if c.want == StateStuck {
				load = c.running(29)
			}
			wantNear(t, "load", of(t, d, "a").Load, load, 1e-9)
		})
	}
}

// Reports of arrivals that come late show by how much: the horizon is longer by that, and no longer where they come at
// once, or where nothing that arrives depends on the shares.
func TestTheLagOfTheReportsIsAPartOfTheHorizon(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		late float64 // seconds
		want []time.Duration
	}{
		{0, []time.Duration{0}},
		{0.5, []time.Duration{250 * time.Millisecond, 500 * time.Millisecond}},
		{2, []time.Duration{2 * time.Second}},
	} {
		t.Run(fmt.Sprint(c.late), func(t *testing.T) {
			p := engines(1, 12, nil)
			p.tokens = false
			p.atLoad(0.7)
			var past []channel
			p.alter = func(_ float64, s *Snapshot) { p.delayCounts(s, c.late, &past) }
			seen := map[time.Duration]int{}
			p.run(90, func(Decision) {
				if p.now > 30 {
					seen[p.law.lag.Late]++
				}
			})
			t.Logf("lags, in steps: %v", seen)
			var right, all int
			for _, n := range seen {
				all += n
			}
			for _, lag := range c.want {
				right += seen[lag]
			}
			if float64(right) < 0.8*float64(all) {
				t.Errorf("a lag of %v in %d of %d steps", c.want, right, all)
			}
		})
	}
}

// delayCounts gives the law what the proxies reported some time ago, as if it were current.
func (p *plant) delayCounts(s *Snapshot, late float64, past *[]channel) {
	n := len(p.engines)
	for i := range p.sent {
		*past = append(*past, channel{issued: p.sent[i].issued, ended: p.sent[i].ended})
	}
	back := min(int(late/p.step), len(*past)/n-1)
	then := (*past)[len(*past)-(back+1)*n:]
	now := at(p.now)
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		e.InFlight = known(then[i].issued-then[i].ended, now)
		e.Proxies = ProxyReport{Issued: known(then[i].issued, now), Ended: known(then[i].ended, now)}
	}
}

// Endpoints that are alike show their slots together, sooner than each by itself.
func TestEndpointsThatAreAlikeShowTheirSlotsTogether(t *testing.T) {
	law := NewLaw(DefaultParams())
	for n := range 80 { // each endpoint has a queue in one second of four
		now := at(float64(n) / 4)
		var endpoints []Endpoint
		for i := range 4 {
			queue := 0.0
			if n/4%4 == i {
				queue = 2
			}
			e := scraped(fmt.Sprint(i), 0, queue, 3, now)
			e.Server.Completions = known(float64(n), now)
			endpoints = append(endpoints, e)
		}
		d := law.Step(now, Snapshot{Endpoints: endpoints})
		for _, e := range d.Endpoints {
			if n == 79 {
				want(t, "slots", e.Slots, 3)
				want(t, "source", e.SlotsSource, CapacityLearned)
			}
		}
	}
}
