package weighting

import (
	"math"
	"testing"
	"time"
)

// Every way in which the two signals of one endpoint can stand to each other.
// The server has 4 slots; it was scraped every 250 ms and counted every 100 ms
// for ten seconds, and then the signals are of the ages given.
func TestFusionOfTheTwoSignals(t *testing.T) {
	const never = -1
	for _, c := range []struct {
		name                   string
		queue, running         float64       // as scraped all the time
		inFlight               float64       // as counted all the time
		inFlightNow            float64       // as counted last
		scrapeAge, inFlightAge time.Duration // never: no such source
		load, unproxied        float64
		source                 LoadSource
		reason                 Reason
	}{
		{"both agree", 2, 4, 6, 6, 0, 0, 6, 0, LoadFused, ReasonFill},
		{"in-flight is early", 2, 4, 6, 9, second, 0, 9, 0, LoadFused, ReasonFill},
		{"unproxied traffic is seen", 5, 4, 6, 6, 0, 0, 9, 3, LoadFused, ReasonFill},
		{"unproxied traffic adds to new counts", 5, 4, 6, 8, second, 0, 11, 3, LoadFused, ReasonFill},
		{"leaked counts are taken off", 0, 1, 6, 6, 0, 0, 1, -5, LoadFused, ReasonFill},
		{"leaked counts are taken off new ones", 0, 1, 6, 8, second, 0, 3, -5, LoadFused, ReasonFill},
		{"load is never negative", 0, 1, 6, 2, second, 0, 0, -5, LoadFused, ReasonFill},
		{"half a request is noise", 2, 4, 6.5, 6.5, 0, 0, 6.5, 0, LoadFused, ReasonFill},
		{"half a request is noise, the other way", 2, 4, 5.5, 5.5, 0, 0, 5.5, 0, LoadFused, ReasonFill},
		{"three quarters count half", 2, 4, 6.75, 6.75, 0, 0, 6.375, -0.375, LoadFused, ReasonFill},
		{"three quarters count half, the other way", 2, 4, 5.25, 5.25, 0, 0, 5.625, 0.375, LoadFused, ReasonFill},
		{"a whole request counts in full", 2, 4, 7, 7, 0, 0, 6, -1, LoadFused, ReasonFill},
		{"in-flight only", 0, 0, 6, 6, never, 0, 6, 0, LoadInFlight, ReasonFill},
		{"in-flight only, held", 0, 0, 6, 6, never, 3 * second, 6, 0, LoadInFlight, ReasonFill},
		{"scraped only", 2, 4, 0, 0, 0, never, 6, 0, LoadScraped, ReasonFill},
		{"scraped only, held", 2, 4, 0, 0, 3 * second, never, 6, 0, LoadScraped, ReasonFill},
		{"scrape held, in-flight fresh", 5, 4, 6, 7, 3 * second, 0, 10, 3, LoadFused, ReasonFill},
		{"scrape half decayed, in-flight fresh: half of the correction", 5, 4, 6, 7, 6500 * time.Millisecond, 0, 8.5,
			1.5, LoadFused, ReasonFill},
		{"scrape stale, in-flight fresh: no correction is left", 5, 4, 6, 7, 11 * second, 0, 7, 0, LoadInFlight,
			ReasonFill},
		{"in-flight held, scrape fresh", 5, 4, 6, 6, 0, 3 * second, 9, 3, LoadFused, ReasonFill},
		{"in-flight decaying, scrape fresh", 5, 4, 6, 6, 0, 3*second + 1, 9, 0, LoadScraped, ReasonFill},
		{"in-flight stale, scrape fresh", 5, 4, 6, 6, 0, 11 * second, 9, 0, LoadScraped, ReasonFill},
		// Without another endpoint the median is its own.
		{"both decaying, in-flight younger", 5, 4, 6, 6, 6500 * time.Millisecond, 4 * second, 7.5, 1.5, LoadFused,
			ReasonDecay},
		{"both decaying, scrape younger", 5, 4, 6, 6, 4 * second, 6500 * time.Millisecond, 9, 0, LoadScraped,
			ReasonDecay},
		{"both stale", 5, 4, 6, 6, 11 * second, 11 * second, 4, 0, LoadMedian, ReasonNeutral},
		{"neither known: just full", 0, 0, 0, 0, never, never, 4, 0, LoadMedian, ReasonNeutral},
	} {
		t.Run(c.name, func(t *testing.T) {
			now := epoch.Add(time.Minute)
			law := NewLaw(DefaultParams())
			x := Endpoint{Address: "x", Capacity: 4}
			lastScrape, lastCount := now.Add(-c.scrapeAge), now.Add(-c.inFlightAge)
			for at := now.Add(-25 * second); !at.After(now); at = at.Add(50 * time.Millisecond) {
				if c.inFlightAge != never && !at.After(lastCount) {
					x.InFlight = known(c.inFlight, at)
				}
				if at.Equal(lastCount) && c.inFlightAge != never && c.scrapeAge > 0 {
					x.InFlight.Value = c.inFlightNow
				}
				if c.scrapeAge != never && !at.After(lastScrape) && at.Sub(epoch)%(250*time.Millisecond) == 0 {
					x.Server = scraped("", 0, c.queue, c.running, at).Server
				}
				law.Step(at, Snapshot{Endpoints: []Endpoint{x}})
			}
			// The border's nanosecond is not on the grid of the loop.
			if c.inFlightAge != never {
				x.InFlight.At = lastCount
			}
			e := of(t, law.Step(now, Snapshot{Endpoints: []Endpoint{x}}), "x")
			wantNear(t, "load", e.Load, c.load, 1e-6)
			wantNear(t, "unproxied", e.Unproxied, c.unproxied, 1e-6)
			want(t, "source", e.LoadSource, c.source)
			want(t, "reason", e.Reason, c.reason)
		})
	}
}

