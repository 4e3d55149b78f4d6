package weighting

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// A ward is a pool of endpoints whose requests the proxies count exactly, one step
// each 100 ms, reports as often.
type ward struct {
	law   *Law
	now   time.Time
	beds  []bed
	moved time.Duration // between two reports
}

// A bed is what is true of one endpoint.
type bed struct {
	inFlight                 float64 // as the proxies count
	queue, running           float64 // as the server says
	cache                    float64 // the same, of its KV cache; 0: it does not say
	silent                   bool    // the server is not scraped
	noGauge                  bool    // of what runs
	issued, ended, failed    float64
	errors                   float64 // besides those that failed
	answered, completed      float64
	succeeded                float64 // the most that was answered without an error
	brief                    bool    // the proxies tell no answers, as load reports do
	partial                  bool    // some of the proxies tell none
	drifts                   bool    // the count is not exact
	report                   ServerReport
	capacity, reportedLately float64
}

func newWard(n int) *ward {
	w := &ward{law: NewLaw(DefaultParams()), now: epoch, beds: make([]bed, n), moved: 250 * time.Millisecond}
	for i := range w.beds {
		w.beds[i].capacity = 4
	}
	return w
}

// serve lets requests be answered.
func (b *bed) serve(n float64) {
	b.issued, b.ended, b.answered, b.completed = b.issued+n, b.ended+n, b.answered+n, b.completed+n
}

func (b *bed) endpoint(i int, now time.Time) Endpoint {
	e := Endpoint{Address: fmt.Sprint(i), Capacity: b.capacity, Exact: !b.drifts, InFlight: known(b.inFlight, now), Server: b.report}
	b.succeeded = max(b.succeeded, b.answered-b.failed-b.errors)
	e.Proxies = ProxyReport{Issued: known(b.issued, now), Ended: known(b.ended, now), Errors: known(b.errors, now), Succeeded: known(b.succeeded, now)}
	if !b.brief {
		e.Proxies.Failed, e.Proxies.Answered, e.Proxies.Partial = known(b.failed, now), known(b.answered, now), b.partial
	}
	return e
}

// step moves on by 100 ms.
func (w *ward) step() Decision {
	const tick = 100 * time.Millisecond
	w.now = w.now.Add(tick)
	s := Snapshot{PushPeriod: tick}
	for i := range w.beds {
		b := &w.beds[i]
		if due := w.now.Sub(epoch) / w.moved; !b.silent && due > time.Duration(b.reportedLately) {
			b.reportedLately = float64(due)
			b.report = ServerReport{Queue: known(b.queue, w.now), Completions: known(b.completed, w.now)}
			if !b.noGauge {
				b.report.Running = known(b.running, w.now)
			}
			if b.cache > 0 {
				b.report.Utilization = known(b.cache, w.now)
			}
		}
		s.Endpoints = append(s.Endpoints, b.endpoint(i, w.now))
	}
	return w.law.Step(w.now, s)
}

// run steps for that long while do changes what is true, and returns when the first
// endpoint was first flagged, negative for never.
func (w *ward) run(length time.Duration, do func()) (flagged time.Duration, last Decision) {
	flagged = -1
	for from := w.now; w.now.Sub(from) < length; {
		if do != nil {
			do()
		}
		last = w.step()
		if last.Endpoints[0].Overloaded && flagged < 0 {
			flagged = w.now.Sub(from)
		}
	}
	return flagged, last
}

// others are busy and answer.
func (w *ward) others() {
	for i := range w.beds[1:] {
		b := &w.beds[i+1]
		b.inFlight, b.running = 2, 2
		b.serve(1)
	}
}

