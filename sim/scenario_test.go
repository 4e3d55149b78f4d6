package sim

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"steelyard/weighting/push"
	"steelyard/xds/envoyspec"
)

func TestPoliciesAreSound(t *testing.T) {
	for _, table := range []struct {
		policies []Policy
		engines  bool
	}{{Policies(), false}, {EnginePolicies(), true}, {PrefixPolicies(), true}} {
		for _, p := range table.policies {
			p = p.withDefaults()
			if err := p.check(table.engines); err != nil {
				t.Errorf("%s: %v", p.Name, err)
			}
		}
	}
}

func TestUnsoundScenarios(t *testing.T) {
	for _, c := range []struct {
		change func(*Scenario)
		says   string
	}{
		{func(s *Scenario) { s.Duration = 0 }, "duration 0s: a positive time is needed"},
		{func(s *Scenario) { s.WarmUp = s.Duration }, "it must be less than the duration"},
		{func(s *Scenario) { s.Envoys = 0 }, "0 Envoys of 1 workers: at least one"},
		{func(s *Scenario) { s.Workers = -1 }, "4 Envoys of -1 workers: at least one"},
		{func(s *Scenario) { s.Pods = nil }, "pods: none"},
		{func(s *Scenario) { s.Pods[0].Slots = 0 }, "pods, group 0: 6 pods of 0 slots"},
		{func(s *Scenario) { s.Pods[0].Count = -1 }, "pods, group 0: -1 pods"},
		{func(s *Scenario) { s.Pods[0].Speed = math.NaN() }, "pods, group 0: 6 pods of 1 slots at speed NaN"},
		{func(s *Scenario) { s.Pods[0].SlowDown = -1 }, "slowed down by -1"},
		{func(s *Scenario) { s.Load = 0 }, "set load or rate"},
		{func(s *Scenario) { s.Load = math.NaN() }, "set load or rate"},
		{func(s *Scenario) { s.Rate = 1e9 }, "no more than 1e+08 in all"},
		{func(s *Scenario) { s.EnvoyShares = []float64{1} },
			"envoy shares [1]: a positive number is needed for each of 4"},
		{func(s *Scenario) { s.EnvoyShares = []float64{1, 1, 0, 1} }, "envoy shares [1 1 0 1]: a positive number"},
		{func(s *Scenario) { s.Service.Kind = "gamma" }, `service kind "gamma": one of`},
		{func(s *Scenario) { s.Service.Mean = 0 }, "service mean 0s"},
		{func(s *Scenario) { s.Events = []Event{{Kind: "flood"}} }, `events, number 0: kind "flood": one of`},
		{func(s *Scenario) { s.Events = []Event{{Kind: Stall, Pods: []int{6}}} }, "pod 6: there are 0 to 5"},
		{func(s *Scenario) { s.Events = []Event{{Kind: FlashCrowd}} }, "flash-crowd by a factor of 0"},
		{func(s *Scenario) { s.Events = []Event{{Kind: Stall, At: -1}} }, "neither may be negative"},
	} {
		s := small()
		c.change(&s)
		_, err := Run(context.Background(), s, Policy{Name: "p", Balancer: Random})
		if err == nil || !strings.Contains(err.Error(), c.says) ||
			!strings.Contains(err.Error(), `simulating "small" under "p"`) {
			t.Errorf("error = %v, want it to say %q", err, c.says)
		}
	}
}

