package weighting

import (
	"math"
	"testing"
	"time"
)

// A count that cannot leak is not put down to one by a server that denies the
// requests: a server that stalls before it counts looks idle and is not.
func TestAnExactCountIsNotCorrectedDownwards(t *testing.T) {
	for _, c := range []struct {
		name      string
		exact     bool
		running   float64 // as the server says
		want      float64 // load
		unproxied float64
	}{
		{"a count that may leak follows the server", false, 0, 0, -5},
		{"an exact one stands", true, 0, 5, 0},
		{"traffic that bypasses the proxies counts either way", true, 8, 8, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			law := NewLaw(DefaultParams())
			var d Decision
			for i := range 100 {
				now := at(float64(i) * 0.1)
				read := func(v float64) Reading { return Reading{Value: v, At: now} }
				d = law.Step(now, Snapshot{Endpoints: []Endpoint{{
					Address: "10.0.0.1:80", Capacity: 4, InFlight: read(5), Exact: c.exact,
					Server: ServerReport{Queue: read(0), Running: read(c.running)},
				}}})
			}
			e := d.Endpoints[0]
			if math.Abs(e.Load-c.want) > 0.01 || math.Abs(e.Unproxied-c.unproxied) > 0.01 || e.LoadSource != LoadFused {
				t.Errorf("load %.2f (unproxied %.2f, %s), want %.2f (%.2f, %s)", e.Load, e.Unproxied, e.LoadSource, c.want, c.unproxied, LoadFused)
			}
		})
	}
}

func TestTheArrivalRateIsTheLargerOfWhatServersCompletedAndProxiesSent(t *testing.T) {
	for _, c := range []struct {
		name              string
		completed, issued float64 // per second; NaN: not reported
		want              float64
		source            RateSource
	}{
		{"servers alone", 4, math.NaN(), 4, RateCompletions},
		{"proxies alone", math.NaN(), 3, 3, RateIssued},
		{"traffic beside the proxies", 4, 3, 4, RateCompletions},
		{"a server that does not count all", 1, 3, 3, RateIssued},
		{"nobody", math.NaN(), math.NaN(), 0, RateUnknown},
	} {
		t.Run(c.name, func(t *testing.T) {
			law := NewLaw(DefaultParams())
			var d Decision
			for i := range 300 {
				s := float64(i) * 0.1
				sum := func(rate float64) Reading {
					if math.IsNaN(rate) {
						return Reading{}
					}
					return Reading{Value: rate * s, At: at(s)}
				}
				d = law.Step(at(s), Snapshot{Endpoints: []Endpoint{{
					Address: "10.0.0.1:80", Capacity: 4,
					Server:  ServerReport{Completions: sum(c.completed)},
					Proxies: ProxyReport{Issued: sum(c.issued)},
				}}})
			}
			if math.Abs(d.ArrivalRate-c.want) > 0.05 || d.ArrivalRateSource != c.source {
				t.Errorf("%.2f a second by %s, want %.2f by %s", d.ArrivalRate, d.ArrivalRateSource, c.want, c.source)
			}
		})
	}
}

func TestWhatAPushHasToGainRisesAsTheBudgetIsSpent(t *testing.T) {
	pace, fleet := Pace{Floor: 5 * time.Millisecond, ProxyCPU: 0.02}, Fleet{10, 20}
	each := float64(PushCost(fleet.Endpoints)) / (0.02 * float64(time.Second)) // of the bucket
	for _, c := range []struct{ used, want float64 }{
		{0, 0}, {0.45, 0}, {0.75, 0.1}, {0.9, 0.4}, {1.05, math.Inf(1)}, {5, math.Inf(1)},
	} {
		var p Pacer
		for range int(math.Round(c.used / each)) {
			p.Pushed(epoch, pace, fleet)
		}
		if got := p.Worth(epoch, pace); got != c.want && math.Abs(got-c.want) > 0.15*c.want {
			t.Errorf("with %v of the bucket spent: %v, want %v", c.used, got, c.want)
		}
		if spent := c.used >= 1; spent != (p.Rest(epoch, pace, fleet) > pace.Floor) {
			t.Errorf("with %v of the bucket spent the rest is %v", c.used, p.Rest(epoch, pace, fleet))
		}
		want(t, "worth a second of rest later", p.Worth(epoch.Add(10*time.Second), pace), 0)
	}
	var p Pacer
	want(t, "worth without a budget", p.Worth(epoch, Pace{}), 0)
}

