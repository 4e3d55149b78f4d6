package weighting

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

// anyNumber is what an exporter, a bug or an enemy may write.
var anyNumber = rapid.OneOf(
	rapid.SampledFrom([]float64{
		0, math.Copysign(0, -1), 1, 2, 3, 0.5, -1, 5e-324, 1e-300, 1e9, 1e15, 1e300, 1e308, -1e308, math.MaxFloat64,
		math.NaN(), math.Inf(1), math.Inf(-1),
	}),
	rapid.Float64Range(0, 20),
	rapid.Float64(),
)

func readingGen(now time.Time) *rapid.Generator[Reading] {
	return rapid.Custom(func(t *rapid.T) Reading {
		age := rapid.SampledFrom([]time.Duration{
			0, 1, 100 * time.Millisecond, time.Second, 3 * time.Second, 5 * time.Second, 10*time.Second + 1, time.Hour,
			-time.Millisecond, -time.Second, -2 * time.Second, -time.Hour, math.MinInt64, math.MaxInt64,
		}).Draw(t, "age")
		r := Reading{Value: anyNumber.Draw(t, "value"), At: now.Add(-age)}
		if rapid.IntRange(0, 5).Draw(t, "known") == 0 {
			r.At = time.Time{}
		}
		return r
	})
}

// tokensGen is counts of tokens: none, garbage, or those of an engine that has been at work for some time.
func tokensGen(now time.Time) *rapid.Generator[TokenCounts] {
	r := readingGen(now)
	return rapid.Custom(func(t *rapid.T) TokenCounts {
		switch rapid.IntRange(0, 4).Draw(t, "tokens") {
		case 0:
			return TokenCounts{}
		case 1:
			return TokenCounts{
				At: r.Draw(t, "at").At, Prompt: anyNumber.Draw(t, "prompt"), Cached: anyNumber.Draw(t, "cached"),
				Generated: anyNumber.Draw(t, "generated"), First: anyNumber.Draw(t, "first"),
				Iterations: anyNumber.Draw(t, "iterations"),
			}
		}
		worked := float64(rapid.IntRange(0, 50).Draw(t, "worked"))
		return TokenCounts{
			At: now, Prompt: 20_000 * worked, Cached: 5000 * worked, Generated: 4000 * worked, First: 20 * worked,
			Iterations: float64(rapid.SampledFrom([]int{0, 100}).Draw(t, "iterations")) * worked,
		}
	})
}

// overrideGen is mostly none.
var overrideGen = rapid.Custom(func(t *rapid.T) Override {
	switch rapid.IntRange(0, 9).Draw(t, "overridden") {
	case 0:
		return Override{Drained: true}
	case 1:
		return Override{Share: anyNumber.Draw(t, "pinned")}
	}
	return Override{}
})

func endpointGen(now time.Time) *rapid.Generator[Endpoint] {
	r := readingGen(now)
	return rapid.Custom(func(t *rapid.T) Endpoint {
		return Endpoint{
			// Few names, so that some come twice.
			Address:  fmt.Sprintf("10.0.0.%d:80", rapid.IntRange(1, 8).Draw(t, "host")),
			Zone:     rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "zone"),
			Capacity: rapid.OneOf(rapid.Just(0.0), anyNumber).Draw(t, "capacity"),
			Server: ServerReport{
				Queue: r.Draw(t, "queue"), Running: r.Draw(t, "running"), Utilization: r.Draw(t, "utilization"),
				Completions: r.Draw(t, "completions"), QueueSeconds: r.Draw(t, "queueSeconds"),
				BusySeconds: r.Draw(t, "busySeconds"),
				Tokens:      tokensGen(now).Draw(t, "tokens"),
				Restarts:    rapid.IntRange(-1, 2).Draw(t, "restarts"),
			},
			Refused:  rapid.Bool().Draw(t, "refused"),
			InFlight: r.Draw(t, "inFlight"),
			Exact:    rapid.Bool().Draw(t, "exact"),
			Proxies: ProxyReport{
				Issued: r.Draw(t, "issued"), Ended: r.Draw(t, "ended"), Failed: r.Draw(t, "failed"),
				Errors: r.Draw(t, "errors"), Succeeded: r.Draw(t, "succeeded"),
				Answered: r.Draw(t, "answered"), LatencySeconds: r.Draw(t, "latency"),
				Sized: r.Draw(t, "sized"), SizedBytes: r.Draw(t, "sizedBytes"),
				Refused: r.Draw(t, "refusedRequests"), RefusedBytes: r.Draw(t, "refusedBytes"),
			},
			Override: overrideGen.Draw(t, "override"),
		}
	})
}

