package weighting

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"steelyard/weighting/health"
)

// A countedPool is a pool of endpoints whose requests the proxies count exactly, in steps of 100 ms.
type countedPool struct {
	law         *Law
	now         time.Time
	endpoints   []countedEndpoint
	reportEvery time.Duration            // between two reports
	alter       func(i int, e *Endpoint) // what the law sees; nil: nothing else
}

// A countedEndpoint is the true state of one of them.
type countedEndpoint struct {
	inFlight              float64 // as the proxies count
	queue, running        float64 // as the server reports
	cache                 float64 // utilization of its KV cache; 0: not reported
	silent                bool    // the server is not scraped
	noGauge               bool    // of what runs
	issued, ended, failed float64
	errors                float64 // besides those that failed
	answered, completed   float64
	tokens                float64 // that the engine counts; 0: it counts none
	sized, bytes          float64 // of those issued, as the access log has them; 0: it has none
	succeeded             float64 // the most that was answered without an error
	reportsOnly           bool    // the proxies report no answers, as load reports do
	partial               bool    // only some of the proxies report answers
	drifts                bool    // the count is not exact
	report                ServerReport
	capacity, reported    float64
}

func newCountedPool(n int) *countedPool {
	w := &countedPool{law: NewLaw(DefaultParams()), now: epoch, endpoints: make([]countedEndpoint, n),
		reportEvery: 250 * time.Millisecond}
	for i := range w.endpoints {
		w.endpoints[i].capacity = 4
	}
	return w
}

// serve lets requests be answered.
func (b *countedEndpoint) serve(n float64) {
	b.issued, b.ended, b.answered, b.completed = b.issued+n, b.ended+n, b.answered+n, b.completed+n
}

func (b *countedEndpoint) endpoint(i int, now time.Time) Endpoint {
	e := Endpoint{Address: fmt.Sprint(i), Capacity: b.capacity, Exact: !b.drifts, InFlight: known(b.inFlight, now),
		Server: b.report}
	b.succeeded = max(b.succeeded, b.answered-b.failed-b.errors)
	e.Proxies = ProxyReport{Issued: known(b.issued, now), Ended: known(b.ended, now), Errors: known(b.errors, now),
		Succeeded: known(b.succeeded, now)}
	if b.sized > 0 {
		e.Proxies.Sized, e.Proxies.SizedBytes = known(b.sized, now), known(b.bytes, now)
	}
	if !b.reportsOnly {
		e.Proxies.Failed, e.Proxies.Answered, e.Proxies.Partial = known(b.failed, now), known(b.answered, now),
			b.partial
	}
	return e
}

// step moves on by 100 ms.
func (w *countedPool) step() Decision {
	const tick = 100 * time.Millisecond
	w.now = w.now.Add(tick)
	s := Snapshot{PushPeriod: tick}
	for i := range w.endpoints {
		b := &w.endpoints[i]
		if due := w.now.Sub(epoch) / w.reportEvery; !b.silent && due > time.Duration(b.reported) {
			b.reported = float64(due)
			b.report = ServerReport{Queue: known(b.queue, w.now), Completions: known(b.completed, w.now)}
			if !b.noGauge {
				b.report.Running = known(b.running, w.now)
			}
			if b.tokens > 0 {
				b.report.Tokens = TokenCounts{At: w.now, Generated: b.tokens}
			}
			if b.cache > 0 {
				b.report.Utilization = known(b.cache, w.now)
			}
		}
		s.Endpoints = append(s.Endpoints, b.endpoint(i, w.now))
		if w.alter != nil {
			w.alter(i, &s.Endpoints[i])
		}
	}
	return w.law.Step(w.now, s)
}

