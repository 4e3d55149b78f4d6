package weighting

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

// queues is a pool with 4 slots each, all taken, and these queues for each slot.
func queues(at time.Time, perSlot ...float64) []Endpoint {
	var out []Endpoint
	for i, q := range perSlot {
		out = append(out, scraped(fmt.Sprint(i), 4, 4*q, 4, at))
	}
	return out
}

// flagged lists the flagged endpoints' addresses.
func flagged(d Decision) []string {
	out := []string{}
	for _, e := range d.Endpoints {
		if e.Overloaded {
			out = append(out, e.Address)
		}
	}
	return out
}

func TestOverloadFlagOverTime(t *testing.T) {
	type moment struct {
		after  time.Duration // since the moment before
		report func(at time.Time) Endpoint
		flag   bool
		reason string
	}
	queue := func(perSlot float64) func(time.Time) Endpoint {
		return func(at time.Time) Endpoint { return scraped("x", 4, 4*perSlot, 4, at) }
	}
	cache := func(utilization, perSlot float64) func(time.Time) Endpoint {
		return func(at time.Time) Endpoint {
			e := scraped("x", 4, 4*perSlot, 4, at)
			e.Server.Utilization = known(utilization, at)
			return e
		}
	}
	silent := func(time.Time) Endpoint { return Endpoint{Address: "x", Capacity: 4} }
	const byQueue, byCache = "queue per slot 4 >= 4", "utilization 0.98 >= 0.98"
	for name, story := range map[string][]moment{
		"enters at the threshold, not under it": {
			{0, queue(3.99), false, ""}, {second, queue(4), true, byQueue},
		},
		"leaves under the lower threshold only": {
			{0, queue(4), true, byQueue}, {10 * second, queue(2), true, byQueue}, {1, queue(1.99), false, ""},
		},
		"stays at least for the dwell": {
			{0, queue(4), true, byQueue}, {2*second - 1, queue(0), true, byQueue}, {1, queue(0), false, ""},
		},
		"stays away at least for the dwell": {
			{0, queue(4), true, byQueue}, {2 * second, queue(0), false, ""},
			{2*second - 1, queue(9), false, ""}, {1, queue(9), true, "queue per slot 9 >= 4"},
		},
		"by utilization": {
			{0, cache(0.979, 0), false, ""}, {second, cache(0.98, 0), true, byCache},
			{2 * second, cache(0.9, 0), true, byCache}, {1, cache(0.899, 0), false, ""},
		},
		"both must be under to leave": {
			{0, cache(0.98, 4), true, byQueue}, {2 * second, cache(0.98, 0), true, byQueue},
			{second, cache(0.5, 3), true, byQueue}, {second, cache(0.5, 1), false, ""},
		},
		"late evidence counts, stale evidence is none": {
			{0, queue(4), true, byQueue}, {10 * second, silent, true, byQueue}, {1, silent, false, ""},
		},
		"nothing known is not overloaded": {{0, silent, false, ""}},
		"by in-flight counts where the slots are known": {
			{0, func(at time.Time) Endpoint { return counted("x", 4, 19, at) }, false, ""},
			{second, func(at time.Time) Endpoint { return counted("x", 4, 20, at) }, true, byQueue},
		},
		"where the slots are assumed, what runs at once is no fewer": {
			{0, func(at time.Time) Endpoint { return scraped("x", 0, 31, 8, at) }, false, ""},
			{second, func(at time.Time) Endpoint { return scraped("x", 0, 32, 8, at) }, true, byQueue},
		},
		"not by in-flight counts where the slots are assumed": {
			{0, func(at time.Time) Endpoint { return counted("x", 0, 1000, at) }, false, ""},
		},
	} {
		t.Run(name, func(t *testing.T) {
			law, now := NewLaw(DefaultParams()), epoch
			for i, m := range story {
				now = now.Add(m.after)
				// Two quiet neighbours: x is at most a third of the pool.
				d := law.Step(now, Snapshot{Endpoints: append(queues(now, 0, 0), m.report(now))})
				x := of(t, d, "x")
				want(t, fmt.Sprintf("moment %d: flag", i), x.Overloaded, m.flag)
				want(t, fmt.Sprintf("moment %d: reason", i), x.OverloadReason, m.reason)
			}
		})
	}
}

