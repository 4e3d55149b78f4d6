package health

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

const tick = 100 * time.Millisecond

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// A world is a pool that is stepped each tick; sample makes what is known of an endpoint.
type world struct {
	now  time.Time
	pool Pool
	all  []Tracker
}

func newWorld(n int) *world { return &world{now: epoch, all: make([]Tracker, n)} }

func (w *world) run(length time.Duration, sample func(i int, now time.Time) Sample) {
	w.runEach(tick, length, sample)
}

// runEach is the same with steps that are so far apart.
func (w *world) runEach(tick, length time.Duration, sample func(i int, now time.Time) Sample) {
	const perSecond = 40
	params := Params{StalledAfter: 2 * time.Second, Dwell: 2 * time.Second, Hold: 3 * time.Second,
		Decay: 10 * time.Second, Pause: tick}
	traffic := Traffic{PerSecond: perSecond, Counted: true, InForce: time.Second}
	for until := w.now.Add(length); w.now.Before(until); {
		w.now = w.now.Add(tick)
		pool := make([]Endpoint, len(w.all))
		for i := range pool {
			pool[i] = Endpoint{Tracker: &w.all[i], Sample: sample(i, w.now)}
		}
		w.pool.Step(w.now, params, traffic, pool)
	}
}

// serves is an endpoint of four that answers a request in each tick, with two in flight.
func serves(_ int, now time.Time) Sample {
	return Sample{
		Report: Report{Reported: now, Shown: 2, ReadAt: now, Changed: true, Progress: true},
		Requests: Requests{InFlight: 2, Done: 1, Alive: true, Ended: Ends{Answered: 1}, Proof: Proof{true, true},
			Logged: true},
		Given: Given{Share: 0.25, Part: 0.25, Came: 1, CameAt: now, Any: true},
	}
}

// stands is one that does nothing with them.
func stands(now time.Time) Sample {
	return Sample{
		Report:   Report{Reported: now, NotShown: 2, ShowsIdle: true, ReadAt: now},
		Requests: Requests{InFlight: 2, Logged: true},
		Given:    Given{Share: 0.25, Part: 0.25, CameAt: now, Any: true},
	}
}

func fails(now time.Time) Sample {
	return Sample{
		Report:   Report{Reported: now, ReadAt: now},
		Requests: Requests{Ended: Ends{Failed: 1}, Logged: true},
		Given:    Given{Share: 0.25, Part: 0.25, Came: 1, CameAt: now, Any: true},
	}
}

// first has the first endpoint do something else.
func first(what func(now time.Time) Sample) func(int, time.Time) Sample {
	return func(i int, now time.Time) Sample {
		if i == 0 {
			return what(now)
		}
		return serves(i, now)
	}
}

// The whole way of an endpoint: through each state, and back.
func TestAnEndpointThatStallsIsEjectedProbedAndHealthyAgain(t *testing.T) {
	w := newWorld(4)
	e := &w.all[0]
	is := func(s State, trust float64) {
		t.Helper()
		if e.State != s || e.Trust != trust {
			t.Fatalf("%v: state %d, trusted with %v; want %d, %v: %s", w.now.Sub(epoch), e.State, e.Trust, s, trust,
				e.Reason)
		}
	}
	gone := func(now time.Time) Sample {
		return Sample{Report: Report{Reported: now, ReadAt: now}, Requests: Requests{Logged: true},
			Given: Given{Part: 0.25}}
	}
	w.run(5*time.Second, serves)
	is(Healthy, 1)
	w.run(3*time.Second, first(stands))
	is(Ejected, 1)
	w.run(2*time.Second, first(gone))
	is(Probing, leastTrust)
	w.run(3*time.Second, first(stands))
	is(Ejected, 1)
	w.run(2*time.Second, first(gone)) // twice as long as before
	is(Ejected, 1)
	w.run(2*time.Second, first(gone))
	is(Probing, leastTrust)
	w.run(tick, serves)
	is(Healthy, 1)
	w.run(tick, first(func(time.Time) Sample { return Sample{Asleep: true} }))
	is(Asleep, 1)
	w.run(tick, serves)
	is(Healthy, 1)
}

