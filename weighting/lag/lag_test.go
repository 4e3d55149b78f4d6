package lag

import (
	"testing"
	"time"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// A reported pool gets a hundred requests a second by its shares, which are read each sixteenth of a second.
type reported struct {
	Estimator
	histories [4]History
	shares    [][4]float64 // in each step
	limits    bool
	even      bool // shares never change
}

const step = time.Second / 32

func (r *reported) now() time.Time { return epoch.Add(time.Duration(len(r.shares)) * step) }

// run goes on for that long with reports that are that late.
func (r *reported) run(length, late time.Duration) {
	for range length / step {
		n := len(r.shares)
		shares := [4]float64{0.25, 0.25, 0.25, 0.25}
		if !r.even {
			shares = [4]float64{0.1, 0.1, 0.1, 0.1}
			shares[n/16*7%5%4] = 0.7 // for half a second
		}
		r.shares = append(r.shares, shares)
		r.step(r.now(), late)
	}
}

func (r *reported) step(now time.Time, late time.Duration) {
	var pool []Endpoint
	for i := range r.histories {
		e := Endpoint{History: &r.histories[i], Share: r.shares[len(r.shares)-1][i]}
		if last := len(r.shares) - 1 - int(late/step); last > 0 && last%2 == 1 {
			e.ReadAt = now
			e.Requests = 100 * step.Seconds() * (r.shares[last-1][i] + r.shares[last][i])
		}
		pool = append(pool, e)
	}
	r.Step(now, pool, r.limits)
}

func TestTheLagIsTheTimeByWhichArrivalsFollowTheShares(t *testing.T) {
	for _, late := range []time.Duration{0, 250 * time.Millisecond, time.Second, 4 * time.Second} {
		t.Run(late.String(), func(t *testing.T) {
			var r reported
			if r.run(30*time.Second, late); r.Late != late {
				t.Errorf("late by %v", r.Late)
			}
		})
	}
}

func TestSharesThatNeverChangeShowNoLag(t *testing.T) {
	r := reported{even: true}
	if r.run(time.Minute, time.Second); r.Late != 0 {
		t.Errorf("late by %v", r.Late)
	}
}

// Where requests wait for slots it is forgotten sooner.
func TestALagThatIsKnownStandsUntilItsEvidenceIsGone(t *testing.T) {
	after := func(limits bool) (gone time.Duration) {
		r := reported{limits: limits}
		r.run(30*time.Second, time.Second)
		for r.even = true; r.Late != 0; gone += time.Second {
			if r.run(time.Second, time.Second); gone > 10*time.Minute {
				t.Fatal("it is never forgotten")
			}
		}
		return gone
	}
	batching, limited := after(false), after(true)
	t.Logf("forgotten after %v where endpoints batch, %v where requests wait for slots", batching, limited)
	if limited < 30*time.Second || batching < limited+time.Minute {
		t.Error("want half a minute at least, and a minute more where endpoints batch")
	}
}

func TestReportsThatComeAtOnceAgainAreSeenToDoSo(t *testing.T) {
	var r reported
	r.run(30*time.Second, time.Second)
	if r.run(30*time.Second, 0); r.Late != 0 {
		t.Errorf("late by %v", r.Late)
	}
}

// A clock that goes back ends the histories, and takes nothing from what is known.
func TestALagOutlastsAClockThatGoesBack(t *testing.T) {
	var r reported
	r.run(30*time.Second, time.Second)
	r.step(epoch.Add(-time.Hour), time.Second)
	if r.Late != time.Second {
		t.Errorf("late by %v", r.Late)
	}
	for i := range r.histories {
		if r.histories[i].sum != 0 {
			t.Errorf("endpoint %d has a history of %v share-seconds", i, r.histories[i].sum)
		}
	}
}

func TestAnEndpointThatJoinsIsNoEvidenceUntilItHasAHistory(t *testing.T) {
	var r reported
	r.run(30*time.Second, time.Second)
	r.histories[3] = History{}
	before := r.scores
	pool := []Endpoint{{History: &r.histories[3], Share: 1, Requests: 1000, ReadAt: r.now().Add(step)}}
	r.Step(r.now().Add(step), pool, false)
	for i, score := range r.scores {
		if score > max(0, before[i]) {
			t.Errorf("evidence for %v rose from %v to %v", lags[i], before[i], score)
		}
	}
}

// An endpoint that was away for a moment has no shares of that time to compare with.
func TestAnEndpointThatWasAwayDoesNotHideTheLag(t *testing.T) {
	for _, away := range []time.Duration{100 * time.Millisecond, time.Second, 3 * time.Second, 5 * time.Second} {
		t.Run(away.String(), func(t *testing.T) {
			var r reported
			r.run(30*time.Second, 0)
			for range away / step {
				r.shares = append(r.shares, [4]float64{0.4, 0.3, 0.3, 0})
				var pool []Endpoint
				for i := range 3 {
					pool = append(pool, Endpoint{History: &r.histories[i], Share: r.shares[len(r.shares)-1][i]})
				}
				r.Step(r.now(), pool, r.limits)
			}
			r.run(10*time.Second, 0)
			if r.run(2*time.Minute, time.Second); r.Late != time.Second {
				t.Errorf("late by %v, want 1s", r.Late)
			}
		})
	}
}