// What was spent is spent of the budget of then, and more than all of it cannot be.
func TestABudgetThatChangesLeavesNoDebtBehind(t *testing.T) {
	small, fleet := Pace{Floor: 5 * time.Millisecond, ProxyCPU: 0.0004}, Fleet{10, 20}
	for _, c := range []struct {
		name   string
		before Pace
	}{
		{"from no budget", Pace{Floor: small.Floor}},
		{"from half of a core", Pace{Floor: small.Floor, ProxyCPU: 0.5}},
		{"from one cluster to fifty", Pace{Floor: small.Floor, ProxyCPU: 0.02}},
		{"from the same", small},
	} {
		t.Run(c.name, func(t *testing.T) {
			var p Pacer
			now := epoch
			for range 100_000 {
				p.Pushed(now, c.before, fleet)
				now = now.Add(small.Floor)
			}
			p.Pushed(now, small, fleet)
			now = now.Add(bucket + small.Sustained(fleet))
			want(t, "worth when the last push is paid for and the bucket full", p.Worth(now, small), 0)
			want(t, "the rest", p.Rest(now, small, fleet), small.Floor)
		})
	}
}

// A heartbeat of a cluster without traffic takes seconds of its budget. With the first request
// the budget is another, and no push of then is to wait for it.
func TestABudgetThatGrowsLeavesNoDebtBehind(t *testing.T) {
	idle := Pace{Floor: 5 * time.Millisecond, ProxyCPU: 0.02 * 0.5 / 100, Idle: true}
	busy, fleet := Pace{Floor: idle.Floor, ProxyCPU: 0.02 * 0.505}, Fleet{10, 20}
	var p Pacer
	p.Pushed(epoch, idle, fleet)
	if at := epoch.Add(time.Second); p.Worth(at, idle) < 1 {
		t.Errorf("with the small budget a push is worth %v a second later: nothing is to be seen here", p.Worth(at, idle))
	}
	want(t, "worth at the first request", p.Worth(epoch.Add(time.Second), busy), 0)
	want(t, "the rest", p.Rest(epoch.Add(time.Second), busy, fleet), busy.Floor)
}

// The budget of a cluster changes whenever any cluster of a proxy turns idle or busy, which
// among many is all the time. What it may cost the proxy is no more for that.
func TestABudgetThatSwingsIsNotOverspent(t *testing.T) {
	fleet := Fleet{10, 20}
	paces := []Pace{{Floor: 5 * time.Millisecond, ProxyCPU: 0.004}, {Floor: 5 * time.Millisecond, ProxyCPU: 0.005}}
	for _, half := range []time.Duration{100 * time.Millisecond, time.Second, time.Minute} {
		var p Pacer
		var budget, spent float64 // seconds of CPU
		next := epoch
		const step = 5 * time.Millisecond
		for now := epoch; now.Before(epoch.Add(200 * time.Second)); now = now.Add(step) {
			pace := paces[int(now.Sub(epoch)/half)%len(paces)]
			budget += pace.ProxyCPU * step.Seconds()
			if !now.Before(next) {
				p.Pushed(now, pace, fleet)
				spent += PushCost(fleet.Endpoints).Seconds()
			}
			next = now.Add(p.Rest(now, pace, fleet))
		}
		if ratio := spent / budget; ratio < 0.95 || ratio > 1.05 {
			t.Errorf("with another budget every %v: %.2f of it was spent", half, ratio)
		}
	}
}

func TestABudgetOfNearlyNothingIsABudget(t *testing.T) {
	pace := Pace{Floor: 5 * time.Millisecond, ProxyCPU: 1e-300}
	want(t, "what it sustains", pace.Sustained(Fleet{10, 20}), time.Hour)
}