// What hung is gone with its process. One that fails may go on doing so in the next one.
func TestAnotherProcessEndsAStallOnceNothingOfTheOldOneIsInFlight(t *testing.T) {
	for _, c := range []struct {
		name     string
		does     func(now time.Time) Sample
		inFlight float64
		ends     bool
	}{
		{"it stalled", stands, 0, true},
		{"requests are still in flight", stands, 2, false},
		{"it failed", fails, 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(4)
			w.run(5*time.Second, serves)
			w.run(3*time.Second, first(c.does))
			begins := func(in float64) func(now time.Time) Sample {
				return func(now time.Time) Sample {
					return Sample{Report: Report{Reported: now, ReadAt: now, Changed: true, Begins: true},
						Requests: Requests{InFlight: in, Logged: true}, Given: Given{Part: 0.25}}
				}
			}
			w.run(tick, first(begins(c.inFlight)))
			if healthy := w.all[0].State == Healthy; healthy != c.ends {
				t.Errorf("healthy: %v, want %v: %s", healthy, c.ends, w.all[0].Reason)
			}
			if c.inFlight > 0 { // they are reset a moment later
				w.run(tick, first(begins(0)))
				if w.all[0].State != Healthy {
					t.Errorf("state %d after the last of them ended", w.all[0].State)
				}
			}
		})
	}
}

func TestWhileMostFailNoneIsEjected(t *testing.T) {
	for failing, ejected := range []int{0, 1, 2, 0, 0} {
		w := newWorld(4)
		w.run(5*time.Second, serves)
		w.run(time.Minute, func(i int, now time.Time) Sample {
			if i < failing {
				return fails(now)
			}
			return serves(i, now)
		})
		got := 0
		for i := range w.all {
			if w.all[i].State == Ejected {
				got++
			}
		}
		if got != ejected {
			t.Errorf("%d of 4 fail: %d ejected, want %d", failing, got, ejected)
		}
	}
}

// One whose pages were not read, or that was not asked, made no pause.
func TestATimeInWhichNothingWasObservedIsNoPause(t *testing.T) {
	w := newWorld(4)
	steps := func(i int, now time.Time) Sample {
		in := serves(i, now)
		in.Steps = true
		return in
	}
	w.run(5*time.Second, steps)
	w.now = w.now.Add(30 * time.Second)
	w.run(time.Second, steps)
	if pause := w.all[0].stall.reports.longest; !(pause > 0 && pause < 1) {
		t.Errorf("the longest pause is %.3g s, want what the engine showed", pause)
	}
}

// A page that is read for the first time shows work, and nothing of how long there was none: an endpoint that stands
// still soon after is found as soon as any other.
func TestTheFirstWorkThatIsSeenEndsNoPause(t *testing.T) {
	w := newWorld(4)
	reports := func(reads bool) func(int, time.Time) Sample {
		return func(i int, now time.Time) Sample {
			in := serves(i, now)
			in.Steps = true
			if !reads {
				in.Report = Report{}
			}
			return in
		}
	}
	shows := func(now time.Time) Sample {
		in := stands(now)
		in.Report = Report{ReadAt: now, Reported: now, Shown: 2, Steps: true}
		return in
	}
	w.run(30*time.Second, reports(false))
	w.run(5*time.Second, reports(true))
	steps := reports(true)
	w.run(3*time.Second+tick, func(i int, now time.Time) Sample {
		if i == 0 {
			return shows(now)
		}
		return steps(i, now)
	})
	if e := &w.all[0]; e.State != Ejected {
		t.Errorf("an engine that stands still is in state %d after 3 s: %s", e.State, e.Reason)
	}
}

// One that stood still for long and went on is no reason to wait longer for the others.
func TestTheTypicalPauseIsThatOfMost(t *testing.T) {
	pool := make([]Endpoint, 4)
	for i, pause := range []float64{60, 1, 0, 2} {
		pool[i].Tracker = new(Tracker)
		pool[i].stall.reports.longest = pause
	}
	if got := new(Pool).typical(pool, func(t *Tracker) float64 { return t.stall.reports.longest }); got != 2 {
		t.Errorf("typical pause %v, want 2", got)
	}
}

// The proxies send nothing to an endpoint that is flagged, so nothing was due there.
func TestAFlaggedEndpointIsNotUnused(t *testing.T) {
	for _, share := range []float64{0, 0.25} {
		w := newWorld(4)
		w.run(10*time.Second, first(func(now time.Time) Sample {
			return Sample{Report: Report{Reported: now, ReadAt: now},
				Given: Given{Share: share, Part: 0.25, CameAt: now}}
		}))
		if got := w.all[0].Unused; got != (share > 0) {
			t.Errorf("with a share of %v: unused %v", share, got)
		}
	}
}

// A share that has just been decided does not count: what came before it was in force could not have come here.
func TestRequestsOfTheFirstMomentsLeaveNoEndpointUnused(t *testing.T) {
	for after, unused := range map[time.Duration]bool{500 * time.Millisecond: false, 2 * time.Second: true} {
		u, all := use{}, 0.0
		for passed := time.Duration(0); passed < 6*time.Second; passed += 100 * time.Millisecond {
			if passed == after {
				all = 200
			}
			now := epoch.Add(passed)
			u.observe(&Sample{Given: Given{Share: 0.3, Part: 0.3, CameAt: now}},
				&common{now: now, arrived: all, Traffic: Traffic{InForce: time.Second}})
		}
		if u.none != unused {
			t.Errorf("200 requests elsewhere after %v: unused %v (%v were due)", after, u.none, u.due)
		}
	}
}

