package push

import (
	"math"
	"testing"
	"time"

	"steelyard/weighting"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// cost is what a push costs a real Envoy: 0.56 ms for 20 endpoints.
var cost = Cost{CPU: 500 * time.Microsecond, CPUPerEndpoint: 3 * time.Microsecond, EndpointBytes: 30}

func want[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// termsOf is a budget for ten proxies and twenty endpoints.
func termsOf(b Budget) terms {
	b.Cost = cost
	return b.terms(Subscribers{Proxies: 10}, 20)
}

func TestTheLeastGainRisesAsTheBudgetIsSpent(t *testing.T) {
	terms := termsOf(Budget{MinInterval: 5 * time.Millisecond, ProxyCPU: 0.02})
	each := 560e-6 / 0.02 // of the bucket
	for _, c := range []struct{ used, want float64 }{
		{0, 0}, {0.45, 0}, {0.75, 0.1}, {0.9, 0.4}, {1.05, math.Inf(1)}, {5, math.Inf(1)},
	} {
		var b bucket
		for range int(math.Round(c.used / each)) {
			b.pushed(epoch, terms)
		}
		if got := b.leastGain(epoch, terms); got != c.want && math.Abs(got-c.want) > 0.15*c.want {
			t.Errorf("with %v of the bucket spent: %v, want %v", c.used, got, c.want)
		}
		if spent := c.used >= 1; spent != (b.rest(epoch, terms) > terms.floor) {
			t.Errorf("with %v of the bucket spent the rest is %v", c.used, b.rest(epoch, terms))
		}
		want(t, "least gain ten seconds later", b.leastGain(epoch.Add(10*time.Second), terms), 0)
	}
	var b bucket
	want(t, "least gain without a budget", b.leastGain(epoch, termsOf(Budget{})), 0)
}

// What was spent is spent of the budget of that time, and more than all of it cannot be.
func TestABudgetThatShrinksLeavesNoDebtBehind(t *testing.T) {
	const floor = 5 * time.Millisecond
	small := termsOf(Budget{MinInterval: floor, ProxyCPU: 0.0004})
	for _, c := range []struct {
		name   string
		before terms
	}{
		{"from no budget", termsOf(Budget{MinInterval: floor})},
		{"from half of a core", termsOf(Budget{MinInterval: floor, ProxyCPU: 0.5})},
		{"from one cluster to fifty", termsOf(Budget{MinInterval: floor, ProxyCPU: 0.02})},
		{"from the same", small},
	} {
		t.Run(c.name, func(t *testing.T) {
			var b bucket
			now := epoch
			for range 100_000 {
				b.pushed(now, c.before)
				now = now.Add(floor)
			}
			b.pushed(now, small)
			now = now.Add(bucketSize + small.sustained())
			want(t, "least gain when the last push is paid for and the bucket full", b.leastGain(now, small), 0)
			want(t, "the rest", b.rest(now, small), floor)
		})
	}
}

// A heartbeat of a cluster without traffic takes seconds of its budget. With the first request the budget
// is another, and no push from then on waits for that heartbeat.
func TestABudgetThatGrowsWithTheFirstRequestLeavesNoDebtBehind(t *testing.T) {
	budget := Budget{MinInterval: 5 * time.Millisecond, ProxyCPU: 0.02, Cost: cost}
	idle := budget.terms(Subscribers{Proxies: 10, Clusters: 100, Idle: true}, 20)
	busy := budget.terms(Subscribers{Proxies: 10, Clusters: 100, BusyClusters: 1}, 20)
	var b bucket
	b.pushed(epoch, idle)
	if at := epoch.Add(time.Second); b.leastGain(at, idle) < 1 {
		t.Errorf("with the small budget the least gain is %v a second later: the test shows nothing",
			b.leastGain(at, idle))
	}
	want(t, "least gain at the first request", b.leastGain(epoch.Add(time.Second), busy), 0)
	want(t, "the rest", b.rest(epoch.Add(time.Second), busy), busy.floor)
}

// The budget of a cluster changes whenever any cluster of a proxy turns idle or busy, which among many
// clusters is all the time. What pushes cost the proxy stays within the budget.
func TestABudgetThatSwingsIsNotOverspent(t *testing.T) {
	swing := []terms{
		termsOf(Budget{MinInterval: 5 * time.Millisecond, ProxyCPU: 0.004}),
		termsOf(Budget{MinInterval: 5 * time.Millisecond, ProxyCPU: 0.005}),
	}
	for _, half := range []time.Duration{100 * time.Millisecond, time.Second, time.Minute} {
		var b bucket
		var budget, spent float64 // seconds of CPU
		next := epoch
		const step = 5 * time.Millisecond
		for now := epoch; now.Before(epoch.Add(200 * time.Second)); now = now.Add(step) {
			terms := swing[int(now.Sub(epoch)/half)%len(swing)]
			budget += terms.proxyCPU * step.Seconds()
			if !now.Before(next) {
				b.pushed(now, terms)
				spent += 560e-6
			}
			next = now.Add(b.rest(now, terms))
		}
		if ratio := spent / budget; ratio < 0.95 || ratio > 1.05 {
			t.Errorf("with another budget every %v: %.2f of it was spent", half, ratio)
		}
	}
}

func TestABudgetOfNearlyNothingIsABudget(t *testing.T) {
	want(t, "what it sustains", termsOf(Budget{MinInterval: time.Millisecond, ProxyCPU: 1e-300}).sustained(), time.Hour)
}

// Half of a proxy's CPU is shared by all clusters that it subscribes to, and half by those with traffic.
func TestClustersShareTheCPUOfAProxy(t *testing.T) {
	budget := Budget{MinInterval: 5 * time.Millisecond, ProxyCPU: 0.02, Cost: cost}
	for _, c := range []struct {
		name  string
		fleet Subscribers
		want  float64 // of a core
	}{
		{"nothing is known of the proxies", Subscribers{}, 0.02},
		{"one cluster", Subscribers{Clusters: 1, BusyClusters: 1}, 0.02},
		{"four with traffic", Subscribers{Clusters: 4, BusyClusters: 4}, 0.005},
		{"the only one of four with traffic", Subscribers{Clusters: 4, BusyClusters: 1}, 0.0125},
		{"one of the others", Subscribers{Clusters: 4, BusyClusters: 1, Idle: true}, 0.0025},
	} {
		if got := budget.terms(c.fleet, 20).proxyCPU; math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%s: %v of a core, want %v", c.name, got, c.want)
		}
	}
}

func TestReadingsOfManyEndpointsAreGathered(t *testing.T) {
	scraped := func(interval time.Duration, endpoints int) *weighting.Snapshot {
		return &weighting.Snapshot{ScrapeInterval: interval, Endpoints: make([]weighting.Endpoint, endpoints)}
	}
	want(t, "few endpoints", gather(scraped(time.Second, 20)), 0)
	want(t, "many", gather(scraped(time.Second, 21)), 50*time.Millisecond)
	want(t, "many, a minute between readings", gather(scraped(time.Minute, 1000)), 250*time.Millisecond)
	counted := scraped(time.Second, 21)
	counted.Endpoints[20].InFlight.At = epoch
	want(t, "many, and one is counted", gather(counted), 0)
}

func TestHeartbeatsAndStalenessStretchToWhatTheBudgetsSustain(t *testing.T) {
	const ms = time.Millisecond
	few, many := Budget{MinInterval: 5 * ms, ProxyCPU: 0.02, Cost: cost},
		Budget{MinInterval: 5 * ms, ProxyCPU: 0.0007, Cost: cost}
	// 300 endpoints: 1.4 ms a push, 70 ms and 2 s apart.
	for _, c := range []struct {
		budget                                  Budget
		heartbeat, stale, stretched, staleAfter time.Duration
	}{
		{few, 500 * ms, 3 * time.Second, 500 * ms, 3 * time.Second},
		{many, 500 * ms, 3 * time.Second, 2 * time.Second, 6 * time.Second},
		{many, 500 * ms, time.Minute, 2 * time.Second, time.Minute},
		{many, 0, 0, 0, 0},
		{Budget{MinInterval: 1500 * ms}, 500 * ms, 3 * time.Second, 1500 * ms, 5 * time.Second}, // in whole seconds
	} {
		heartbeat, staleAfter := c.budget.Stretch(Subscribers{Proxies: 10}, 300, c.heartbeat, c.stale)
		if heartbeat.Round(ms) != c.stretched || staleAfter != c.staleAfter {
			t.Errorf("%+v: a heartbeat of %v and stale after %v become %v and %v, want %v and %v",
				c.budget, c.heartbeat, c.stale, heartbeat, staleAfter, c.stretched, c.staleAfter)
		}
	}
}

func TestTheIntervalFollowsTheBudgets(t *testing.T) {
	const ms = time.Millisecond
	budget := Budget{MinInterval: 5 * ms, BytesPerSecond: 10 << 20, ProxyCPU: 0.02, Cost: cost}
	for _, c := range []struct {
		name               string
		budget             Budget
		proxies, endpoints int
		pushes             int // so far, all at once
		want               time.Duration
		limit              string
	}{
		{"a small fleet", budget, 10, 20, 0, 5 * ms, LimitFloor},
		{"10 x 20 cost 6 KB a push", Budget{MinInterval: ms / 10, BytesPerSecond: 10 << 20, Cost: cost}, 10, 20, 0,
			572 * time.Microsecond, LimitBytes},
		{"1000 x 1000 cost 30 MB a push", budget, 1000, 1000, 0, 2861 * ms, LimitBytes},
		{"a burst is free at first", budget, 10, 20, 5, 5 * ms, LimitFloor},
		{"and then spends the budget", budget, 10, 20, 20, 15680 * time.Microsecond, LimitCPU},
		{"which sustains 20 ms of CPU a second", budget, 10, 20, 1000, 28 * ms, LimitCPU},
		{"a push of 1000 endpoints costs 3.5 ms", budget, 1, 1000, 1000, 175 * ms, LimitCPU},
		{"no budget of CPU", Budget{MinInterval: 5 * ms, Cost: cost}, 10, 20, 1000, 5 * ms, LimitFloor},
	} {
		t.Run(c.name, func(t *testing.T) {
			terms := c.budget.terms(Subscribers{Proxies: c.proxies}, c.endpoints)
			var b bucket
			for range c.pushes {
				b.pushed(epoch, terms)
			}
			got, limit := b.interval(epoch, terms)
			if (got-c.want).Abs() > c.want/100+time.Microsecond || limit != c.limit {
				t.Errorf("%v by %s, want %v by %s", got, limit, c.want, c.limit)
			}
			if later, _ := b.interval(epoch.Add(time.Hour), terms); c.limit == LimitCPU &&
				later != c.budget.MinInterval {
				t.Errorf("an hour later %v, want the floor", later)
			}
		})
	}
}
