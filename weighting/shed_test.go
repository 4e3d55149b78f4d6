package weighting

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// A flood is a pool without any noise whose slots are all taken: what is offered
// and not refused lines up, and each endpoint completes as much as it can.
type flood struct {
	law      *Law
	now      time.Time
	slots    float64
	offered  float64   // requests per second, at each endpoint
	served   float64   // of each endpoint, per second
	waiting  []float64 // requests
	complete float64   // requests, of each endpoint since the beginning
	drop     float64
	edit     func([]Endpoint) // what the law is shown instead; none if nil
}

func shedding(target time.Duration, most float64) Params {
	p := DefaultParams()
	p.Shedding = Shedding{Enabled: true, TargetWait: target, MaxDrop: most}
	return p
}

// newFlood has four endpoints of four slots that complete ten requests a second
// each, and where so many wait.
func newFlood(p Params, offered, waiting float64) *flood {
	f := &flood{law: NewLaw(p), now: epoch, slots: 4, offered: offered, served: 10}
	for range 4 {
		f.waiting = append(f.waiting, waiting)
	}
	return f
}

func (f *flood) step(dt time.Duration) Decision {
	f.now = f.now.Add(dt)
	f.complete += f.served * dt.Seconds()
	pool := make([]Endpoint, len(f.waiting))
	for i := range f.waiting {
		f.waiting[i] = max(0, f.waiting[i]+(f.offered*(1-f.drop)-f.served)*dt.Seconds())
		pool[i] = scraped(fmt.Sprint(i), f.slots, f.waiting[i], f.slots, f.now)
		pool[i].Server.Completions = known(f.complete, f.now)
	}
	if f.edit != nil {
		f.edit(pool)
	}
	d := f.law.Step(f.now, Snapshot{Endpoints: pool, PushPeriod: dt})
	f.drop = d.DropFraction
	return d
}

func (f *flood) run(length time.Duration, see func(Decision)) (last Decision) {
	const tick = 250 * time.Millisecond
	for end := f.now.Add(length); f.now.Before(end); {
		last = f.step(tick)
		if see != nil {
			see(last)
		}
	}
	return last
}

func TestNothingIsRefusedUnlessAskedFor(t *testing.T) {
	off := shedding(time.Second, 0.9)
	off.Shedding.Enabled = false
	for name, p := range map[string]Params{"by default": DefaultParams(), "disabled": off,
		"no target": shedding(0, 0.9), "of nothing": shedding(time.Second, 0)} {
		t.Run(name, func(t *testing.T) {
			newFlood(p, 20, 100).run(20*second, func(d Decision) { want(t, "share refused", d.DropFraction, 0) })
		})
	}
	want(t, "share refused of an empty pool", NewLaw(shedding(time.Second, 1)).Step(epoch, Snapshot{}).DropFraction, 0)
}

func TestNoMoreIsRefusedThanAllowed(t *testing.T) {
	for _, most := range []float64{0.3, 0.95, 1, 3} {
		f := newFlood(shedding(time.Second, most), 1000, 0)
		d := f.run(30*second, func(d Decision) {
			if d.DropFraction > min(most, 1) {
				t.Fatalf("refused %v, more than %v", d.DropFraction, most)
			}
		})
		if most < 1 {
			want(t, "share refused", d.DropFraction, most)
		}
	}
}

func TestTheLongerTheQueuesTheMoreIsRefused(t *testing.T) {
	const step = 0.025 // of the share refused
	rapid.Check(t, func(t *rapid.T) {
		offered := rapid.Float64Range(5, 100).Draw(t, "offered")
		queue := rapid.Float64Range(0, 100).Draw(t, "queue")
		more := queue + rapid.Float64Range(0, 100).Draw(t, "more")
		// The flows are the same, and the queues do not change, whatever is refused.
		refused := func(queue float64) float64 {
			f := newFlood(shedding(2*second, 0.95), offered, queue)
			f.edit = func(pool []Endpoint) {
				for i := range pool {
					pool[i].Server.Queue.Value = queue
				}
			}
			return f.run(10*second, nil).DropFraction
		}
		if less, more := refused(queue), refused(more); more < less-2*step {
			t.Fatalf("refused %v with %v waiting, %v with more", less, queue, more)
		}
	})
}

