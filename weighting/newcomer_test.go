package weighting

import (
	"testing"
	"time"
)

func TestEndpointsOfTheFirstStepAreEstablished(t *testing.T) {
	law := NewLaw(DefaultParams())
	if d := law.Step(epoch, Snapshot{}); len(d.Endpoints) != 0 {
		t.Fatalf("endpoints of an empty pool: %v", d.Endpoints)
	}
	// A step without endpoints is not the first.
	d := law.Step(epoch, Snapshot{Endpoints: []Endpoint{scraped("a", 4, 0, 2, epoch), scraped("b", 4, 0, 2, epoch)}})
	for _, e := range d.Endpoints {
		want(t, e.Address+" ramp", e.Ramp, 1)
		want(t, e.Address+" reason", e.Reason, ReasonFill)
		want(t, e.Address+" load source", e.LoadSource, LoadScraped)
		want(t, e.Address+" share", e.Share, 0.5)
	}
}

func TestNewEndpointIsInBlackoutThenRamps(t *testing.T) {
	for _, c := range []struct {
		name   string
		age    time.Duration
		ramp   float64
		load   float64 // two requests by its own report; a median endpoint has one for each slot
		source LoadSource
		reason Reason
	}{
		{"just there", 0, 0.1, 0.4, LoadMedian, ReasonBlackout},
		{"last moment of the blackout", second - 1, 0.1, 0.4, LoadMedian, ReasonBlackout},
		{"end of the blackout", second, 0.1, 2, LoadScraped, ReasonRamp},
		{"half way", 6 * second, 0.55, 2, LoadScraped, ReasonRamp},
		{"a tenth before the end", 10 * second, 0.91, 2, LoadScraped, ReasonRamp},
		{"end of the ramp", 11 * second, 1, 2, LoadScraped, ReasonFill},
		{"for good", time.Hour, 1, 2, LoadScraped, ReasonFill},
	} {
		t.Run(c.name, func(t *testing.T) {
			law := NewLaw(DefaultParams())
			start := epoch.Add(time.Hour)
			pool := func(now time.Time) []Endpoint {
				return []Endpoint{scraped("a", 4, 0, 4, now), scraped("b", 4, 0, 4, now)}
			}
			law.Step(start.Add(-second), Snapshot{Endpoints: pool(start)})
			law.Step(start, Snapshot{Endpoints: append(pool(start), scraped("x", 4, 0, 2, start))})
			now := start.Add(c.age)
			x := of(t, law.Step(now, Snapshot{Endpoints: append(pool(now), scraped("x", 4, 0, 2, now))}), "x")
			wantNear(t, "ramp", x.Ramp, c.ramp, 1e-6)
			wantNear(t, "capacity", x.Capacity, 4*c.ramp, 1e-6)
			wantNear(t, "load", x.Load, c.load, 1e-6)
			want(t, "load source", x.LoadSource, c.source)
			want(t, "reason", x.Reason, c.reason)
		})
	}
}

func TestBlackoutAndRampCanBeOff(t *testing.T) {
	for name, c := range map[string]struct {
		blackout, ramp time.Duration
		want           float64
	}{
		"neither":       {0, 0, 1},
		"blackout only": {second, 0, 0.1},
		"ramp only":     {0, second, 0.1},
	} {
		t.Run(name, func(t *testing.T) {
			p := DefaultParams()
			p.Blackout, p.Ramp = c.blackout, c.ramp
			law := NewLaw(p)
			law.Step(epoch, Snapshot{Endpoints: []Endpoint{scraped("a", 4, 0, 0, epoch)}})
			d := law.Step(epoch, Snapshot{Endpoints: []Endpoint{scraped("x", 4, 0, 0, epoch)}})
			want(t, "ramp at once", of(t, d, "x").Ramp, c.want)
			now := epoch.Add(second)
			d = law.Step(now, Snapshot{Endpoints: []Endpoint{scraped("x", 4, 0, 0, now)}})
			want(t, "ramp after a second", of(t, d, "x").Ramp, 1)
		})
	}
}

func TestBlinkingEndpointKeepsItsMemoryUntilItWouldBeStale(t *testing.T) {
	for _, c := range []struct {
		name   string
		away   time.Duration
		reason Reason
		slots  CapacitySource
	}{
		{"a moment", second, ReasonFill, CapacityLearned},
		{"as long as a report lasts", 10 * second, ReasonFill, CapacityLearned},
		{"longer", 10*second + 1, ReasonBlackout, CapacityAssumed},
	} {
		t.Run(c.name, func(t *testing.T) {
			law := NewLaw(DefaultParams())
			var now time.Time
			for i := range 20 { // 6 run while others wait
				now = epoch.Add(time.Duration(i) * second)
				law.Step(now, Snapshot{Endpoints: []Endpoint{scraped("a", 4, 0, 1, now), scraped("x", 0, 2, 6, now)}})
			}
			now = now.Add(c.away)
			law.Step(now, Snapshot{Endpoints: []Endpoint{scraped("a", 4, 0, 1, now)}})
			x := of(t, law.Step(now,
				Snapshot{Endpoints: []Endpoint{scraped("a", 4, 0, 1, now), scraped("x", 0, 0, 1, now)}}), "x")
			want(t, "reason", x.Reason, c.reason)
			want(t, "source of the slots", x.SlotsSource, c.slots)
		})
	}
}

// TestAnotherEndpointAtAnOldAddressIsNew: what was learned of the one before does not hold for it.
func TestAnotherEndpointAtAnOldAddressIsNew(t *testing.T) {
	for name, c := range map[string]struct {
		before, after string // IDs
		ramp          float64
	}{
		"the same endpoint": {"uid-1", "uid-1", 1},
		"another one":       {"uid-1", "uid-2", 0.1},
		"known from now on": {"", "uid-1", 1},
		"unknown again":     {"uid-1", "", 1},
	} {
		t.Run(name, func(t *testing.T) {
			law := NewLaw(DefaultParams())
			at := func(id string, now time.Time) Snapshot {
				x := scraped("x", 4, 0, 2, now)
				x.ID = id
				return Snapshot{Endpoints: []Endpoint{scraped("a", 4, 0, 4, now), x}}
			}
			law.Step(epoch, at(c.before, epoch))
			now := epoch.Add(2 * second)
			x := of(t, law.Step(now, at(c.after, now)), "x")
			wantNear(t, "ramp", x.Ramp, c.ramp, 1e-6)
		})
	}
}