type step struct {
	now      time.Time
	snapshot Snapshot
}

// storyGen is a sequence of steps of whatever may come, at times that mostly
// move on.
var storyGen = rapid.Custom(func(t *rapid.T) []step {
	now := rapid.SampledFrom([]time.Time{epoch, {}}).Draw(t, "start")
	var story []step
	for range rapid.IntRange(1, 6).Draw(t, "steps") {
		now = now.Add(rapid.SampledFrom([]time.Duration{
			250 * time.Millisecond, time.Second, 0, 1, 4 * time.Second, 30 * time.Second, -time.Second,
			240 * time.Hour, -240 * time.Hour,
		}).Draw(t, "elapsed"))
		story = append(story, step{now, Snapshot{
			Endpoints: rapid.SliceOfN(endpointGen(now), 0, 12).Draw(t, "endpoints"),
			PushDelay: time.Duration(rapid.Int64().Draw(t, "delay")),
			PushPeriod: time.Duration(rapid.OneOf(rapid.Just(int64(250*time.Millisecond)), rapid.Int64()).Draw(t,
				"period")),
		}})
	}
	return story
})

// paramsGen is what a configuration may hold, and a little beyond.
var paramsGen = rapid.Custom(func(t *rapid.T) Params {
	p := DefaultParams()
	p.Shedding.Enabled = rapid.Bool().Draw(t, "shedding")
	p.LeastLatency.Enabled = rapid.Bool().Draw(t, "leastLatency")
	if rapid.Bool().Draw(t, "defaults") {
		return p
	}
	span := rapid.SampledFrom([]time.Duration{0, 1, time.Second, time.Hour, math.MaxInt64})
	p.Fresh = span.Draw(t, "fresh")
	p.Hold = max(p.Fresh, span.Draw(t, "hold"))
	p.Decay = max(p.Hold, span.Draw(t, "decay"))
	p.LeastLatency.Threshold = span.Draw(t, "threshold")
	p.LeastLatency.Alpha = rapid.SampledFrom([]float64{0, 1, 2, -1}).Draw(t, "alpha")
	p.Blackout, p.Ramp = span.Draw(t, "blackout"), span.Draw(t, "ramp")
	p.Floor = rapid.SampledFrom([]float64{0, 1e-9, 0.5, 1, 10, -1}).Draw(t, "floor")
	p.Overload.MaxShare = rapid.SampledFrom([]float64{0, 1, 2, -1}).Draw(t, "maxShare")
	p.Overload.MinDwell = span.Draw(t, "dwell")
	p.Shedding.TargetWait = span.Draw(t, "targetWait")
	p.Overload.QueueTimeEnter, p.Overload.StalledAfter = span.Draw(t, "queueTime"), span.Draw(t, "stalledAfter")
	p.Shedding.MaxDrop = rapid.SampledFrom([]float64{0, 1, 5, -1}).Draw(t, "maxDrop")
	return p
})