func TestAnEndpointWhoseReportDeniesItsRequestsIsStalled(t *testing.T) {
	for name, c := range map[string]struct {
		stall func(*bed)
		every time.Duration // reports
		flag  bool
	}{
		"idle by its own report":       {func(b *bed) { b.inFlight, b.running = 3, 0 }, 250 * time.Millisecond, true},
		"a report each second":         {func(b *bed) { b.inFlight, b.running = 3, 0 }, time.Second, true},
		"two requests":                 {func(b *bed) { b.inFlight, b.running = 2, 0 }, 250 * time.Millisecond, true},
		"a single request":             {func(b *bed) { b.inFlight, b.running = 1, 0 }, 250 * time.Millisecond, false},
		"it sees one of two":           {func(b *bed) { b.inFlight, b.running = 2, 1 }, 250 * time.Millisecond, false},
		"it sees one of three":         {func(b *bed) { b.inFlight, b.running = 3, 1 }, 250 * time.Millisecond, true},
		"without a gauge of running":   {func(b *bed) { b.inFlight, b.running, b.noGauge = 6, 0, true }, 250 * time.Millisecond, true},
		"load reports tell no answers": {func(b *bed) { b.inFlight, b.running, b.brief = 3, 0, true }, 250 * time.Millisecond, true},
		"clients give up":              {func(b *bed) { b.inFlight, b.running = 3, 0; b.issued++; b.ended++ }, 250 * time.Millisecond, true},

		"it runs what it has":             {func(b *bed) { b.inFlight, b.running = 3, 3 }, 250 * time.Millisecond, false},
		"what it has fits its slots":      {func(b *bed) { b.inFlight, b.running, b.noGauge = 4, 0, true }, 250 * time.Millisecond, false},
		"it queues what it has":           {func(b *bed) { b.inFlight, b.running, b.queue = 6, 4, 2 }, 250 * time.Millisecond, false},
		"it sees more than the proxies":   {func(b *bed) { b.inFlight, b.running = 1, 3 }, 250 * time.Millisecond, false},
		"nothing is in flight":            {func(b *bed) { b.inFlight, b.running = 0, 0 }, 250 * time.Millisecond, false},
		"it answers":                      {func(b *bed) { b.inFlight, b.running = 3, 0; b.serve(0.1) }, 250 * time.Millisecond, false},
		"it completes, of others":         {func(b *bed) { b.inFlight, b.running = 3, 0; b.completed += 0.1 }, 250 * time.Millisecond, false},
		"the count may drift":             {func(b *bed) { b.inFlight, b.running, b.drifts = 3, 0, true }, 250 * time.Millisecond, false},
		"its reports are late, not wrong": {func(b *bed) { b.inFlight, b.running = 3, 0; b.silent = true }, 250 * time.Millisecond, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWard(4)
			w.moved = c.every
			b := &w.beds[0]
			c.stall(b) // what it exports stays the same all the time
			b.inFlight, b.running, b.queue, b.silent = 0, 0, 0, false
			w.run(5*second, w.others)
			flagged, d := w.run(6*second, func() { w.others(); c.stall(b) })
			if !c.flag {
				want(t, "flagged after", flagged, -1)
				return
			}
			e := d.Endpoints[0]
			t.Logf("flagged after %v: %s", flagged, e.OverloadReason)
			if flagged < 0 || flagged > 2*second+max(c.every, 500*time.Millisecond) {
				t.Errorf("flagged after %v, want within 2 s and a report", flagged)
			}
			if !strings.HasPrefix(e.OverloadReason, "stalled since 00:00:05Z: ") {
				t.Errorf("reason %q, want since when", e.OverloadReason)
			}
			if e.Share > DefaultParams().Floor || e.Reason != ReasonFloor {
				t.Errorf("share %v (%s), want the floor", e.Share, e.Reason)
			}
		})
	}
}

// Requests that an endpoint does not see yet, because they are under way to it, are
// no sign of a stall.
func TestShortRequestsOneAfterAnotherAreNoStall(t *testing.T) {
	w := newWard(3)
	b, n := &w.beds[0], 0
	flagged, _ := w.run(20*second, func() {
		w.others()
		b.inFlight, b.running = 1, 0 // each time a new one
		if n++; n%8 == 0 {
			b.serve(1)
		}
	})
	want(t, "flagged after", flagged, -1)
}

// silence is a pool where requests take a mean time, exponential, with so many in
// flight at each endpoint, and of which nobody scrapes the servers. It returns after
// how much silence the first endpoint is flagged, negative for never.
func silence(seed uint64, mean float64, inFlight int, learn, silent time.Duration) time.Duration {
	w := newWard(4)
	rng := rand.New(rand.NewPCG(seed, 1))
	end := make([][]float64, len(w.beds)) // times of
	serve := func(i int) {
		b, now := &w.beds[i], w.now.Sub(epoch).Seconds()
		b.silent, b.inFlight = true, float64(inFlight)
		for len(end[i]) < inFlight {
			end[i] = append(end[i], now+rng.ExpFloat64()*mean)
		}
		for j, at := range end[i] {
			if at <= now {
				b.serve(1)
				end[i][j] = now + rng.ExpFloat64()*mean
			}
		}
	}
	early, _ := w.run(learn, func() {
		for i := range w.beds {
			serve(i)
		}
	})
	if early >= 0 {
		return 0
	}
	flagged, _ := w.run(silent, func() {
		for i := 1; i < len(w.beds); i++ {
			serve(i)
		}
	})
	return flagged
}