// Unproxied traffic that begins is trusted within a few scrapes, and what has
// gone is forgotten as fast.
func TestCorrectionFollowsWithinSeconds(t *testing.T) {
	law := NewLaw(DefaultParams())
	unproxied := func(tick int) float64 {
		if tick >= 40 && tick < 120 {
			return 8
		}
		return 0
	}
	for tick := range 200 {
		now := epoch.Add(time.Duration(tick) * 250 * time.Millisecond)
		e := scraped("x", 16, 0, 4+unproxied(tick), now)
		e.InFlight = known(4, now)
		got := of(t, law.Step(now, Snapshot{Endpoints: []Endpoint{e}}), "x").Unproxied
		switch tick {
		case 39, 199:
			wantNear(t, "before and after", got, 0, 1e-9)
		case 60: // five seconds after the change: e^(-5/2) is left of it
			wantNear(t, "five seconds in", got, 8, 0.1)
		}
	}
}

// A server that exports only one of queue and running cannot correct a count.
func TestHalfAReportCorrectsNothing(t *testing.T) {
	for name, blind := range map[string]func(*ServerReport){
		"without queue":   func(r *ServerReport) { r.Queue = Reading{} },
		"without running": func(r *ServerReport) { r.Running = Reading{} },
		"queue much older": func(r *ServerReport) {
			if r.Queue.At.After(epoch) {
				r.Queue.At = epoch
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			law := NewLaw(DefaultParams())
			var e EndpointDecision
			for i := range 20 {
				now := epoch.Add(time.Duration(i+4) * 500 * time.Millisecond)
				x := scraped("x", 0, 6, 4, now)
				blind(&x.Server)
				x.InFlight = known(10, now)
				e = of(t, law.Step(now, Snapshot{Endpoints: []Endpoint{x}}), "x")
			}
			want(t, "load", e.Load, 10)
			want(t, "unproxied", e.Unproxied, 0)
			want(t, "source", e.LoadSource, LoadInFlight)
		})
	}
}

// Triton has no gauge of running requests. While none waits anything from none
// to a full set of slots may run, so a count between them stands as it is.
func TestCountsOfATritonLikeServerAreCorrectedOnlyAsFarAsNeeded(t *testing.T) {
	for _, c := range []struct {
		name            string
		capacity        float64
		queue, inFlight float64
		load, unproxied float64
	}{
		{"idle slots, plausible count", 4, 0, 1, 1, 0},
		{"full slots, plausible count", 4, 0, 4, 4, 0},
		{"nothing waits: the count has leaked", 4, 0, 9, 4, -5},
		{"a queue means full slots", 4, 3, 7, 7, 0},
		{"a queue shows leaked counts", 4, 3, 9, 7, -2},
		{"a queue shows unproxied traffic", 4, 3, 2, 7, 5},
		{"unknown slots show nothing", 0, 3, 11, 11, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			law := NewLaw(DefaultParams())
			var e EndpointDecision
			for i := range 60 {
				now := epoch.Add(time.Duration(i) * 250 * time.Millisecond)
				seconds := now.Sub(epoch).Seconds()
				x := Endpoint{Address: "x", Capacity: c.capacity, InFlight: known(c.inFlight, now),
					Server: ServerReport{
						Queue: known(c.queue, now), Completions: known(math.Floor(seconds), now),
					}}
				if c.capacity > 0 {
					x.Server.BusySeconds = known(math.Floor(seconds), now)
				}
				e = of(t, law.Step(now, Snapshot{Endpoints: []Endpoint{x}}), "x")
			}
			wantNear(t, "load", e.Load, c.load, 1e-3)
			wantNear(t, "unproxied", e.Unproxied, c.unproxied, 1e-3)
		})
	}
}

// TestCountsAreRememberedForAsLongAsAScrapeTakes: a scrape that took half a second is paired
// with the count of its moment, however often counts come.
func TestCountsAreRememberedForAsLongAsAScrapeTakes(t *testing.T) {
	for _, every := range []time.Duration{time.Millisecond, 3 * time.Millisecond, 5 * time.Millisecond,
		10 * time.Millisecond, 50 * time.Millisecond} {
		t.Run(every.String(), func(t *testing.T) {
			var m memory
			for now := time.Duration(0); now < 10*time.Second; now += every {
				m.observeInFlight(Reading{Value: now.Seconds(), At: epoch.Add(now)}) // the count is its own time
				for _, back := range []time.Duration{0, every, 100 * time.Millisecond, 600 * time.Millisecond} {
					at := max(0, now-back)
					got, ok := m.inFlightNear(epoch.Add(at), 500*time.Millisecond)
					if off := time.Duration(math.Abs(got-at.Seconds()) * 1e9).Round(time.Microsecond); !ok ||
						off > max(every, 10*time.Millisecond) || back == 0 && off > 0 {
						t.Fatalf("after %v, of %v before: the count of %v off, known %v", now, back, off, ok)
					}
				}
			}
		})
	}
}