func TestReadingsOfManyEndpointsAreGathered(t *testing.T) {
	want(t, "few endpoints", Gather(time.Second, 20), 0)
	want(t, "many", Gather(time.Second, 21), 50*time.Millisecond)
	want(t, "many, read seldom", Gather(time.Minute, 1000), 250*time.Millisecond)
}

func TestHeartbeatsAndStalenessStretchToWhatTheBudgetsSustain(t *testing.T) {
	const ms = time.Millisecond
	few, many := Pace{Floor: 5 * ms, ProxyCPU: 0.02}, Pace{Floor: 5 * ms, ProxyCPU: 0.0007}
	fleet := Fleet{10, 300} // 1.4 ms a push: 70 ms and 2 s apart
	for _, c := range []struct {
		pace                                    Pace
		heartbeat, stale, stretched, staleAfter time.Duration
	}{
		{few, 500 * ms, 3 * time.Second, 500 * ms, 3 * time.Second},
		{many, 500 * ms, 3 * time.Second, 2 * time.Second, 6 * time.Second},
		{many, 500 * ms, time.Minute, 2 * time.Second, time.Minute},
		{many, 0, 0, 0, 0},
		{Pace{Floor: 1500 * ms}, 500 * ms, 3 * time.Second, 1500 * ms, 5 * time.Second}, // in whole seconds
	} {
		heartbeat, staleAfter := c.pace.Stretch(fleet, c.heartbeat, c.stale)
		if heartbeat.Round(ms) != c.stretched || staleAfter != c.staleAfter {
			t.Errorf("%+v: a heartbeat of %v and stale after %v become %v and %v, want %v and %v",
				c.pace, c.heartbeat, c.stale, heartbeat, staleAfter, c.stretched, c.staleAfter)
		}
	}
}

func TestThePaceFollowsItsBudgets(t *testing.T) {
	const ms = time.Millisecond
	pace := Pace{Floor: 5 * ms, BytesPerSecond: 10 << 20, ProxyCPU: 0.02}
	for _, c := range []struct {
		name   string
		pace   Pace
		fleet  Fleet
		pushes int // so far, all at once
		want   time.Duration
		reason string
	}{
		{"a small fleet", pace, Fleet{10, 20}, 0, 5 * ms, PaceFloor},
		{"10 x 20 cost 6 KB a push", Pace{Floor: ms / 10, BytesPerSecond: 10 << 20}, Fleet{10, 20}, 0, 572 * time.Microsecond, PaceBytes},
		{"1000 x 1000 cost 30 MB a push", pace, Fleet{1000, 1000}, 0, 2861 * ms, PaceBytes},
		{"a burst is free at first", pace, Fleet{10, 20}, 5, 5 * ms, PaceFloor},
		{"and then spends the budget", pace, Fleet{10, 20}, 20, 15680 * time.Microsecond, PaceCPU},
		{"which sustains 20 ms of CPU a second", pace, Fleet{10, 20}, 1000, 28 * ms, PaceCPU},
		{"a push of 1000 endpoints costs 3.5 ms", pace, Fleet{1, 1000}, 1000, 175 * ms, PaceCPU},
		{"no budget of CPU", Pace{Floor: 5 * ms}, Fleet{10, 20}, 1000, 5 * ms, PaceFloor},
	} {
		t.Run(c.name, func(t *testing.T) {
			var p Pacer
			for range c.pushes {
				p.Pushed(epoch, c.pace, c.fleet)
			}
			got, reason := p.Interval(epoch, c.pace, c.fleet)
			if (got-c.want).Abs() > c.want/100+time.Microsecond || reason != c.reason {
				t.Errorf("%v by %s, want %v by %s", got, reason, c.want, c.reason)
			}
			if later, _ := p.Interval(epoch.Add(time.Hour), c.pace, c.fleet); c.reason == PaceCPU && later != c.pace.Floor {
				t.Errorf("an hour later %v, want the floor", later)
			}
		})
	}
}