// Without a word from the server, silence counts when it is no chance any more:
// when that many answers should have come.
func TestSilenceThatIsNoChanceIsAStall(t *testing.T) {
	for _, c := range []struct {
		mean     float64 // seconds of a request
		inFlight int
		most     time.Duration // of silence until the flag
	}{
		{0.2, 4, 3 * time.Second}, {0.05, 2, 3 * time.Second}, {1, 16, 6 * time.Second}, {10, 16, 60 * time.Second},
	} {
		t.Run(fmt.Sprintf("%v s, %d in flight", c.mean, c.inFlight), func(t *testing.T) {
			learn := 60*second + seconds(10*c.mean)
			for seed := range uint64(3) {
				got := silence(seed, c.mean, c.inFlight, learn, 2*c.most)
				if got <= 0 || got > c.most {
					t.Errorf("seed %d: flagged after %v of silence, want within %v and not before", seed, got, c.most)
				}
			}
		})
	}
}

// Long generations, few in flight, are silent for long.
func TestLongGenerationsAreNoStall(t *testing.T) {
	for _, c := range []struct {
		mean     float64
		inFlight int
		silent   time.Duration
	}{{30, 1, 90 * second}, {30, 2, 60 * second}, {60, 4, 60 * second}} {
		for seed := range uint64(2) {
			if got := silence(seed, c.mean, c.inFlight, 15*time.Minute, c.silent); got >= 0 {
				t.Errorf("%d in flight of %v s: flagged after %v of silence, want never within %v", c.inFlight, c.mean, got, c.silent)
			}
		}
	}
}

// A batch of long requests that begin together ends together.
func TestABatchIsNoStall(t *testing.T) {
	w := newWard(3)
	n := 0
	flagged, _ := w.run(3*time.Minute, func() {
		n++
		for i := range w.beds {
			b := &w.beds[i]
			b.silent, b.inFlight = true, 16
			if n%100 == 0 { // each takes ten seconds
				b.serve(16)
			}
		}
	})
	want(t, "flagged after", flagged, -1)
}

func TestAStalledEndpointThatAnswersIsWellAgainAfterTheDwell(t *testing.T) {
	w := newWard(4)
	b := &w.beds[0]
	flagged, _ := w.run(3*second, func() { w.others(); b.inFlight, b.running = 3, 0 })
	if flagged < 0 {
		t.Fatal("not flagged")
	}
	since := w.now
	var well time.Duration
	w.run(5*second, func() { w.others(); b.inFlight, b.running = 2, 2; b.serve(1) })
	_, d := w.run(second, nil)
	well = w.now.Sub(since)
	if d.Endpoints[0].Overloaded || d.Endpoints[0].Share < 0.1 {
		t.Errorf("%v after it answers again: flagged %v, share %v", well, d.Endpoints[0].Overloaded, d.Endpoints[0].Share)
	}
}

// Nobody answers where nothing is sent: after the flag an endpoint is trusted as
// little as a new one, until it answers, and each time it fails that it is flagged
// for longer.
func TestAnEndpointOfWhichNothingIsHeardIsTriedAgain(t *testing.T) {
	w := newWard(4)
	b := &w.beds[0]
	stall := func() { w.others(); b.inFlight, b.running = 2, 0 }
	gone := func() { w.others(); b.inFlight, b.running = 0, 0 }
	var spells []time.Duration
	for range 3 {
		if flagged, _ := w.run(3*second, stall); flagged < 0 {
			t.Fatal("not flagged")
		}
		from := w.now
		for d := w.step(); d.Endpoints[0].Overloaded; d = w.step() {
			gone()
		}
		spells = append(spells, w.now.Sub(from))
		d := w.step()
		want(t, "ramp while it is tried", d.Endpoints[0].Ramp, leastRamp)
	}
	t.Logf("flagged for %v", spells)
	if spells[1] < spells[0]+second || spells[2] < spells[1]+second {
		t.Errorf("flagged for %v, want longer each time", spells)
	}
	_, d := w.run(2*second, func() { w.others(); b.inFlight, b.running = 2, 2; b.serve(1) })
	want(t, "ramp after an answer", d.Endpoints[0].Ramp, 1)
	want(t, "flag after an answer", d.Endpoints[0].Overloaded, false)
}

