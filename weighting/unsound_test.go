package weighting

import (
	"testing"
	"time"
)

// Behind an address where several servers answer in turn, counters go back at every other reading. An engine that
// restarts, even some times in an hour, goes on to count.
func TestCountersThatGoBackOftenAreNotUsed(t *testing.T) {
	type reading struct {
		after    time.Duration // since the reading before
		restarts int
		used     bool
	}
	for _, c := range []struct {
		name     string
		readings []reading
	}{
		{"servers in turn", []reading{
			{time.Second, 1, true}, {time.Second, 1, true}, {time.Second, 2, true}, {time.Second, 2, true},
			{time.Second, 3, false}, {time.Second, 3, false}, {time.Second, 4, false}, {20 * time.Second, 4, false},
		}},
		{"one server again", []reading{
			{time.Second, 1, true}, {time.Second, 2, true}, {time.Second, 3, false}, {time.Minute, 3, true},
			{time.Second, 3, true},
		}},
		{"an engine that restarts every five minutes", []reading{
			{5 * time.Minute, 1, true}, {5 * time.Minute, 2, true}, {5 * time.Minute, 3, true},
			{5 * time.Minute, 4, true},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			at, known := epoch, prompts{}
			e := engineState{speed: 3}
			e.efficiency.add(&stint{1e5, 100, 0, 20})
			tokens := TokenCounts{At: at}
			m := &member{Endpoint: &Endpoint{Server: ServerReport{Tokens: tokens}}, memory: &memory{}}
			m.observe(m.Endpoint, at, 0)
			for i, r := range c.readings {
				at = at.Add(r.after)
				m.Server.Tokens = TokenCounts{At: at, Prompt: float64(i), First: float64(i)}
				m.Server.Restarts = r.restarts
				m.observe(m.Endpoint, at, 0)
				e.learn(&known, cost{}, &m.server, &m.passed, m.countsTokens(), false)
				if used := m.countsTokens(); used != r.used {
					t.Fatalf("reading %d, after %v: used %v, want %v", i, r.after, used, r.used)
				}
				if !r.used && (e.speed != 1 || e.efficiency != efficiency{}) {
					t.Errorf("reading %d: relative speed %v, by %v s, want none", i, e.speed, e.efficiency.seconds())
				}
			}
		})
	}
}

// A user who lists the address of a Service instead of its servers has to learn that, whatever the servers export.
func TestADecisionShowsThatCountersGoBack(t *testing.T) {
	law := NewLaw(DefaultParams())
	step := func(after float64, restarts int) bool {
		now := at(after)
		e := scraped("a", 0, 0, 1, now)
		e.Server.Restarts = restarts
		d := law.Step(now, Snapshot{Endpoints: []Endpoint{e, scraped("b", 0, 0, 1, now)}})
		want(t, "counters of another server go back", of(t, d, "b").CountersGoBack, false)
		return of(t, d, "a").CountersGoBack
	}
	want(t, "at first", step(0, 0), false)
	want(t, "after two times", step(1, 1) || step(2, 2), false)
	want(t, "after three times", step(3, 3), true)
	want(t, "a while later", step(10, 3), true)
	want(t, "a minute later", step(75, 3), false)
}

// A counter that rose by more than any server can count did not go back, and is no other process.
func TestCountersThatLeapDoNotGoBack(t *testing.T) {
	law := NewLaw(DefaultParams())
	for i := range 10 {
		now := at(float64(i))
		e := scraped("a", 0, 0, 1, now)
		e.Server.Implausible = i
		d := law.Step(now, Snapshot{Endpoints: []Endpoint{e}})
		want(t, "counters go back", of(t, d, "a").CountersGoBack, false)
		want(t, "restarts", of(t, d, "a").Restarts, 0)
	}
}