// run steps for that long, calling do before each step, and returns when the first endpoint was first flagged, negative
// for never.
func (w *countedPool) run(length time.Duration, do func()) (flagged time.Duration, last Decision) {
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
func (w *countedPool) others() {
	for i := range w.endpoints[1:] {
		b := &w.endpoints[i+1]
		b.inFlight, b.running = 2, 2
		b.serve(1)
	}
}

func TestAnEndpointWhoseReportDoesNotShowItsRequestsIsStalled(t *testing.T) {
	const often = 250 * time.Millisecond
	has := func(inFlight, running float64, more ...func(*countedEndpoint)) func(*countedEndpoint) {
		return func(b *countedEndpoint) {
			b.inFlight, b.running = inFlight, running
			for _, do := range more {
				do(b)
			}
		}
	}
	noGauge := func(b *countedEndpoint) { b.noGauge = true }
	for name, c := range map[string]struct {
		stall func(*countedEndpoint)
		every time.Duration // reports
		flag  bool
	}{
		"idle by its own report":       {has(3, 0), often, true},
		"a report each second":         {has(3, 0), time.Second, true},
		"two requests":                 {has(2, 0), often, true},
		"a single request":             {has(1, 0), often, false},
		"it sees one of two":           {has(2, 1), often, false},
		"it sees one of three":         {has(3, 1), often, true},
		"without a gauge of running":   {has(6, 0, noGauge), often, true},
		"load reports without answers": {has(3, 0, func(b *countedEndpoint) { b.reportsOnly = true }), often, true},
		"clients give up":              {has(3, 0, func(b *countedEndpoint) { b.issued++; b.ended++ }), often, true},

		"it runs what it has":           {has(3, 3), often, false},
		"what it has fits its slots":    {has(4, 0, noGauge), often, false},
		"it queues what it has":         {has(6, 4, func(b *countedEndpoint) { b.queue = 2 }), often, false},
		"it sees more than the proxies": {has(1, 3), often, false},
		"nothing is in flight":          {has(0, 0), often, false},
		"it answers":                    {has(3, 0, func(b *countedEndpoint) { b.serve(0.1) }), often, false},
		"it completes, of others":       {has(3, 0, func(b *countedEndpoint) { b.completed += 0.1 }), often, false},
		"the count may drift":           {has(3, 0, func(b *countedEndpoint) { b.drifts = true }), often, false},
		"reports are late, not wrong":   {has(3, 0, func(b *countedEndpoint) { b.silent = true }), often, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newCountedPool(4)
			w.reportEvery = c.every
			b := &w.endpoints[0]
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

// A process that was stopped reads a new page first, and only then what the proxies logged meanwhile: requests that it
// still counts then have ended long ago.
func TestATimeInWhichTheLawDidNotRunIsNoStall(t *testing.T) {
	w := newCountedPool(4)
	b := &w.endpoints[0]
	w.run(10*second, func() { w.others(); b.inFlight, b.running = 3, 3; b.serve(1) })
	w.now = w.now.Add(30 * time.Second)
	b.running = 0
	if flagged, d := w.run(second, w.others); flagged >= 0 {
		t.Errorf("flagged after %v: %s", flagged, d.Endpoints[0].OverloadReason)
	}
	if flagged, _ := w.run(4*second, w.others); flagged < 0 {
		t.Error("a stall that begins afterwards is not found")
	}
}

// send lets requests begin that have bodies of so many bytes each; 0: chunked ones.
func (b *countedEndpoint) send(n, bytes float64) {
	b.issued, b.inFlight = b.issued+n, b.inFlight+n
	if bytes > 0 {
		b.sized, b.bytes = b.sized+n, b.bytes+n*bytes
	}
}

// A few requests that no gauge shows at an idle endpoint may be uploads, for as long as their bodies take at 1 Mbit/s.
func TestAFewUploadsAtAnIdleEndpointAreNoStall(t *testing.T) {
	const never = -1
	for name, c := range map[string]struct {
		n, bytes float64       // requests, and their size; 0: chunked
		running  float64       // what the gauge shows
		learned  float64       // size of the requests before; 0: the log has no sizes
		after    time.Duration // from when it may be flagged, never in a minute
	}{
		"two uploads of 20 MB":             {2, 20e6, 0, 4000, never},
		"four uploads of 20 MB":            {4, 20e6, 0, 4000, never},
		"two uploads of 1 MB":              {2, 1e6, 0, 4000, 10 * second},
		"two chunked uploads":              {2, 0, 0, 4000, never},
		"two requests of 4 kB":             {2, 4000, 0, 4000, 2 * second},
		"five of 20 MB":                    {5, 20e6, 0, 4000, 2 * second},
		"five chunked ones":                {5, 0, 0, 4000, 2 * second},
		"three of 20 MB, and one is shown": {3, 20e6, 1, 4000, 2 * second},
		"two, and the log has no sizes":    {2, 0, 0, 0, 2 * second},
	} {
		t.Run(name, func(t *testing.T) {
			w := newCountedPool(4)
			b := &w.endpoints[0]
			flagged, _ := w.run(30*second, func() { // until silence would be significant
				w.others()
				b.inFlight, b.running = 0, 1
				b.send(1, c.learned)
				b.ended, b.answered, b.completed = b.ended+1, b.answered+1, b.completed+1
			})
			want(t, "flagged before", flagged, never)
			b.inFlight, b.running = 0, 0
			w.run(5*second, w.others)
			b.send(c.n, c.bytes)
			b.running = c.running
			flagged, d := w.run(time.Minute, w.others)
			t.Logf("flagged after %v: %s", flagged, d.Endpoints[0].OverloadReason)
			if c.after < 0 {
				want(t, "flagged after", flagged, never)
			} else if flagged < c.after || flagged > c.after+second {
				t.Errorf("flagged after %v, want %v to a second more", flagged, c.after)
			}
		})
	}
}

// A scrape may show an answer that ended before the uploads began.
func TestUploadsBeforeAScrapeOfEarlierAnswersAreNoStall(t *testing.T) {
	w := newCountedPool(4)
	b := &w.endpoints[0]
	w.run(30*second, func() {
		w.others()
		b.inFlight, b.running = 0, 1
		b.send(1, 4000)
		b.ended, b.answered, b.completed = b.ended+1, b.answered+1, b.completed+1
	})
	b.inFlight, b.running = 0, 0
	w.run(5*second, w.others)
	b.send(2, 0)
	b.completed++ // of a request that had ended
	flagged, d := w.run(time.Minute, w.others)
	if flagged >= 0 {
		t.Errorf("flagged after %v: %s", flagged, d.Endpoints[0].OverloadReason)
	}
}

// Requests that an endpoint does not see yet, because they are under way to it, are
// no sign of a stall.
func TestShortRequestsOneAfterAnotherAreNoStall(t *testing.T) {
	w := newCountedPool(3)
	b, n := &w.endpoints[0], 0
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
// flight at each endpoint, and the servers are not scraped. It returns after how much
// silence the first endpoint is flagged, negative for never.
func silence(seed uint64, mean float64, inFlight int, learn, silent time.Duration) time.Duration {
	w := newCountedPool(4)
	rng := rand.New(rand.NewPCG(seed, 1))
	end := make([][]float64, len(w.endpoints)) // times of
	serve := func(i int) {
		b, now := &w.endpoints[i], w.now.Sub(epoch).Seconds()
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
		for i := range w.endpoints {
			serve(i)
		}
	})
	if early >= 0 {
		return 0
	}
	flagged, _ := w.run(silent, func() {
		for i := 1; i < len(w.endpoints); i++ {
			serve(i)
		}
	})
	return flagged
}

// Without reports of the server, silence counts once it is significant: once enough answers should have come.
func TestSignificantSilenceIsAStall(t *testing.T) {
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
				t.Errorf("%d in flight of %v s: flagged after %v of silence, want never within %v", c.inFlight, c.mean,
					got, c.silent)
			}
		}
	}
}

// A batch of long requests that begin together ends together.
func TestABatchIsNoStall(t *testing.T) {
	w := newCountedPool(3)
	n := 0
	flagged, _ := w.run(3*time.Minute, func() {
		n++
		for i := range w.endpoints {
			b := &w.endpoints[i]
			b.silent, b.inFlight = true, 16
			if n%100 == 0 { // each takes ten seconds
				b.serve(16)
			}
		}
	})
	want(t, "flagged after", flagged, -1)
}

// An iteration may take two seconds, and a scrape shows that it ended a little later still. At the beginning, no pause
// of the pool is known by which to judge that. One that stands still is found within three seconds.
func TestAnIterationOfTwoSecondsOfANewEngineIsNoStall(t *testing.T) {
	for _, c := range []struct {
		name    string
		shows   float64 // requests, while it computes
		pause   time.Duration
		flagged bool
	}{
		{"its gauges show its requests", 20, 2300 * time.Millisecond, false},
		{"they show those of before", 1, 2300 * time.Millisecond, false},
		{"they show none", 0, 2300 * time.Millisecond, false},
		{"it stands still", 20, 3 * second, true},
		{"it stands still and shows none", 0, 3 * second, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newCountedPool(4)
			first := &w.endpoints[0]
			all := func(from int) {
				for i := range w.endpoints[from:] {
					b := &w.endpoints[from+i]
					b.inFlight, b.running, b.tokens = 20, 20, b.tokens+20
					b.serve(1)
				}
			}
			w.run(7*second, func() { all(0) })
			flagged, _ := w.run(c.pause, func() {
				all(1)
				first.running = c.shows
			})
			want(t, "flagged", flagged >= 0, c.flagged)
		})
	}
}