// What was missing when an endpoint was found not to be used is forgotten with the request that ends it.
func TestWhatWasFoundOfOneEjectionIsNotThatOfTheNext(t *testing.T) {
	u := use{due: 90, found: 46, none: true}
	u.observe(&Sample{Given: Given{Came: 1, Any: true, CameAt: epoch}},
		&common{now: epoch, arrived: 1, Traffic: Traffic{InForce: time.Second}})
	if u.gap != 46 || u.found != 0 {
		t.Errorf("a gap of %v is learned, and %v were missing when it was found; want 46, 0", u.gap, u.found)
	}
}

// The bounds hold: no Poisson or binomial number is as low more often.
func TestSurpriseIsABoundOnChance(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		expected := rapid.Float64Range(0.1, 200).Draw(t, "expected")
		answered := rapid.IntRange(0, 300).Draw(t, "answered")
		got := surprise(float64(answered), expected)
		probability, term := 0.0, math.Exp(-expected)
		for k := 0; k <= answered; k++ {
			probability += term
			term *= expected / float64(k+1)
		}
		if float64(answered) >= expected && got != 0 {
			t.Fatalf("%d answers of %v surprise by %v", answered, expected, got)
		}
		check(t, fmt.Sprintf("%d answers of %v", answered, expected), got, probability)
	})
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 100).Draw(t, "requests")
		answered := rapid.IntRange(0, n).Draw(t, "answered")
		p := rapid.Float64Range(0.01, 0.99).Draw(t, "p")
		probability, term := 0.0, math.Pow(1-p, float64(n))
		for k := 0; k <= answered; k++ {
			probability += term
			term *= float64(n-k) / float64(k+1) * p / (1 - p)
		}
		got := tooFew(float64(answered), float64(n-answered), p)
		check(t, fmt.Sprintf("%d of %d, each by %v", answered, n, p), got, probability)
	})
}

func check(t *rapid.T, what string, surprise, probability float64) {
	if !(surprise >= 0) || !(math.Exp(-surprise) >= probability*(1-1e-9)) {
		t.Fatalf("%s: a bound of %v, and a probability of %v", what, math.Exp(-surprise), probability)
	}
}

// One that hangs soon after it came has no history to compare with but that of the others.
func TestAnEndpointThatHangsBeforeItAnsweredMuchIsFound(t *testing.T) {
	for _, c := range []struct {
		name  string
		shown float64 // requests in flight that its own report shows
	}{{"its report shows the requests", 2}, {"its report shows a part of them", 1}} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(4)
			w.run(tick, serves) // a single answer of each
			w.run(5*time.Second, first(func(now time.Time) Sample { return Sample{Report: Report{Reported: now}} }))
			began := w.now
			for w.all[0].State == Healthy {
				w.run(tick, first(func(now time.Time) Sample {
					return Sample{
						Report:   Report{Reported: now, ReadAt: now, Shown: c.shown, NotShown: 2 - c.shown},
						Requests: Requests{InFlight: 2, Logged: true},
						Given:    Given{Share: 0.25, Part: 0.25, CameAt: now, Any: true},
					}
				}))
				if took := w.now.Sub(began); took > LongestIteration+tick {
					t.Fatal("not found")
				}
			}
			if !strings.Contains(w.all[0].Reason, "elsewhere in the pool") {
				t.Errorf("the reason is %q", w.all[0].Reason)
			}
		})
	}
}

// The pushes of a pool of thousands take seconds, and so do its steps.
func TestAStallIsFoundAndTriedHoweverFarApartStepsAre(t *testing.T) {
	const apart = 5 * time.Second
	w := newWorld(4)
	e := &w.all[0]
	w.runEach(apart, 10*time.Minute, serves)
	if w.runEach(apart, time.Minute, first(stands)); e.State != Ejected {
		t.Fatalf("state %d after a minute without an answer, want %d", e.State, Ejected)
	}
	tried := false
	for range time.Hour / apart {
		w.runEach(apart, apart, first(func(now time.Time) Sample {
			return Sample{Report: Report{Reported: now, ReadAt: now}, Given: Given{Part: 0.25, CameAt: now}}
		}))
		tried = tried || e.Tried > 0
	}
	if !tried {
		t.Error("it was not tried in an hour")
	}
}