func TestUnsoundPolicies(t *testing.T) {
	for _, c := range []struct {
		policy Policy
		says   string
	}{
		{Policy{}, `balancer "": one of`},
		{Policy{Steelyard: &Steelyard{}}, `source "": one of`},
		{Policy{Steelyard: &Steelyard{Source: AccessLog, EnvoyPolicy: FreeSlots}}, `Envoy policy "free_slots": one of`},
		{Policy{Steelyard: &Steelyard{Source: AccessLog, ReportInterval: -1}}, "report interval -1ns"},
		{Policy{Steelyard: &Steelyard{Source: AccessLog, Budget: push.Budget{ProxyCPU: 1}}},
			"least time between two pushes 0s"},
	} {
		_, err := Run(context.Background(), small(), c.policy)
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("error = %v, want it to say %q", err, c.says)
		}
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(cause)
	for _, p := range Policies() {
		if _, err := Run(ctx, small(), p); !errors.Is(err, cause) {
			t.Errorf("%s: error = %v, want %v", p.Name, err, cause)
		}
	}
}

// The same scenario, seed and policy give the same result, alone or with others;
// another seed gives another; and all policies get the same requests.
func TestSameSeedSameResult(t *testing.T) {
	t.Parallel()
	s := small()
	s.Duration, s.SampleEvery, s.Workers = 2*time.Minute, 10*time.Second, 2
	s.Events = []Event{{At: 90 * time.Second, Kind: FlashCrowd, Factor: 2, For: 10 * time.Second}}
	policies := append(Policies(),
		steelyard("redis", Steelyard{Source: Redis, Loss: 0.01}),
		steelyard("loss", Steelyard{Source: AccessLog, Loss: 0.05, EnvoyPolicy: LeastRequest}))
	first := runAll(t, s, policies)
	for i, p := range policies {
		want(t, "order of the results: policy", first[i].Policy, p.Name)
		want(t, p.Name+": the same again", reflect.DeepEqual(first[i], run(t, s, p)), true)
		want(t, p.Name+": requests", first[i].Requests, first[0].Requests)
	}
	s.Seed = 2
	want(t, "the same with another seed", reflect.DeepEqual(first[0], run(t, s, policies[0])), false)
}

func steelyard(name string, o Steelyard) Policy {
	o.Deadband, o.Heartbeat = 0.01, time.Second
	return Policy{Name: name, Steelyard: &o}
}

// Requests come at the rate, from the Envoys and with the mean that were asked for.
func TestArrivals(t *testing.T) {
	for _, kind := range []Service{
		{Kind: Exponential}, {Kind: Deterministic}, {Kind: LogNormal, Sigma: 0.9},
		{Kind: TwoClass, LongShare: 0.1, LongFactor: 10},
	} {
		s := small()
		kind.Mean = time.Second
		s.Service, s.EnvoyShares, s.Workers = kind, []float64{3, 1, 1, 1}, 2
		s = s.withDefaults()
		a := newArrivals(&s, 10)
		const n = 200_000
		var work, first, second float64
		for range n {
			r := a.take()
			work += r.work / n
			if r.envoy == 0 {
				first += 1.0 / n
			}
			second += float64(r.worker) / n
		}
		wantNear(t, string(kind.Kind)+": mean service", work, 1, 0.02)
		wantNear(t, "share of the first Envoy", first, 0.5, 0.02)
		wantNear(t, "share of the second worker", second, 0.5, 0.02)
		wantNear(t, "rate", n/a.at.duration().Seconds(), 10, 0.02)
	}
}

// A flash crowd multiplies the rate from its beginning to its end, for all alike.
func TestFlashCrowd(t *testing.T) {
	s := small()
	s.Duration, s.WarmUp, s.SampleEvery = 300*time.Second, 0, 50*time.Second
	s.Events = []Event{{At: 100 * time.Second, Kind: FlashCrowd, Factor: 3, For: 100 * time.Second}}
	s.Rate = 10
	r := run(t, s, Policy{Balancer: Random})
	wantNear(t, "requests", float64(r.Requests), 10*(100+300+100), 0.05)
	var rates []float64
	for _, sample := range r.Series {
		rates = append(rates, sample.Rate)
	}
	want(t, "rates", fmt.Sprint(rates), fmt.Sprint([]float64{10, 10, 30, 30, 10, 10, 10}))
}