// While an engine computes a long prompt no request ends for seconds, and those that come wait. What it computes fills
// its KV cache; requests that wait do not.
func TestALongPromptIsNoStallWhileTheQueueGrows(t *testing.T) {
	for _, c := range []struct {
		name   string
		fills  float64 // the KV cache, in each step
		stalls bool
	}{{"it computes", 0.002, false}, {"it computes nothing", 0, true}} {
		t.Run(c.name, func(t *testing.T) {
			w := newCountedPool(3)
			long := &w.endpoints[0]
			long.inFlight, long.running, long.cache = 8, 8, 0.5
			w.run(time.Minute, func() { w.others(); long.serve(1) })
			stalls := false
			for range 100 {
				w.others()
				long.issued, long.queue, long.inFlight = long.issued+1, long.queue+1, long.inFlight+1
				long.cache += c.fills
				stalls = stalls || w.step().Endpoints[0].Failing
			}
			want(t, "stalls", stalls, c.stalls)
		})
	}
}

func TestAStalledEndpointThatAnswersIsHealthyAgainAfterTheDwell(t *testing.T) {
	w := newCountedPool(4)
	b := &w.endpoints[0]
	flagged, _ := w.run(3*second, func() { w.others(); b.inFlight, b.running = 3, 0 })
	if flagged < 0 {
		t.Fatal("not flagged")
	}
	since := w.now
	var healthy time.Duration
	w.run(5*second, func() { w.others(); b.inFlight, b.running = 2, 2; b.serve(1) })
	_, d := w.run(second, nil)
	healthy = w.now.Sub(since)
	if d.Endpoints[0].Overloaded || d.Endpoints[0].Share < 0.1 {
		t.Errorf("%v after it answers again: flagged %v, share %v", healthy, d.Endpoints[0].Overloaded,
			d.Endpoints[0].Share)
	}
}