// Whatever else there is: as long as a slot is free, nothing is refused.
func TestNothingIsRefusedWhileASlotIsFree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := newFlood(shedding(rapid.SampledFrom([]time.Duration{time.Millisecond, time.Second, time.Minute}).Draw(t,
			"target"), 0.95),
			rapid.Float64Range(0, 1000).Draw(t, "offered"), rapid.Float64Range(0, 1000).Draw(t, "waiting"))
		running := rapid.Float64Range(0, f.slots-1).Draw(t, "running")
		free := func(pool []Endpoint) {
			pool[0].Server.Queue.Value, pool[0].Server.Running.Value = 0, running
		}
		within := time.Duration(0)
		if rapid.Bool().Draw(t, "after a while") {
			f.run(5*second, nil)
			within = 2 * second // time for requests to be sent there, besides a horizon
		}
		f.edit = free
		from := f.now
		f.run(10*second, func(d Decision) {
			if within > 0 && f.now.Sub(from) <= within+d.Horizon {
				return
			}
			if f.now.Sub(from) > 0 && d.DropFraction != 0 {
				t.Fatalf("refused %v after a slot has been free for %v", d.DropFraction, f.now.Sub(from))
			}
		})
	})
}

// Slots of a server that stalls are not free, whatever it reports.
func TestASlotOfAStalledServerIsNotFree(t *testing.T) {
	f := newFlood(shedding(2*second, 0.95), 20, 0)
	f.edit = func(pool []Endpoint) {
		pool[0].Server.Queue.Value, pool[0].Server.Running.Value = 0, 0
		pool[0].Server.Completions = Reading{}
		pool[0].Exact, pool[0].InFlight = true, known(7, f.now)
	}
	d := f.run(20*second, nil)
	if e := d.Endpoints[0]; !e.Overloaded || d.DropFraction < 0.3 {
		t.Errorf("refused %v, flagged %v (%s); want a flag, and slots that do not count", d.DropFraction, e.Overloaded,
			e.OverloadReason)
	}
}

// Nor is a slot of a server that is out of memory: nothing is sent to it while it is flagged, and
// next to nothing while the rest is saturated. What is refused would have come to the rest.
func TestASlotThatNothingIsSentToIsNotFree(t *testing.T) {
	f := newFlood(shedding(2*second, 0.95), 20, 0)
	completed := 0.0
	f.edit = func(pool []Endpoint) {
		completed += 0.25
		pool[0].Server.Utilization = known(0.99, f.now)
		pool[0].Server.Queue.Value, pool[0].Server.Running.Value = 0, 1
		pool[0].Server.Completions.Value = completed
	}
	d := f.run(60*second, nil)
	if wait := f.waiting[1] / f.served; d.DropFraction < 0.3 || wait > 3 {
		t.Errorf("refused %v at twice the capacity, and %v s to wait, want half, and two", d.DropFraction, wait)
	}
	wantNear(t, "expected wait", d.ExpectedWait, 1.5, 0.3)
}

// A pool whose metrics all died is not a saturated one.
func TestSheddingEndsWhenNothingIsReported(t *testing.T) {
	f := newFlood(shedding(2*second, 0.95), 20, 0)
	if d := f.run(20*second, nil); d.DropFraction < 0.3 {
		t.Fatalf("refused %v at twice the capacity", d.DropFraction)
	}
	died := f.now
	f.edit = func(pool []Endpoint) {
		for i := range pool {
			pool[i].Server = ServerReport{}
		}
	}
	d := f.run(DefaultParams().Decay+25*second, nil)
	if d.DropFraction != 0 || !math.IsNaN(d.ExpectedWait) {
		t.Errorf("refused %v, expected wait %v, %v after the last report", d.DropFraction, d.ExpectedWait,
			f.now.Sub(died))
	}
}

