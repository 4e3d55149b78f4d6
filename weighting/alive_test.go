package weighting

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// Requests that an endpoint's gauges do not show, because they are no work for its engine yet or
// never will be, are no sign that it stalls.
func TestRequestsThatNoGaugeShowsDoNotFlagAnEndpointThatWorks(t *testing.T) {
	type story struct {
		hidden      float64       // requests that no gauge shows, from the fifth second on
		generations float64       // long requests that the gauge shows
		every       time.Duration // between the ends of two of them; 0: none ends
		cache       bool          // the KV cache changes all the time
		silent      bool          // the servers are not scraped
		learn       time.Duration // of short requests before
	}
	for name, c := range map[string]story{
		"an idle WebSocket and long generations": {hidden: 1, generations: 2, every: 6 * second},
		"the same after many short requests, by its KV cache": {hidden: 1, generations: 2, every: 6 * second,
			learn: time.Minute, cache: true},
		"an idle WebSocket, and nothing else any more": {hidden: 1, learn: time.Minute},
		"the same without scrapes":                     {hidden: 1, learn: time.Minute, silent: true},
		"an upload and nothing else":                   {hidden: 1},
		"open gRPC streams and generations": {hidden: 5, generations: 2,
			every: 1500 * time.Millisecond},
		"the same after many short requests": {hidden: 5, generations: 2,
			every: 1500 * time.Millisecond, learn: time.Minute},
		"uploads and generations that fill the KV cache": {hidden: 5, generations: 2, every: 20 * second,
			cache: true},
		"uploads and a generation that fills the KV cache": {hidden: 3, generations: 1, cache: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newCountedPool(4)
			b, n := &w.endpoints[0], 0
			b.silent = c.silent
			flagged, _ := w.run(c.learn, func() { w.others(); b.serve(1); b.inFlight, b.running = 1, 1 })
			want(t, "flagged while it answers", flagged, -1)
			b.inFlight, b.running, n = 0, 0, 0
			w.run(5*second, w.others)
			flagged, d := w.run(3*time.Minute, func() {
				w.others()
				b.inFlight, b.running = c.hidden+c.generations, c.generations
				if n++; c.every > 0 && n%int(c.every/(100*time.Millisecond)) == 0 {
					b.serve(1)
				}
				if c.cache {
					b.cache = 0.1 + 0.001*float64(n%100)
				}
			})
			if flagged >= 0 {
				t.Errorf("flagged after %v; at the end %q", flagged, d.Endpoints[0].OverloadReason)
			}
		})
	}
}

// Streams that were open while the endpoint answered stay open when the traffic pauses.
func TestAPauseOfTheTrafficWithOpenStreamsIsNoStall(t *testing.T) {
	w := newCountedPool(4)
	b := &w.endpoints[0]
	busy := func() { w.others(); b.inFlight, b.running = 6, 2; b.serve(1) }
	pause := func() { w.others(); b.inFlight, b.running = 4, 0 }
	for range 5 {
		for _, do := range []func(){busy, pause} {
			if flagged, d := w.run(30*second, do); flagged >= 0 {
				t.Fatalf("flagged after %v: %s", flagged, d.Endpoints[0].OverloadReason)
			}
		}
	}
	// And a stall is found in spite of them.
	w.run(10*second, busy)
	flagged, d := w.run(5*second, func() { w.others(); b.inFlight, b.running = 7, 0 })
	t.Logf("flagged after %v: %s", flagged, d.Endpoints[0].OverloadReason)
	if flagged < 0 || flagged > 2500*time.Millisecond {
		t.Errorf("with three more in flight it was flagged after %v, want within 2.5 s", flagged)
	}
}

// While an engine computes a long prompt its gauges do not change.
func TestGaugesThatLagByAnIterationAreNoStall(t *testing.T) {
	for _, c := range []struct{ lag, every time.Duration }{
		{500 * time.Millisecond, 250 * time.Millisecond}, {2 * second, 250 * time.Millisecond},
		{2 * second, time.Second},
	} {
		t.Run(fmt.Sprintf("%v, reports each %v", c.lag, c.every), func(t *testing.T) {
			w := newCountedPool(4)
			w.reportEvery = c.every
			b, n := &w.endpoints[0], 0
			past := make([]float64, c.lag/(100*time.Millisecond)) // of the requests that are there
			flagged, d := w.run(3*time.Minute, func() {
				w.others()
				switch n++; n % 50 { // each five seconds some come at once, and are answered together
				case 1:
					b.inFlight, b.issued = 5, b.issued+5
				case 31:
					b.inFlight = 0
					b.ended, b.answered, b.completed = b.ended+5, b.answered+5, b.completed+5
				}
				b.running, past = past[0], append(slices.Clone(past[1:]), b.inFlight)
			})
			if flagged >= 0 {
				t.Errorf("flagged after %v; at the end %q", flagged, d.Endpoints[0].OverloadReason)
			}
		})
	}
}

// An engine that worked is gone at once: its requests stay in flight, and its gauges are those of an idle server.
func TestAnEngineThatIsGoneWithItsRequestsIsFoundWithinThreeSeconds(t *testing.T) {
	for _, every := range []time.Duration{250 * time.Millisecond, time.Second} {
		for phase := range 10 {
			w := newCountedPool(4)
			w.reportEvery = every
			b := &w.endpoints[0]
			w.run(20*second+time.Duration(phase)*100*time.Millisecond,
				func() { w.others(); b.inFlight, b.running = 4, 4; b.serve(0.1) })
			flagged, _ := w.run(5*second, func() { w.others(); b.inFlight, b.running = 4, 0 })
			if most := 2*second + every + 100*time.Millisecond; flagged < 0 || flagged > most {
				t.Errorf("reports each %v: flagged after %v, want within %v", every, flagged, most)
			}
		}
	}
}

// A stalled endpoint that is probed while its old requests are still in flight is flagged again for those that it gets
// then, and not for the old ones.
func TestRequestsFromBeforeAProbeDoNotCountAgain(t *testing.T) {
	w := newCountedPool(4)
	b := &w.endpoints[0]
	stands := func() { w.others(); b.inFlight, b.running = 3, 0 }
	if flagged, _ := w.run(5*second, stands); flagged < 0 {
		t.Fatal("not flagged")
	}
	for d := w.step(); d.Endpoints[0].Overloaded; d = w.step() {
		stands()
		if w.now.Sub(epoch) > 2*time.Minute {
			t.Fatal("never probed")
		}
	}
	flagged, _ := w.run(time.Minute, stands)
	want(t, "flagged for the old requests after", flagged, -1)
	flagged, _ = w.run(5*second, func() { w.others(); b.inFlight, b.running = 5, 0 })
	if flagged < 0 || flagged > 3*second {
		t.Errorf("flagged for two new ones after %v, want within 3 s", flagged)
	}
}