// Of several servers behind one address, the counters go back all the time, and none has ended a stall.
func TestAnotherProcessEndsAStallUnlessTheCountersGoBackAllTheTime(t *testing.T) {
	for _, c := range []struct {
		name   string
		before int // times that the counters went back before it stalled
		ends   bool
	}{{"a restart", 0, true}, {"several servers", 4, false}} {
		t.Run(c.name, func(t *testing.T) {
			w := newCountedPool(4)
			b, restarts := &w.endpoints[0], 0
			w.alter = func(i int, e *Endpoint) {
				if i == 0 {
					e.Server.Restarts = restarts
				}
			}
			for range c.before {
				restarts++
				w.run(second, func() { w.others(); b.inFlight, b.running = 2, 2; b.serve(1) })
			}
			if flagged, _ := w.run(3*second, func() { w.others(); b.inFlight, b.running = 3, 0 }); flagged < 0 {
				t.Fatal("not flagged")
			}
			restarts++
			_, d := w.run(second/2, func() { w.others(); b.inFlight, b.running = 0, 0 })
			e := &d.Endpoints[0]
			if ends := !e.Failing && e.Probed == ""; ends != c.ends {
				t.Errorf("the stall ends: %v, want %v: %s%s", ends, c.ends, e.OverloadReason, e.Probed)
			}
		})
	}
}