// wantSound checks all that a decision promises of its numbers.
func wantSound(t *rapid.T, d Decision, p Params) {
	finite := func(what string, v float64) {
		if math.IsNaN(v) || math.IsInf(v, 0) || v < 0 {
			t.Fatalf("%s = %v", what, v)
		}
	}
	noInfinity := func(what string, v float64) {
		if math.IsInf(v, 0) || v < 0 {
			t.Fatalf("%s = %v", what, v)
		}
	}
	finite("arrival rate", d.ArrivalRate)
	finite("arrivals", d.Arrivals)
	finite("water level", d.WaterLevel)
	noInfinity("median load", d.MedianLoad)
	noInfinity("expected wait", d.ExpectedWait)
	if d.DropFraction < 0 || d.DropFraction > min(max(0, p.Shedding.MaxDrop), 1) || math.IsNaN(d.DropFraction) ||
		!p.Shedding.Enabled && d.DropFraction != 0 {
		t.Fatalf("drop fraction = %v", d.DropFraction)
	}
	if d.Arrivals < 1 || d.Horizon < 0 {
		t.Fatalf("arrivals = %v in %v", d.Arrivals, d.Horizon)
	}
	if w := d.Work; w != nil {
		finite("prompt tokens of a request", w.PromptTokens)
		finite("output tokens of a request", w.OutputTokens)
		finite("requests learned from", w.Requests)
		noInfinity("tokens per byte", w.TokensPerByte)
		noInfinity("prefill rate", w.PrefillRate)
		finite("iteration", w.Iteration)
	}
	var sum float64
	for i, e := range d.Endpoints {
		if i > 0 && d.Endpoints[i-1].Address >= e.Address {
			t.Fatalf("%s comes after %s", e.Address, d.Endpoints[i-1].Address)
		}
		sum += e.Share
		if (e.SlotsSource == CapacityWork) != (d.Work != nil) || math.IsNaN(e.Slots) != (d.Work != nil) {
			t.Fatalf("%v slots by %s, and work %v", e.Slots, e.SlotsSource, d.Work)
		}
		for what, v := range map[string]float64{
			"share": e.Share, "load": e.Load, "capacity": e.Capacity, "speed": e.RelativeSpeed, "ramp": e.Ramp,
		} {
			finite(e.Address+" "+what, v)
			if v == 0 && what != "load" && !(what == "share" && e.Override.Drained) {
				t.Fatalf("%s %s = 0", e.Address, what)
			}
		}
		finite("unproxied", math.Abs(e.Unproxied))
		if w := e.Work; w != nil {
			finite("prompt tokens", w.PromptTokens)
			finite("work in requests", w.Requests)
			noInfinity("seconds of work", w.Seconds)
			noInfinity("prefill rate", w.PrefillRate)
		}
		noInfinity("completion rate", e.CompletionRate)
		noInfinity("mean queue time", e.MeanQueueTime)
		noInfinity("busy fraction", e.BusyFraction)
		if e.BusyFraction > 1 || e.Ramp > 1 {
			t.Fatalf("%+v: a fraction above 1", e)
		}
		if e.Reason == "" || e.LoadSource == "" || e.SlotsSource == "" || e.Overloaded != (e.OverloadReason != "") ||
			len(e.Inputs) != 4 {
			t.Fatalf("%+v: a cause is missing", e)
		}
		for _, in := range e.Inputs {
			if (in.State == StateUnknown) != math.IsNaN(in.Value) || math.IsInf(in.Value, 0) || in.Age < 0 {
				t.Fatalf("%s: input %+v", e.Address, in)
			}
		}
	}
	if len(d.Endpoints) > 0 && !near(sum, 1, 1e-9) {
		t.Fatalf("shares add up to %v", sum)
	}
}

func TestAnyInputGivesASoundDecision(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := paramsGen.Draw(t, "params")
		law := NewLaw(p)
		for _, s := range storyGen.Draw(t, "story") {
			d := law.Step(s.now, s.snapshot)
			wantSound(t, d, p)
			addresses := map[string]bool{}
			for _, e := range s.snapshot.Endpoints {
				addresses[e.Address] = true
			}
			if len(d.Endpoints) != len(addresses) {
				t.Fatalf("%d endpoints decided, %d given", len(d.Endpoints), len(addresses))
			}
		}
	})
}

func TestSameStoryInAnyOrderGivesEqualDecisions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := paramsGen.Draw(t, "params")
		laws := []*Law{NewLaw(p), NewLaw(p), NewLaw(p)}
		for i, s := range storyGen.Draw(t, "story") {
			shuffled := s.snapshot
			shuffled.Endpoints = rapid.Permutation(s.snapshot.Endpoints).Draw(t, "order")
			d := laws[0].Step(s.now, s.snapshot)
			for _, other := range []Decision{laws[1].Step(s.now, s.snapshot), laws[2].Step(s.now, shuffled)} {
				if diff := cmp.Diff(d, other, cmpopts.EquateNaNs(),
					cmp.AllowUnexported(Decision{}, Vessel{})); diff != "" {
					t.Fatalf("step %d differs:\n%s", i, diff)
				}
			}
		}
	})
}

// Engines that count tokens are placed by work only where they are most of the pool. In any other pool neither their
// counts nor the sizes of requests change a decision, but for what they show of a stall.
func TestAPoolOfFewEnginesIsPlacedAsIfNoneCountedTokens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := paramsGen.Draw(t, "params")
		p.Overload.StalledAfter = 0
		with, without := NewLaw(p), NewLaw(p)
		for i, s := range storyGen.Draw(t, "story") {
			addresses := map[string]bool{}
			for _, e := range s.snapshot.Endpoints {
				addresses[e.Address] = true
			}
			seen, plain := s.snapshot, s.snapshot
			seen.Endpoints, plain.Endpoints = slices.Clone(s.snapshot.Endpoints), slices.Clone(s.snapshot.Endpoints)
			for k := range plain.Endpoints {
				if len(addresses) < 2 || seen.Endpoints[k].Address != "10.0.0.1:80" {
					seen.Endpoints[k].Server.Tokens = TokenCounts{}
				}
				e := &plain.Endpoints[k]
				e.Server.Tokens, e.Proxies.Sized, e.Proxies.SizedBytes = TokenCounts{}, Reading{}, Reading{}
				e.Proxies.Refused, e.Proxies.RefusedBytes = Reading{}, Reading{}
			}
			if len(addresses) == 1 && addresses["10.0.0.1:80"] {
				continue // that engine is the pool, and what it counted before is remembered
			}
			got, want := with.Step(s.now, seen), without.Step(s.now, plain)
			if diff := cmp.Diff(want, got, cmpopts.EquateNaNs(),
				cmp.AllowUnexported(Decision{}, Vessel{})); diff != "" {
				t.Fatalf("step %d differs:\n%s", i, diff)
			}
		}
	})
}