// Where requests stand on for ever, such as an open socket beside which nothing is
// sent any more, the endpoint is tried again, too, only later.
func TestAnEndpointWhereRequestsStandIsTriedAgainLater(t *testing.T) {
	w := newWard(4)
	b := &w.beds[0]
	stands := func() { w.others(); b.inFlight, b.running = 2, 0 }
	w.run(5*second, stands)
	for d := w.step(); d.Endpoints[0].Overloaded; d = w.step() {
		stands()
		if w.now.Sub(epoch) > 2*time.Minute {
			t.Fatal("never tried again")
		}
	}
	if flagged := w.now.Sub(epoch); flagged < 30*second {
		t.Errorf("tried again after %v", flagged)
	}
}

func TestAnEndpointThatFailsMostRequestsIsFlagged(t *testing.T) {
	fails := func(share float64) func(*bed) {
		return func(b *bed) { b.serve(1); b.failed += share }
	}
	for name, c := range map[string]struct {
		do   func(*bed)
		flag bool
	}{
		"all of them":         {fails(1), true},
		"most":                {fails(0.6), true},
		"some":                {fails(0.3), false},
		"none":                {fails(0), false},
		"refused connections": {func(b *bed) { b.failed++ }, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWard(4)
			b := &w.beds[0]
			w.run(5*second, func() { w.others(); b.serve(1) })
			flagged, d := w.run(15*second, func() { w.others(); c.do(b) })
			want(t, "flagged", flagged >= 0, c.flag)
			if e := d.Endpoints[0]; c.flag && (!strings.HasPrefix(e.OverloadReason, "failing: ") || e.Reason != ReasonFloor) {
				t.Errorf("reason %q, share for %s", e.OverloadReason, e.Reason)
			}
		})
	}
}

// Where most endpoints seem ill the fault is likely not theirs.
func TestWhileMostOfAPoolSeemsIllNobodyIs(t *testing.T) {
	w := newWard(4)
	flagged, _ := w.run(20*second, func() {
		for i := range w.beds {
			w.beds[i].serve(1)
			if i < 3 {
				w.beds[i].failed++
			}
		}
	})
	want(t, "flagged after", flagged, -1)

	alone := newWard(1)
	flagged, _ = alone.run(20*second, func() { alone.beds[0].inFlight = 2 })
	if flagged < 0 {
		t.Error("a stalled endpoint alone is not flagged")
	}
}

func TestStalledAfterCanBeSetAndTurnedOff(t *testing.T) {
	for after, most := range map[time.Duration]time.Duration{0: -1, second: 1500 * time.Millisecond, 5 * second: 5500 * time.Millisecond} {
		w := newWard(4)
		p := DefaultParams()
		p.Overload.StalledAfter = after
		w.law.SetParams(p)
		flagged, _ := w.run(20*second, func() { w.others(); w.beds[0].inFlight, w.beds[0].running = 3, 0 })
		if flagged > most || (flagged < 0) != (after == 0) || flagged < after && after > 0 {
			t.Errorf("stalled after %v: flagged after %v", after, flagged)
		}
	}
}

// The one that does not serve is flagged before those that serve slowly.
func TestStalledEndpointsAreFlaggedFirst(t *testing.T) {
	w := newWard(4)
	_, d := w.run(10*second, func() {
		for i := range w.beds {
			b := &w.beds[i]
			b.inFlight, b.queue, b.running = 44, 40, 4
			b.serve(1)
		}
		w.beds[2].inFlight, w.beds[2].queue, w.beds[2].running = 0, 0, 0
		w.beds[3].inFlight, w.beds[3].queue, w.beds[3].running = 3, 0, 0
		w.beds[3].answered -= 1
		w.beds[3].ended -= 1
		w.beds[3].completed -= 1
	})
	got := flagged(d)
	want(t, "flags", fmt.Sprint(got), "[0 3]")
}

