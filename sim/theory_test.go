package sim

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"
)

// small is a scenario that other tests change.
func small() Scenario {
	return Scenario{
		Name: "small", Seed: 1, Duration: 10 * time.Minute, WarmUp: time.Minute,
		Envoys: 4, Pods: []PodGroup{{Count: 6, Slots: 1}}, Load: 0.7,
		Service: Service{Kind: Exponential, Mean: time.Second},
	}
}

func run(t *testing.T, s Scenario, p Policy) Result {
	t.Helper()
	r, err := Run(context.Background(), s, p)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// runAll runs every policy on the same requests, as many at a time as there are processors.
func runAll(t *testing.T, s Scenario, policies []Policy) []Result {
	t.Helper()
	results, errs := make([]Result, len(policies)), make([]error, len(policies))
	turns := make(chan int)
	var runners sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(policies)) {
		runners.Go(func() {
			for i := range turns {
				results[i], errs[i] = Run(t.Context(), s, policies[i])
			}
		})
	}
	for i := range policies {
		turns <- len(policies) - 1 - i // the control planes, which come last, take longest
	}
	close(turns)
	runners.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return results
}

// long is a run of so many requests that a mean is good to a per cent or so.
func long(pods, slots int, load float64, requests float64) Scenario {
	s := small()
	s.Envoys, s.Pods, s.Load = 1, []PodGroup{{Count: pods, Slots: slots}}, load
	s.Service.Mean = time.Millisecond
	s.WarmUp = time.Second
	s.Duration = s.WarmUp + time.Duration(requests/s.rate(s.capacity(s.pods()))*float64(time.Second))
	return s
}

// M/M/c: the wait of c slots behind one queue, after Erlang. In mean services,
// P(wait > t) = C·exp(−(c − a)·t) with a = c·load and C his probability of a wait.
func TestWaitOfSlotsBehindOneQueue(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		slots int
		load  float64
	}{{1, 0.5}, {1, 0.8}, {4, 0.8}, {16, 0.9}, {20, 0.8}} {
		t.Run(fmt.Sprintf("slots=%d load=%v", c.slots, c.load), func(t *testing.T) {
			r := run(t, long(1, c.slots, c.load, 3e5), Policy{Balancer: RoundRobin})
			n := float64(c.slots)
			waits := erlangC(c.slots, c.load*n)
			wantNear(t, "mean wait", r.Wait.Mean, waits/(n-n*c.load), 0.15)
			wantNear(t, "p99 of the wait", r.Wait.P99, max(0, math.Log(waits/0.01)/(n-n*c.load)), 0.15)
			wantNear(t, "mean latency", r.Latency.Mean, r.Wait.Mean+1, 0.01)
			wantNear(t, "utilization", r.Utilization, c.load, 0.01)
			wantNear(t, "goodput", r.Goodput, c.load, 0.01)
		})
	}
}

// The same wait, request by request, by the recursion of Kiefer and Wolfowitz: each
// takes the slot that is free first. Not a matter of chance: it must be the same.
func TestWaitOfSlotsBehindOneQueueToTheNanosecond(t *testing.T) {
	t.Parallel()
	for _, service := range []Service{{Kind: Exponential}, {Kind: TwoClass, LongShare: 0.1, LongFactor: 10}} {
		s := long(1, 20, 0.9, 2e5)
		service.Mean = s.Service.Mean
		s.Service = service
		s = s.withDefaults()
		a := newArrivals(&s, s.rate(s.capacity(s.pods())))
		free := make([]float64, 20)
		var sum, n float64
		for a.at <= at(s.Duration) {
			now := a.at
			request := a.take()
			first := slices.Index(free, slices.Min(free))
			start := max(now.duration().Seconds(), free[first])
			free[first] = start + request.work
			if now >= at(s.WarmUp) {
				sum, n = sum+start-now.duration().Seconds(), n+1
			}
		}
		r := run(t, s, Policy{Balancer: RoundRobin})
		want(t, "requests", r.Requests, int(n))
		// Requests that wait at the end have not waited in full.
		wantNear(t, "mean wait of "+string(service.Kind), r.Wait.Mean, sum/n/s.Service.Mean.Seconds(), 1e-3)
	}
}

// erlangC is the probability that a request waits.
func erlangC(slots int, offered float64) float64 {
	blocked := 1.0 // Erlang's B, by recursion
	for k := 1; k <= slots; k++ {
		blocked = offered * blocked / (float64(k) + offered*blocked)
	}
	load := offered / float64(slots)
	return blocked / (1 - load*(1-blocked))
}