// An endpoint that gets nothing answers nothing: after the flag it is trusted as little as a new one, until it answers,
// and each time that it stalls again it is flagged for longer.
func TestAnEjectedEndpointWithoutRequestsIsProbed(t *testing.T) {
	w := newCountedPool(4)
	b := &w.endpoints[0]
	stall := func() { w.others(); b.inFlight, b.running = 2, 0 }
	gone := func() { w.others(); b.inFlight, b.running = 0, 0 }
	var spells []time.Duration
	var began time.Time
	for range 3 {
		flagged, d := w.run(3*second, stall)
		if flagged < 0 {
			t.Fatal("not flagged")
		}
		before, reason := began, d.Endpoints[0].OverloadReason
		if began = d.Endpoints[0].OutlierSince; before.IsZero() {
			before = began
		}
		again := strings.Contains(reason, ", and not healthy since "+began.UTC().Format("15:04:05Z")+": ")
		if !began.Equal(before) || !strings.HasPrefix(reason, "stalled since ") || again != (len(spells) > 0) {
			t.Errorf("try %d: an outlier since %v, before since %v: %s", len(spells), began, before, reason)
		}
		from := w.now
		for d := w.step(); d.Endpoints[0].Overloaded; d = w.step() {
			gone()
		}
		spells = append(spells, w.now.Sub(from))
		d = w.step()
		want(t, "ramp while it is probed", d.Endpoints[0].Ramp, leastRamp)
		if e := d.Endpoints[0]; !strings.HasPrefix(e.Probed, "stalled since") || e.Overloaded || e.Failing ||
			!e.OutlierSince.Equal(began) {
			t.Errorf("probed: %q, flagged %v, failing %v", e.Probed, e.Overloaded, e.Failing)
		}
	}
	t.Logf("flagged for %v", spells)
	if spells[1] < spells[0]+second || spells[2] < spells[1]+second {
		t.Errorf("flagged for %v, want longer each time", spells)
	}
	_, d := w.run(2*second, func() { w.others(); b.inFlight, b.running = 2, 2; b.serve(1) })
	want(t, "ramp after an answer", d.Endpoints[0].Ramp, 1)
	want(t, "flag after an answer", d.Endpoints[0].Overloaded, false)
	want(t, "an outlier since, after an answer", d.Endpoints[0].OutlierSince, time.Time{})
	want(t, "probed after an answer", d.Endpoints[0].Probed, "")
}

// Where requests stay in flight for ever, such as an open socket after which nothing else is sent, the endpoint is
// probed, too, only later.
func TestAnEjectedEndpointWithOldRequestsIsProbedLater(t *testing.T) {
	w := newCountedPool(4)
	b := &w.endpoints[0]
	stands := func() { w.others(); b.inFlight, b.running = 2, 0 }
	w.run(5*second, stands)
	for d := w.step(); d.Endpoints[0].Overloaded; d = w.step() {
		stands()
		if w.now.Sub(epoch) > 2*time.Minute {
			t.Fatal("never probed")
		}
	}
	if flagged := w.now.Sub(epoch); flagged < 30*second {
		t.Errorf("probed after %v", flagged)
	}
}