// series runs a scenario of 20 pods with events and samples every second.
func series(t *testing.T, load float64, policy Policy, events ...Event) []Sample {
	t.Helper()
	s := small()
	s.Envoys, s.Pods, s.Load = 10, []PodGroup{{Count: 20, Slots: 4}}, load
	s.Duration, s.WarmUp, s.SampleEvery, s.Events = 2*time.Minute, 0, time.Second, events
	return run(t, s, policy).Series
}

// mean of something over the samples from one second to another.
func mean(samples []Sample, from, to int, of func(Sample) float64) (m float64) {
	for _, s := range samples[from:to] {
		m += of(s) / float64(to-from)
	}
	return m
}

// While the control plane is away the last assignment holds, which soon sends too
// much to the few pods that were idle when it was made, unless the Envoys turn to a
// fallback. Back again it counts from nothing, and soon right.
func TestControlPlaneAway(t *testing.T) {
	t.Parallel()
	away := Event{At: 30500 * time.Millisecond, Kind: ControlPlaneAway, For: 30 * time.Second}
	for _, fallback := range []time.Duration{0, 2 * time.Second} {
		t.Run(fmt.Sprint("fallback after ", fallback), func(t *testing.T) {
			samples := series(t, 0.8, steelyard("steelyard", Steelyard{
				Source: AccessLog, ScrapeInterval: time.Second, FallbackAfter: fallback,
			}), away)
			want(t, "shares while it is away are the same", reflect.DeepEqual(samples[31].Shares, samples[60].Shares),
				true)
			want(t, "shares once it is back are the same", reflect.DeepEqual(samples[60].Shares, samples[61].Shares),
				false)
			before, then, after := mean(samples, 10, 30, spread), mean(samples, 40, 60, spread),
				mean(samples, 90, 120, spread)
			t.Logf("difference of the loads: %.1f before, %.1f while away, %.1f afterwards", before, then, after)
			switch {
			case fallback == 0 && then < 10*before:
				t.Errorf("difference of the loads %.1f while away, want frozen weights to be seen", then)
			case fallback > 0 && (then > 10*before || after > 1.5*before):
				t.Errorf("difference of the loads %.1f before, %.1f while away, %.1f afterwards: want a fallback "+
					"that holds, and the same as before", before, then, after)
			}
		})
	}
}

// A heartbeat is a push as well: it comes no sooner than the budget sustains.
func TestHeartbeatsKeepToTheBudget(t *testing.T) {
	t.Parallel()
	s := small()
	p := steelyard("steelyard",
		Steelyard{Source: AccessLog,
			Budget: push.Budget{MinInterval: 5 * time.Millisecond, ProxyCPU: 1e-4, Cost: envoyspec.PushCost}})
	sustained, _ := p.Steelyard.Budget.Stretch(push.Subscribers{Proxies: s.Envoys}, s.Pods[0].Count, 1, 0)
	most := uint64(s.Duration/sustained) + 3 // what the bucket holds at first
	if got := uint64(run(t, s, p).Pushes); got > most {
		t.Errorf("%d pushes, want at most %d: one each %v", got, most, sustained)
	}
}

// Where pushes are further apart than an assignment may be old, it lasts from one to the next.
func TestEnvoysDoNotFallBackBetweenTwoPushes(t *testing.T) {
	t.Parallel()
	s := small()
	o := Steelyard{Source: AccessLog, MinInterval: 20 * time.Second}
	without := run(t, s, steelyard("steelyard", o))
	o.FallbackAfter = 3 * time.Second
	want(t, "p99 of the wait with a fallback that is not needed", run(t, s, steelyard("steelyard", o)).Wait.P99,
		without.Wait.P99)
}

// spread is the difference of the loads of the fullest and the emptiest pod.
func spread(s Sample) float64 {
	least, most := math.Inf(1), 0.0
	for _, load := range s.Load {
		least, most = min(least, load), max(most, load)
	}
	return most - least
}