// M/G/1, after Pollaczek and Khinchine: mean wait = load·(1 + cv²)/(2·(1 − load)).
func TestWaitByTheSpreadOfServiceTimes(t *testing.T) {
	t.Parallel()
	const load = 0.7
	for _, c := range []struct {
		service Service
		cv2     float64 // variance over the square of the mean
	}{
		{Service{Kind: Deterministic}, 0},
		{Service{Kind: Exponential}, 1},
		{Service{Kind: LogNormal, Sigma: 0.9}, math.Exp(0.81) - 1},
		{Service{Kind: TwoClass, LongShare: 0.1, LongFactor: 10}, (0.9+0.1*100)/(1.9*1.9) - 1},
	} {
		s := long(1, 1, load, 4e5)
		c.service.Mean = s.Service.Mean
		s.Service = c.service
		r := run(t, s, Policy{Balancer: Random})
		wantNear(t, fmt.Sprintf("mean wait of %s", c.service.Kind), r.Wait.Mean, load*(1+c.cv2)/(2*(1-load)), 0.12)
	}
}

// Random choice makes a queue of its own of every pod.
func TestRandomIsManyQueues(t *testing.T) {
	t.Parallel()
	r := run(t, long(10, 1, 0.8, 3e5), Policy{Balancer: Random})
	wantNear(t, "mean wait", r.Wait.Mean, 4, 0.12)
	wantNear(t, "p99 of the wait", r.Wait.P99, math.Log(0.8/0.01)/0.2, 0.12)
	wantNear(t, "hunting", r.Hunting, 1, 0.03)
}

// Two choices by one Envoy that sees all: in a large pool the share of the pods
// with at least i requests is load^(2^i − 1) (Mitzenmacher).
func TestTwoChoices(t *testing.T) {
	t.Parallel()
	const load = 0.8
	r := run(t, long(300, 1, load, 3e5), Policy{Balancer: LeastRequest})
	var requests float64
	for i := 1; i < 8; i++ {
		requests += math.Pow(load, math.Exp2(float64(i))-1)
	}
	wantNear(t, "mean latency", r.Latency.Mean, requests/load, 0.03)
}

// Where all that run share the machine evenly and all run at once, the mean time
// is 1/(1 − load), whatever the distribution (M/G/1 with processor sharing).
func TestSharing(t *testing.T) {
	t.Parallel()
	const slots, load = 200, 0.7
	for _, kind := range []ServiceKind{Exponential, TwoClass} {
		s := long(1, 1, load, 2e5)
		s.Service.Kind, s.Service.LongShare, s.Service.LongFactor = kind, 0.1, 10
		s.Rate = load / s.Service.Mean.Seconds()
		s.Pods = []PodGroup{{Count: 1, Slots: slots, Sharing: true, SlowDown: slots - 1}}
		r := run(t, s, Policy{Balancer: Random})
		wantNear(t, fmt.Sprintf("mean latency of %s", kind), r.Latency.Mean, 1/(1-load), 0.12)
		want(t, "longest wait", r.Wait.Max, 0)
	}
}

// Pods that are slower take longer, and those that share a full set are slowed by SlowDown.
func TestSpeeds(t *testing.T) {
	t.Parallel()
	s := long(1, 1, 0, 0)
	s.Load, s.Service.Kind, s.Duration = 0.5, Deterministic, 20*time.Second
	s.Pods[0].Speed = 0.25
	wantNear(t, "mean utilization", run(t, s, Policy{Balancer: Random}).Utilization, 0.5, 0.05)
	wantNear(t, "median latency of a slow one, less its wait", run(t, s, Policy{Balancer: Random}).Latency.P50, 4, 0.5)
	s.Pods[0] = PodGroup{Count: 1, Slots: 4, Sharing: true, SlowDown: 1}
	s.Load = 5 // always full
	r := run(t, s, Policy{Balancer: Random})
	wantNear(t, "goodput of a full set", r.Goodput, 1, 0.01)
	wantNear(t, "utilization of a full set", r.Utilization, 1, 0.01)
}

// The shortest queue is never better than one queue for all, and never worse than
// a choice of two.
func TestShortestQueueIsBetweenItsBounds(t *testing.T) {
	t.Parallel()
	s := long(20, 1, 0.8, 2e5)
	one := run(t, long(1, 20, 0.8, 2e5), Policy{Balancer: Random})
	shortest := run(t, s, Policy{Balancer: ShortestQueue})
	two := run(t, s, Policy{Balancer: LeastRequest})
	t.Logf("mean wait: one queue %.3f, shortest queue %.3f, two choices %.3f", one.Wait.Mean, shortest.Wait.Mean,
		two.Wait.Mean)
	if !(one.Wait.Mean < shortest.Wait.Mean && shortest.Wait.Mean < two.Wait.Mean/2) {
		t.Error("the bound is not between one queue for all and two choices")
	}
}