func TestStepLeavesTheSnapshotAsItWas(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		law := NewLaw(DefaultParams())
		for _, s := range storyGen.Draw(t, "story") {
			before := append([]Endpoint(nil), s.snapshot.Endpoints...)
			law.Step(s.now, s.snapshot)
			if diff := cmp.Diff(before, s.snapshot.Endpoints, cmpopts.EquateNaNs(), cmpopts.EquateEmpty()); diff != "" {
				t.Fatal(diff)
			}
		}
	})
}

// More load at one endpoint, in every signal that there is of it, all through the
// story and all else equal, never raises its share. A single signal may come and
// go; where there are two, both come each time: a leaked count of one server that
// is no longer scraped may hide its load and still raise the pool's median.
func TestMoreLoadNeverMoreShare(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 8).Draw(t, "endpoints")
		base, more := NewLaw(DefaultParams()), NewLaw(DefaultParams())
		extra := rapid.OneOf(rapid.Float64Range(0, 2), rapid.Float64Range(0, 1e6)).Draw(t, "extra")
		signals := rapid.SampledFrom([]string{"scraped", "counted", "both"}).Draw(t, "signals")
		now := epoch
		pool := make([]Endpoint, n)
		for i := range pool {
			pool[i] = Endpoint{Address: fmt.Sprint(i), Capacity: rapid.Float64Range(0.5, 32).Draw(t, "capacity")}
		}
		count := rapid.OneOf(rapid.Just(0.0), rapid.Float64Range(0, 40))
		for range rapid.IntRange(1, 8).Draw(t, "steps") {
			now = now.Add(rapid.SampledFrom([]time.Duration{100 * time.Millisecond, time.Second,
				4 * time.Second}).Draw(t, "elapsed"))
			for i := range pool {
				if signals == "both" || signals == "scraped" && rapid.Bool().Draw(t, "scraped") {
					pool[i].Server.Queue, pool[i].Server.Running = known(count.Draw(t, "queue"), now),
						known(count.Draw(t, "running"), now)
				}
				if signals == "both" || signals == "counted" && rapid.Bool().Draw(t, "counted") {
					pool[i].InFlight = known(count.Draw(t, "inFlight"), now)
				}
			}
			fuller := append([]Endpoint(nil), pool...)
			fuller[0].Server.Queue.Value += extra
			fuller[0].InFlight.Value += extra
			s := Snapshot{PushPeriod: time.Duration(rapid.IntRange(0, 2e9).Draw(t, "period"))}
			s.Endpoints = pool
			less := base.Step(now, s)
			s.Endpoints = fuller
			if got := more.Step(now, s); got.Endpoints[0].Share > less.Endpoints[0].Share+1e-9 {
				t.Fatalf("share rises from %v to %v with the load\n%+v\n%+v",
					less.Endpoints[0].Share, got.Endpoints[0].Share, less.Endpoints[0], got.Endpoints[0])
			}
		}
	})
}

func TestEqualLoadPerCapacitySharesByCapacity(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		level := rapid.Float64Range(0, 100).Draw(t, "level")
		capacities := rapid.SliceOfN(rapid.Float64Range(0.1, 1000), 1, 40).Draw(t, "capacities")
		s := Snapshot{PushPeriod: time.Duration(rapid.IntRange(0, 1e10).Draw(t, "period"))}
		var total float64
		for i, c := range capacities {
			total += c
			s.Endpoints = append(s.Endpoints, scraped(fmt.Sprintf("%02d", i), c, level*c, 0, epoch))
		}
		for i, e := range NewLaw(DefaultParams()).Step(epoch, s).Endpoints {
			if !near(e.Share, capacities[i]/total, 1e-9) {
				t.Fatalf("share of %s = %v, want %v", e.Address, e.Share, capacities[i]/total)
			}
		}
	})
}