func TestAnEndpointThatFailsMostRequestsIsFlagged(t *testing.T) {
	fails := func(share float64) func(*countedEndpoint) {
		return func(b *countedEndpoint) { b.serve(1); b.failed += share }
	}
	for name, c := range map[string]struct {
		do   func(*countedEndpoint)
		flag bool
	}{
		"all of them":         {fails(1), true},
		"most":                {fails(0.6), true},
		"some":                {fails(0.3), false},
		"none":                {fails(0), false},
		"refused connections": {func(b *countedEndpoint) { b.failed++ }, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newCountedPool(4)
			b := &w.endpoints[0]
			w.run(5*second, func() { w.others(); b.serve(1) })
			flagged, d := w.run(15*second, func() { w.others(); c.do(b) })
			want(t, "flagged", flagged >= 0, c.flag)
			if e := d.Endpoints[0]; c.flag &&
				(!strings.HasPrefix(e.OverloadReason, "failing: ") || e.Reason != ReasonFloor) {
				t.Errorf("reason %q, share for %s", e.OverloadReason, e.Reason)
			}
		})
	}
}

// Where most endpoints seem to be outliers the fault is likely not theirs.
func TestPanicModeWhileMostOfAPoolSeemsToBeOutliers(t *testing.T) {
	w := newCountedPool(4)
	flagged, _ := w.run(20*second, func() {
		for i := range w.endpoints {
			w.endpoints[i].serve(1)
			if i < 3 {
				w.endpoints[i].failed++
			}
		}
	})
	want(t, "flagged after", flagged, -1)

	single := newCountedPool(1)
	flagged, _ = single.run(20*second, func() { single.endpoints[0].inFlight = 2 })
	if flagged < 0 {
		t.Error("the only endpoint of a pool stalls and is not flagged")
	}
}

func TestStalledAfterCanBeSetAndTurnedOff(t *testing.T) {
	for after, most := range map[time.Duration]time.Duration{0: -1,
		50 * time.Millisecond: 600 * time.Millisecond, // shorter than a step
		second:                1500 * time.Millisecond,
		5 * second:            5500 * time.Millisecond} {
		w := newCountedPool(4)
		p := DefaultParams()
		p.Overload.StalledAfter = after
		w.law.SetParams(p)
		flagged, _ := w.run(20*second, func() { w.others(); w.endpoints[0].inFlight, w.endpoints[0].running = 3, 0 })
		if flagged > most || (flagged < 0) != (after == 0) || flagged < after && after > 0 {
			t.Errorf("stalled after %v: flagged after %v", after, flagged)
		}
	}
}

// The one that does not serve is flagged before those that serve slowly.
func TestStalledEndpointsAreFlaggedFirst(t *testing.T) {
	w := newCountedPool(4)
	_, d := w.run(10*second, func() {
		for i := range w.endpoints {
			b := &w.endpoints[i]
			b.inFlight, b.queue, b.running = 44, 40, 4
			b.serve(1)
		}
		w.endpoints[2].inFlight, w.endpoints[2].queue, w.endpoints[2].running = 0, 0, 0
		w.endpoints[3].inFlight, w.endpoints[3].queue, w.endpoints[3].running = 3, 0, 0
		w.endpoints[3].answered--
		w.endpoints[3].ended--
		w.endpoints[3].completed--
	})
	got := flagged(d)
	want(t, "flags", fmt.Sprint(got), "[0 3]")
}