// Servers short of CPU are slow to answer scrapes, too: a pool that is just above its
// capacity and falls silent is not to be taken for one that is flooded.
func TestSheddingDoesNotRiseWhileNothingIsReported(t *testing.T) {
	const tick = 10 * time.Millisecond
	f := newFlood(shedding(2*second, 0.95), 525, 0)
	f.slots, f.served = 50, 500
	heard := 30 * second
	var held []Endpoint
	f.edit = func(pool []Endpoint) {
		if now := f.now.Sub(epoch); now <= heard && now%(250*time.Millisecond) == 0 || held == nil {
			held = slices.Clone(pool)
		}
		copy(pool, held)
	}
	highest := func(length time.Duration) (most float64) {
		for end := f.now.Add(length); f.now.Before(end); {
			most = max(most, f.step(tick).DropFraction)
		}
		return most
	}
	before := highest(heard)
	if after := highest(DefaultParams().Decay); after > before+0.05 {
		t.Errorf("refused %v when nothing was heard, and %v at most before", after, before)
	}
}

// A pool that completes nothing refuses as much as it may.
func TestAPoolThatCompletesNothingRefuses(t *testing.T) {
	f := newFlood(shedding(2*second, 0.9), 20, 0)
	f.served = 0
	want(t, "share refused", f.run(20*second, nil).DropFraction, 0.9)
}

func TestTheShareRefusedRisesAtOnceAndFallsSlowly(t *testing.T) {
	f := newFlood(shedding(2*second, 0.9), 40, 60) // four times the capacity, six seconds of queue
	f.run(3*second, nil)
	if f.drop < 0.7 {
		t.Errorf("refused %v after three seconds", f.drop)
	}
	f.offered = 12
	high, last := f.drop, f.now
	f.run(30*second, func(d Decision) {
		if d.DropFraction >= high {
			return
		}
		if fall := (high - d.DropFraction) / f.now.Sub(last).Seconds(); fall > 0.091 {
			t.Errorf("fell by %.3f a second, want 0.9 in ten seconds", fall)
		}
		high, last = d.DropFraction, f.now
	})
}

// A slot that is free because its endpoint gets no requests is none that a refused request could have had.
func TestATrialInASaturatedPoolEndsNoShedding(t *testing.T) {
	const slots = 16.0
	p := DefaultParams()
	p.Shedding.Enabled = true
	law, failed, flagged := NewLaw(p), 0.0, false
	for i := range 20 * 60 {
		now, passed := at(float64(i)*0.05), float64(i)*0.05
		s := Snapshot{PushDelay: seconds(0.01), PushPeriod: seconds(0.05)}
		for j := range 4 {
			done, queue, running, bad := math.Floor(slots*passed), 64.0, slots, 0.0
			if j == 3 && passed >= 20 {
				if !flagged {
					failed++
				}
				done, queue, running, bad = math.Floor(slots*20), 0, 0, failed
			}
			e := Endpoint{Address: fmt.Sprint(j), Capacity: slots, Exact: true, InFlight: known(queue+running, now)}
			e.Server.Queue, e.Server.Running = known(queue, now), known(running, now)
			e.Server.Completions = known(done, now)
			e.Proxies = ProxyReport{Issued: known(done+80+bad, now), Ended: known(done+80-queue-running+bad, now),
				Answered: known(done+bad, now), Succeeded: known(done, now), LatencySeconds: known(done*5, now),
				Failed: known(bad, now), Errors: known(0, now)}
			s.Endpoints = append(s.Endpoints, e)
		}
		d := law.Step(now, s)
		flagged = d.Endpoints[3].Overloaded
		if passed > 21 && passed < 40 && d.DropFraction < 0.5 {
			t.Fatalf("at %.2f s only %.2f are refused, while clients wait for %v", passed, d.DropFraction,
				d.ExpectedWait)
		}
	}
}