// It answers at once, so it looks idle, and is sent more than its part.
func TestAnEndpointThatAnswersEverythingWithAnErrorIsFlaggedWithinThreeSeconds(t *testing.T) {
	for _, perStep := range []float64{10, 1, 0.4} {
		t.Run(fmt.Sprintf("%v requests a second", 10*perStep), func(t *testing.T) {
			w := newWard(4)
			b := &w.beds[0]
			w.run(60*second, func() { w.others(); b.inFlight, b.running = 2, 2; b.serve(perStep) })
			fail := func() {
				w.others()
				b.inFlight, b.running = 0, 0
				b.serve(perStep)
				b.failed += perStep
			}
			flagged := time.Duration(0)
			var d Decision
			for d = w.step(); !d.Endpoints[0].Overloaded && flagged < 3*second; d = w.step() {
				fail()
				flagged += 100 * time.Millisecond
			}
			if e := d.Endpoints[0]; flagged >= 3*second || e.Share > DefaultParams().Floor || !strings.HasPrefix(e.OverloadReason, "failing: ") {
				t.Fatalf("flagged after %v for %q, share %v", flagged, e.OverloadReason, e.Share)
			}
			// Flagged, it gets nothing; it is tried for as long as it takes to see it fail.
			var sent float64
			w.run(5*time.Minute, func() {
				w.others()
				if w.law.memory["0"].outlier.state == probing {
					b.serve(1)
					b.failed++
					sent++
				}
			})
			t.Logf("flagged after %v; %v requests in five minutes", flagged, sent)
			if tries := sent / consecutiveFailures; tries < 5 || tries > 25 {
				t.Errorf("%v requests in five minutes, want it tried now and then", sent)
			}
			w.run(40*second, w.others)
			_, d = w.run(second, func() { w.others(); b.inFlight, b.running = 2, 2; b.serve(perStep) })
			if e := d.Endpoints[0]; e.Overloaded || e.Ramp != 1 {
				t.Errorf("healed: flagged %v (%s), trusted with %v", e.Overloaded, e.OverloadReason, e.Ramp)
			}
		})
	}
}

// Where everybody fails nobody is better than another, whoever failed first.
func TestWhileAllFailNobodyIsExcluded(t *testing.T) {
	w := newWard(4)
	for range 50 {
		for i := range w.beds {
			w.beds[i].serve(1)
		}
		w.step()
	}
	from := w.now
	for n := 0; w.now.Sub(from) < time.Minute; n++ {
		for i := range w.beds {
			w.beds[i].serve(1)
			if n > 2*i { // one after another
				w.beds[i].failed++
			}
		}
		d := w.step()
		if got := flagged(d); len(got) > 0 && n > 30 {
			t.Fatalf("%v: flagged %v", w.now.Sub(from), got)
		}
		for _, e := range d.Endpoints {
			if n > 30 && e.Share < 0.2 {
				t.Fatalf("%v: share of %s is %v", w.now.Sub(from), e.Address, e.Share)
			}
		}
	}
	healed, _ := w.run(10*second, func() {
		for i := range w.beds {
			w.beds[i].serve(1)
		}
	})
	want(t, "flagged after all have healed", healed, -1)
}

// Where most fail, one after another begins to. Whoever was flagged is let go, and stays so: it
// goes on failing.
func TestWhoeverIsLetGoBecauseMostFailIsNotFlaggedAgain(t *testing.T) {
	for _, bad := range []int{6, 9} {
		t.Run(fmt.Sprintf("%d of 10", bad), func(t *testing.T) {
			w := newWard(10)
			n, was, changes := 0, "", 0
			do := func() {
				for i := range w.beds {
					w.beds[i].serve(1)
					if i < bad && n > 100*i/bad {
						w.beds[i].failed++
					}
				}
				n++
			}
			w.run(15*second, do)
			for range 600 {
				do()
				if got := fmt.Sprint(flagged(w.step())); got != was {
					was, changes = got, changes+1
				}
			}
			if changes > 1 || was != "[]" {
				t.Errorf("%d changes of flags in a minute, at last %s; want none", changes, was)
			}
			w.run(5*second, func() {
				for i := range w.beds {
					w.beds[i].serve(1)
				}
				w.beds[0].failed++
			})
			want(t, "flags when one is left that fails", fmt.Sprint(flagged(w.step())), "[0]")
		})
	}
}