func TestNewEndpointInBlackoutIsNotOverloaded(t *testing.T) {
	law := NewLaw(DefaultParams())
	law.Step(epoch, Snapshot{Endpoints: queues(epoch, 0, 0)})
	now := epoch.Add(second)
	d := law.Step(now, Snapshot{Endpoints: append(queues(now, 0, 0), scraped("x", 4, 1000, 4, now))})
	want(t, "flag", of(t, d, "x").Overloaded, false)
	now = now.Add(second)
	d = law.Step(now, Snapshot{Endpoints: append(queues(now, 0, 0), scraped("x", 4, 1000, 4, now))})
	want(t, "flag after the blackout", of(t, d, "x").Overloaded, true)
}

func TestAtMostAShareOfThePoolIsFlagged(t *testing.T) {
	for _, c := range []struct {
		name  string
		share float64
		steps [][]float64 // queues per slot, three seconds apart
		flags []string    // after the last
	}{
		{"half of four", 0.5, [][]float64{{9, 9, 9, 0}}, []string{"0", "1"}},
		{"half of three, rounded down", 0.5, [][]float64{{9, 9, 0}}, []string{"0"}},
		{"longest overloaded first", 0.5, [][]float64{{0, 0, 9, 0}, {9, 9, 9, 0}}, []string{"0", "2"}},
		{"the same stay flagged, however deep the others", 0.5, [][]float64{{0, 0, 9, 0}, {9, 0, 9, 0}, {9, 99, 9, 0}},
			[]string{"0", "2"}},
		{"one leaves, the next moves up", 0.5, [][]float64{{9, 9, 9, 0}, {0, 9, 9, 0}}, []string{"1", "2"}},
		{"all of it", 0.5, [][]float64{{9, 9, 9, 9}}, []string{"0", "1", "2", "3"}},
		{"no longer all of it", 0.5, [][]float64{{9, 9, 9, 9}, {9, 9, 9, 0}}, []string{"0", "1"}},
		{"a pool of one", 0.5, [][]float64{{9}}, []string{"0"}},
		{"none may", 0, [][]float64{{9, 9, 9, 0}}, []string{}},
		{"less than none", -1, [][]float64{{9, 9, 9, 0}}, []string{}},
		{"more than all", 7, [][]float64{{9, 9, 9, 0}}, []string{"0", "1", "2"}},
		{"29 of 100", 0.29, [][]float64{slices.Concat(slices.Repeat([]float64{9}, 99), []float64{0})}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := DefaultParams()
			p.Overload.MaxShare = c.share
			law := NewLaw(p)
			var d Decision
			for i, q := range c.steps {
				now := epoch.Add(time.Duration(3*i) * second)
				d = law.Step(now, Snapshot{Endpoints: queues(now, q...)})
			}
			got := flagged(d)
			if c.flags == nil {
				want(t, "number of flags", len(got), 29)
			} else if !slices.Equal(got, c.flags) {
				t.Errorf("flagged %v, want %v", got, c.flags)
			}
			for _, e := range d.Endpoints {
				want(t, e.Address+" has a reason", e.OverloadReason != "", e.Overloaded)
			}
		})
	}
}

// One that was overloaded for long, and is flagged when another leaves, is not
// unflagged a moment later.
func TestFlagOnceShownLastsForTheDwell(t *testing.T) {
	law := NewLaw(DefaultParams())
	step := func(at time.Duration, q ...float64) []string {
		now := epoch.Add(at)
		return flagged(law.Step(now, Snapshot{Endpoints: queues(now, q...)}))
	}
	step(0, 9, 9, 9, 0)
	if got := step(5*second, 0, 9, 9, 0); !slices.Equal(got, []string{"1", "2"}) {
		t.Fatalf("flagged %v, want 2 to move up", got)
	}
	if got := step(7*second-1, 0, 9, 0, 0); !slices.Equal(got, []string{"1", "2"}) {
		t.Errorf("flagged %v just before the end of the dwell", got)
	}
	if got := step(7*second, 0, 9, 0, 0); !slices.Equal(got, []string{"1"}) {
		t.Errorf("flagged %v at the end of the dwell", got)
	}
}

// waited is an endpoint whose requests, completed since the last report, had waited
// so long in the mean.
type waited struct{ completed, queueSeconds float64 }

func (w *waited) report(at time.Time, n, mean float64) Endpoint {
	w.completed += n
	w.queueSeconds += n * mean
	e := scraped("x", 4, 0, 4, at)
	e.Server.Completions, e.Server.QueueSeconds = known(w.completed, at), known(w.queueSeconds, at)
	return e
}