// Such an endpoint answers at once, so it looks idle, and gets more than its part.
func TestAnEndpointThatAnswersEverythingWithAnErrorIsFlaggedWithinThreeSeconds(t *testing.T) {
	for _, perStep := range []float64{10, 1, 0.4} {
		t.Run(fmt.Sprintf("%v requests a second", 10*perStep), func(t *testing.T) {
			w := newCountedPool(4)
			b := &w.endpoints[0]
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
			if e := d.Endpoints[0]; flagged >= 3*second || e.Share > DefaultParams().Floor ||
				!strings.HasPrefix(e.OverloadReason, "failing: ") {
				t.Fatalf("flagged after %v for %q, share %v", flagged, e.OverloadReason, e.Share)
			}
			// Flagged, it gets nothing; it is probed for as long as it takes to see it fail.
			var sent float64
			w.run(5*time.Minute, func() {
				w.others()
				if w.law.memory["0"].health.State == health.Probing {
					b.serve(1)
					b.failed++
					sent++
				}
			})
			t.Logf("flagged after %v; %v requests in five minutes", flagged, sent)
			const each = 5 // requests, to see it fail
			if probes := sent / each; probes < 5 || probes > 25 {
				t.Errorf("%v requests in five minutes, want it probed now and then", sent)
			}
			w.run(40*second, w.others)
			_, d = w.run(second, func() { w.others(); b.inFlight, b.running = 2, 2; b.serve(perStep) })
			if e := d.Endpoints[0]; e.Overloaded || e.Ramp != 1 {
				t.Errorf("healed: flagged %v (%s), trusted with %v", e.Overloaded, e.OverloadReason, e.Ramp)
			}
		})
	}
}