// What all fail in part, such as requests that no server can answer or more than their queues
// hold, is no fault of one of them, though chance makes rows of it; who fails all is found all the same.
func TestWhoFailsNoMoreThanAllDoIsNotFlagged(t *testing.T) {
	for _, share := range []float64{0.1, 0.3, 0.45} {
		t.Run(fmt.Sprint(share), func(t *testing.T) {
			w, rng := newWard(10), rand.New(rand.NewPCG(1, 2))
			var flaggedNow []string
			do := func(first float64) {
				for range 20 {
					i := rng.IntN(len(w.beds))
					if slices.Contains(flaggedNow, fmt.Sprint(i)) {
						continue // nothing is sent there
					}
					w.beds[i].serve(1)
					if rng.Float64() < share || i == 0 && rng.Float64() < first {
						w.beds[i].failed++
					}
				}
				flaggedNow = flagged(w.step())
			}
			const steps = 3000
			sum := 0
			for range steps {
				do(0)
				sum += len(flaggedNow)
			}
			if mean := float64(sum) / steps; mean > 0.05 {
				t.Errorf("%.2f of 10 flagged in the mean, want none but by rare chance", mean)
			}
			for range 100 {
				if do(1); slices.Contains(flaggedNow, "0") {
					return
				}
			}
			t.Errorf("who fails all is not flagged within ten seconds: %v", flaggedNow)
		})
	}
}

// Where one proxy has a log and another load reports alone, the requests of the second end without
// an answer that is told. That the first has no requests any more is no silence of the endpoints.
func TestWhatOnlySomeProxiesTellIsNoSilence(t *testing.T) {
	w := newWard(4)
	for n := range 1200 {
		for i := range w.beds {
			b := &w.beds[i]
			b.silent, b.partial, b.inFlight = true, true, 3
			b.issued, b.ended = b.issued+3, b.ended+3
			if n < 600 && (n+i)%4 == 0 {
				b.answered++
			}
		}
		if got := flagged(w.step()); len(got) > 0 {
			t.Fatalf("flagged %v after %v", got, w.now.Sub(epoch))
		}
	}
	b := &w.beds[0]
	flagged, _ := w.run(20*second, func() {
		for i := range w.beds[1:] {
			w.beds[i+1].issued, w.beds[i+1].ended = w.beds[i+1].issued+3, w.beds[i+1].ended+3
		}
		b.inFlight = 30
	})
	if flagged < 0 {
		t.Error("an endpoint of which nothing ends is not flagged")
	}
}

// Where half of a pool fails and one more fails every other request, what this one answered last
// must not flag the others and let them go, ten times a second.
func TestOneThatFailsEveryOtherRequestDoesNotTurnTheFlagsOfOthers(t *testing.T) {
	for _, failing := range []float64{0.5, 0.6, 0.9} {
		t.Run(fmt.Sprint(failing), func(t *testing.T) {
			w, rng := newWard(4), rand.New(rand.NewPCG(1, 2))
			changes, was := 0, false
			var d Decision
			for range 600 {
				for i := range w.beds {
					if d.Endpoints != nil && d.Endpoints[i].Overloaded {
						continue // nothing is sent there
					}
					b := &w.beds[i]
					b.serve(1)
					if i < 2 || i == 2 && rng.Float64() < failing {
						b.failed++
					}
				}
				d = w.step()
				if got := d.Endpoints[0].Overloaded; got != was {
					was, changes = got, changes+1
				}
			}
			if changes > 40 {
				t.Errorf("the flag of one that fails all turned %d times in a minute", changes)
			}
		})
	}
}

func TestWhatTheOthersFailIsTheMedianWithoutOneself(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := &pool{members: make([]member, rapid.IntRange(1, 9).Draw(t, "members"))}
		for i := range p.members {
			ended := float64(rapid.IntRange(0, 10).Draw(t, "ended"))
			p.members[i].memory = &memory{outlier: outlier{ended: ended, failed: float64(rapid.IntRange(0, int(ended)).Draw(t, "failed"))}}
		}
		all := p.failedShares()
		for i := range p.members {
			var others []float64
			for j := range p.members {
				if share, enough := p.members[j].outlier.failedShare(); enough && j != i {
					others = append(others, share)
				}
			}
			if got, want := all.others(&p.members[i].outlier), orZero(median(others)); got != want {
				t.Fatalf("%v without number %d: %v, want %v", all, i, got, want)
			}
		}
	})
}