func TestOverloadByMeanQueueTime(t *testing.T) {
	p := DefaultParams()
	p.Overload.QueueTimeEnter, p.Overload.QueueTimeLeave = 3*second, second
	for _, on := range []bool{true, false} {
		if !on {
			p = DefaultParams() // where it is off
		}
		law, now, w := NewLaw(p), epoch, &waited{}
		run := func(length time.Duration, n, mean float64) EndpointDecision {
			var d Decision
			for end := now.Add(length); now.Before(end); {
				now = now.Add(second)
				d = law.Step(now, Snapshot{Endpoints: append(queues(now, 0, 0), w.report(now, n, mean))})
			}
			return of(t, d, "x")
		}
		want(t, "flag at two seconds", run(20*second, 4, 2).Overloaded, false)
		e := run(20*second, 4, 4)
		want(t, "flag at four seconds", e.Overloaded, on)
		if on && !strings.HasPrefix(e.OverloadReason, "mean queue time 3") {
			t.Errorf("reason %q", e.OverloadReason)
		}
		want(t, "flag between the thresholds", run(20*second, 4, 2).Overloaded, on)
		want(t, "flag under the lower one", run(20*second, 4, 0.5).Overloaded, false)
		want(t, "flag at four seconds again", run(20*second, 4, 4).Overloaded, on)
		want(t, "flag while it completes nothing", run(5*second, 0, 0).Overloaded, on)
		want(t, "flag when that was long ago", run(20*second, 0, 0).Overloaded, false)
	}
}

// The others catch up with a queue for a moment, as when many requests come at once: that takes no flag down.
func TestAFlagGoesDownOnceTheOthersHaveCaughtUpForTheDwell(t *testing.T) {
	law, now, completed := NewLaw(DefaultParams()), epoch, 0.0
	run := func(length time.Duration, others float64) []string {
		var d Decision
		for end := now.Add(length); now.Before(end); {
			now = now.Add(100 * time.Millisecond)
			completed += 0.4
			s := Snapshot{Endpoints: queues(now, 9, others, others)}
			for i := range s.Endpoints {
				s.Endpoints[i].Server.Completions = known(completed, now)
			}
			d = law.Step(now, s)
		}
		return flagged(d)
	}
	want(t, "flags", fmt.Sprint(run(5*second, 0)), "[0]")
	want(t, "flags when the others catch up", fmt.Sprint(run(100*time.Millisecond, 9)), "[0]")
	want(t, "flags a while later", fmt.Sprint(run(3*second, 0)), "[0]")
	want(t, "flags when they are level", fmt.Sprint(run(1500*time.Millisecond, 9)), "[0]")
	want(t, "flags when they have been for the dwell", fmt.Sprint(run(second, 9)), "[]")
}

func TestParamsCanChangeWhileWhatWasLearnedStays(t *testing.T) {
	law := NewLaw(DefaultParams())
	var now time.Time
	for i := range 5 {
		now = epoch.Add(time.Duration(i) * second)
		law.Step(now, Snapshot{Endpoints: []Endpoint{scraped("0", 0, 36, 4, now), scraped("1", 0, 4, 4, now)}})
	}
	p := DefaultParams()
	p.Overload.QueueEnter, p.Overload.QueueLeave = 100, 50
	law.SetParams(p)
	d := law.Step(now, Snapshot{Endpoints: []Endpoint{scraped("0", 0, 36, 4, now), scraped("1", 0, 4, 4, now)}})
	want(t, "slots", of(t, d, "0").Slots, 4)
	want(t, "flag", of(t, d, "0").Overloaded, false)
}

// A flag lasts for a while, and a queue that is gone by then needs none: at 50 ms
// a request, four waiting are an accident of a fifth of a second.
func TestAQueueThatDrainsBeforeAFlagFallsRaisesNone(t *testing.T) {
	for _, c := range []struct {
		name      string
		perSecond float64 // completions; NaN: not reported
		want      bool
	}{
		{"20 a second", 20, false},
		{"1 a second", 1, true},
		{"none", 0, true},
		{"unknown", math.NaN(), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			law := NewLaw(DefaultParams())
			var d Decision
			for i := range 50 {
				s := float64(i) * 0.1
				read := func(v float64) Reading { return Reading{Value: v, At: at(s)} }
				busy := ServerReport{Queue: read(0), Running: read(1)}
				if s > 2 {
					busy.Queue = read(5)
				}
				if !math.IsNaN(c.perSecond) {
					busy.Completions = read(c.perSecond * s)
				}
				d = law.Step(at(s), Snapshot{Endpoints: []Endpoint{
					{Address: "10.0.0.1:80", Capacity: 1, Server: busy},
					{Address: "10.0.0.2:80", Capacity: 1, Server: ServerReport{Queue: read(0), Running: read(1)}},
				}})
			}
			if got := d.Endpoints[0].Overloaded; got != c.want {
				t.Errorf("flagged: %v, want %v", got, c.want)
			}
		})
	}
}