// Entries that get lost leave no drift: gauges correct the counts.
func TestLostEntriesLeaveNoDrift(t *testing.T) {
	t.Parallel()
	s := small()
	s.Envoys, s.Load = 4, 0.7
	p := steelyard("loss", Steelyard{Source: AccessLog, Loss: 0.05}).withDefaults()
	d := s.withDefaults()
	w := newWorld(&d, &p)
	if err := w.run(context.Background()); err != nil {
		t.Fatal(err)
	}
	var off, lost float64
	for e := range w.envoys {
		for pod := range w.pods {
			off += math.Abs(float64(w.groups[0].control.counts[e][pod].InFlight() - w.envoys[e].active[pod]))
		}
	}
	for i := range w.groups[0].control.proxies {
		lost += float64(w.groups[0].control.proxies[i].sums.Issued)
	}
	t.Logf("%v entries of beginnings came, %v requests off at the end", lost, off)
	if off > 2 {
		t.Errorf("the counts are off by %v requests after 10 minutes of losing one entry in twenty", off)
	}
	whole := run(t, s, steelyard("whole", Steelyard{Source: AccessLog}))
	lossy := run(t, s, p)
	if lossy.Wait.P99 > 1.5*whole.Wait.P99 {
		t.Errorf("p99 of the wait is %.2f with losses, %.2f without", lossy.Wait.P99, whole.Wait.P99)
	}
}

// Envoys refuse the share that they are sent, at random.
func TestDrop(t *testing.T) {
	s := small()
	s = s.withDefaults()
	w := newWorld(&s, &Policy{Balancer: RoundRobin})
	w.groups[0].assignment.drop = 0.3
	if err := w.run(context.Background()); err != nil {
		t.Fatal(err)
	}
	r := w.tally.result()
	wantNear(t, "share refused", float64(r.Dropped)/float64(r.Dropped+r.Requests), 0.3, 0.1)
	wantNear(t, "goodput", r.Goodput, 0.7*0.7, 0.1)
}

// A pool that gets twice what it can do serves what it can, and the waits grow
// for as long as it lasts.
func TestOverloadWithoutShedding(t *testing.T) {
	s := small()
	s.Load = 2
	for _, p := range []Policy{{Balancer: LeastRequest}, steelyard("steelyard", Steelyard{Source: Scrape})} {
		r := run(t, s, p)
		wantNear(t, "goodput", r.Goodput, 1, 0.05)
		wantNear(t, "median wait, about half of the time", r.Wait.P50, s.Duration.Seconds()/4, 0.4)
		want(t, "dropped", r.Dropped, 0)
	}
}

// A scenario that sets what every policy has by default changes nothing, no delay is
// a delay that can be had, and a policy without signals does not notice.
func TestSignalsOfAScenarioAreThoseOfEachPolicy(t *testing.T) {
	t.Parallel()
	plain := small()
	plain.Duration = 2 * time.Minute
	usual, none := plain, plain
	usual.Signals = Signals{
		ScrapeDelay: new(2 * time.Millisecond), Delay: new(2 * time.Millisecond), Loss: new(0.0),
		PushDelay: new(3 * time.Millisecond),
	}
	none.Signals = Signals{ScrapeDelay: new(time.Duration(0)), Delay: new(time.Duration(0)),
		PushDelay: new(time.Duration(0))}
	for _, p := range append(Policies(), steelyard("redis", Steelyard{Source: Redis})) {
		before := run(t, plain, p)
		want(t, p.Name+": the same with what it has by default", reflect.DeepEqual(before, run(t, usual, p)), true)
		want(t, p.Name+": the same with no delays", reflect.DeepEqual(before, run(t, none, p)), p.Steelyard == nil)
	}
	late := steelyard("late", Steelyard{Source: AccessLog, SignalDelay: time.Second, Loss: 0.5})
	want(t, "a policy with signals of its own: the same", reflect.DeepEqual(run(t, usual, late), run(t, plain, late)),
		false)
}