// Where all endpoints fail none is better than another, whichever failed first.
func TestWhileAllFailNoEndpointIsEjected(t *testing.T) {
	w := newCountedPool(4)
	for range 50 {
		for i := range w.endpoints {
			w.endpoints[i].serve(1)
		}
		w.step()
	}
	from := w.now
	for n := 0; w.now.Sub(from) < time.Minute; n++ {
		for i := range w.endpoints {
			w.endpoints[i].serve(1)
			if n > 2*i { // one after another
				w.endpoints[i].failed++
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
		for i := range w.endpoints {
			w.endpoints[i].serve(1)
		}
	})
	want(t, "flagged after all have healed", healed, -1)
}

// One endpoint after another begins to fail, and goes on failing. Once most do, the ejections end and do not begin
// again.
func TestAnEjectionThatEndsBecauseMostFailDoesNotBeginAgain(t *testing.T) {
	for _, bad := range []int{6, 9} {
		t.Run(fmt.Sprintf("%d of 10", bad), func(t *testing.T) {
			w := newCountedPool(10)
			n, was, changes := 0, "", 0
			do := func() {
				for i := range w.endpoints {
					w.endpoints[i].serve(1)
					if i < bad && n > 100*i/bad {
						w.endpoints[i].failed++
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
				for i := range w.endpoints {
					w.endpoints[i].serve(1)
				}
				w.endpoints[0].failed++
			})
			want(t, "flags when one is left that fails", fmt.Sprint(flagged(w.step())), "[0]")
		})
	}
}

// What all fail in part, such as requests that no server can answer or more than their queues
// hold, is no fault of one of them, though chance makes
// rows of it; an endpoint that fails all is found all the same.
func TestAnEndpointThatFailsNoMoreThanAllDoIsNotFlagged(t *testing.T) {
	for _, share := range []float64{0.1, 0.3, 0.45} {
		t.Run(fmt.Sprint(share), func(t *testing.T) {
			w, rng := newCountedPool(10), rand.New(rand.NewPCG(1, 2))
			var flaggedNow []string
			do := func(first float64) {
				for range 20 {
					i := rng.IntN(len(w.endpoints))
					if slices.Contains(flaggedNow, fmt.Sprint(i)) {
						continue // nothing is sent there
					}
					w.endpoints[i].serve(1)
					if rng.Float64() < share || i == 0 && rng.Float64() < first {
						w.endpoints[i].failed++
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
			t.Errorf("the endpoint that fails all is not flagged within ten seconds: %v", flaggedNow)
		})
	}
}

// Where one proxy has an access log and another load reports only, the requests of the second end without a reported
// answer. That the first has no requests any more is no silence of the endpoints.
func TestReportsOfOnlySomeProxiesAreNoSilence(t *testing.T) {
	w := newCountedPool(4)
	for n := range 1200 {
		for i := range w.endpoints {
			b := &w.endpoints[i]
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
	b := &w.endpoints[0]
	flagged, _ := w.run(20*second, func() {
		for i := range w.endpoints[1:] {
			w.endpoints[i+1].issued, w.endpoints[i+1].ended = w.endpoints[i+1].issued+3, w.endpoints[i+1].ended+3
		}
		b.inFlight = 30
	})
	if flagged < 0 {
		t.Error("an endpoint of which nothing ends is not flagged")
	}
}

// Where half of a pool fails and one more fails every other request, what this one answered last
// must not switch the flags of the others ten times a second.
func TestOneThatFailsEveryOtherRequestDoesNotSwitchTheFlagsOfOthers(t *testing.T) {
	for _, failing := range []float64{0.5, 0.6, 0.9} {
		t.Run(fmt.Sprint(failing), func(t *testing.T) {
			w, rng := newCountedPool(4), rand.New(rand.NewPCG(1, 2))
			changes, was := 0, false
			var d Decision
			for range 600 {
				for i := range w.endpoints {
					if d.Endpoints != nil && d.Endpoints[i].Overloaded {
						continue // nothing is sent there
					}
					b := &w.endpoints[i]
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
				t.Errorf("the flag of one that fails all changed %d times in a minute", changes)
			}
		})
	}
}

// TGI counts tokens when a request ends, exports no KV cache, and counts its iterations: while these go on, it works.
func TestIterationsAreProgress(t *testing.T) {
	at := func(seconds, iterations float64) *ServerReport {
		now := epoch.Add(time.Duration(seconds * float64(time.Second)))
		return &ServerReport{
			Queue: known(0, now), Running: known(35, now), Completions: known(9, now), BusySeconds: known(90, now),
			Tokens: TokenCounts{At: now, Prompt: 900, Generated: 900, First: 9, Iterations: iterations},
		}
	}
	before, seen := at(0, 100), at(0.25, 120)
	if did := seen.since(before); !did.showsProgress(seen) {
		t.Error("twenty iterations are no progress")
	}
}

// When it last worked is known only of an engine that counts its work as it does it, and of its own process.
func TestWhenAnEngineLastWorked(t *testing.T) {
	w := newCountedPool(4)
	b, live, restarts := &w.endpoints[0], true, 0
	w.alter = func(i int, e *Endpoint) {
		e.Server.Restarts = restarts * max(0, 1-i)
		e.Server.Tokens.Live = live
	}
	_, d := w.run(5*second, func() { w.others(); b.inFlight, b.running, b.tokens = 2, 2, b.tokens+9 })
	last := w.now
	ago := func(what string, d *Decision, want time.Duration) {
		t.Helper()
		e := &d.Endpoints[0]
		if got := last.Sub(e.Worked); e.Worked.IsZero() != (want < 0) || want >= 0 && (got-want).Abs() > second/2 {
			t.Errorf("%s: it worked at %v, %v before it hung; want %v", what, e.Worked, got, want)
		}
	}
	ago("it computes", &d, 0)
	_, d = w.run(40*second, w.others)
	if ago("it hangs", &d, 0); !d.Endpoints[0].Failing && d.Endpoints[0].Probed == "" {
		t.Error("it is not flagged")
	}
	live = false
	_, d = w.run(second, w.others)
	ago("a request is counted when it ends", &d, -1)
	live, restarts = true, 1
	_, d = w.run(second, func() { w.others(); b.inFlight, b.running = 0, 0 })
	ago("another process", &d, -1)
}
