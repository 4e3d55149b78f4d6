package weighting

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// A watch is what a law that sheds gets to see, and how often.
type watch struct {
	name    string
	signals signals
	exact   bool    // the proxies report each request that begins and ends
	scrape  float64 // seconds
	step    float64 // seconds from one decision to the next
}

var watches = []watch{
	{"vLLM each 250 ms", signals{configured: true, gauges: true, counters: true}, false, 0.25, 0.05},
	{"vLLM each second", signals{configured: true, gauges: true, counters: true}, false, 1, 0.05},
	{"Triton each 250 ms", signals{configured: true, triton: true}, false, 0.25, 0.05},
	{"Triton each second", signals{configured: true, triton: true}, false, 1, 0.05},
	{"access log", signals{configured: true}, true, 0, 0.02},
	{"access log and vLLM", signals{configured: true, gauges: true, counters: true}, true, 0.25, 0.02},
	{"in-flight counts each 100 ms", signals{configured: true, inFlight: true}, false, 0.1, 0.05},
}

// A crowd is what wants to be served by a pool of 20 pods, as a multiple of its
// capacity over time, and what became of it.
type crowd struct {
	watch
	slots  int
	mean   float64 // of the service, seconds
	target float64 // of the wait, seconds
	load   func(at float64) float64
	joins  float64       // when the last pod does, seconds; 0: it is there from the start
	ramp   time.Duration // of a pod that joins; 0: as usual

	*world
	warmUp  float64 // seconds; waits before count for nothing
	seen    []Endpoint
	drop    float64 // in force
	samples []sample
	changes int // of the share refused
	ended   int // of these, to none
	idle    float64
}

// sample is the pool at one decision.
type sample struct {
	at, wait float64 // seconds; what the next request waits in the mean over the pool
	drop     float64
}

const crowdPods = 20

// step is a load that changes once.
func loadStep(at, before, after float64) func(float64) float64 {
	return func(now float64) float64 {
		if now < at {
			return before
		}
		return after
	}
}

func (c *crowd) run(seed uint64, until float64) {
	w := newWorld(seed, 10, crowdPods, c.slots, 1)
	w.warm = c.warmUp
	c.world = w
	for _, p := range w.pods {
		p.service = exponential(c.mean)
	}
	w.rate = c.capacity() * c.load(0)
	w.every(0.1, 0, func() { w.rate = c.capacity() * c.load(w.now) })
	w.push(w.equalWeights())
	drops := rand.New(rand.NewPCG(seed, 9))
	w.refuse = func() bool { return c.drop > 0 && drops.Float64() < c.drop }
	c.collect(drops)
	p := DefaultParams()
	p.Shedding.Enabled, p.Shedding.TargetWait = true, seconds(c.target)
	if c.ramp > 0 {
		p.Ramp = c.ramp
	}
	law := NewLaw(p)
	w.every(c.step, 0, func() { c.decide(law) })
	w.every(0.02, 0, c.count)
	w.runUntil(until)
}

// capacity is in requests per second.
func (c *crowd) capacity() float64 { return float64(crowdPods*c.slots) / c.mean }

// collect scrapes each pod at its own times.
func (c *crowd) collect(phase *rand.Rand) {
	c.seen = make([]Endpoint, crowdPods)
	for i, pod := range c.pods {
		c.seen[i] = Endpoint{Address: pod.address, Capacity: float64(c.slots)}
		if c.scrape > 0 {
			c.every(c.scrape, c.scrape*phase.Float64(), func() { c.seen[i] = c.endpoint(pod, c.signals) })
		}
	}
}

func (c *crowd) snapshot() Snapshot {
	s := Snapshot{Endpoints: slices.Clone(c.seen), PushDelay: seconds(0.01), PushPeriod: seconds(c.step),
		ScrapeInterval: seconds(c.scrape)}
	for i, pod := range c.pods {
		if e := &s.Endpoints[i]; c.exact {
			read := func(v int) Reading { return Reading{Value: float64(v), At: at(c.now)} }
			e.Exact, e.InFlight = true, read(pod.proxied)
			e.Proxies.Issued, e.Proxies.Ended = read(pod.completions+pod.proxied), read(pod.completions)
		}
	}
	if c.now < c.joins {
		s.Endpoints = s.Endpoints[:crowdPods-1]
	}
	return s
}

func (c *crowd) decide(law *Law) {
	d := law.Step(at(c.now), c.snapshot())
	weights := make([]float64, len(c.pods))
	for i, pod := range c.pods {
		j, there := slices.BinarySearchFunc(d.Endpoints, pod.address,
			func(e EndpointDecision, a string) int { return cmp.Compare(e.Address, a) })
		if there {
			weights[i] = d.Endpoints[j].Share
		}
	}
	c.after(0.01, func() { c.push(weights); c.drop = d.DropFraction })
	s := sample{at: c.now, drop: d.DropFraction}
	for _, p := range c.pods {
		s.wait += float64(len(p.queue)) / c.capacity()
	}
	if n := len(c.samples); n > 0 && c.samples[n-1].drop != s.drop {
		c.changes++
		if s.drop == 0 {
			c.ended++
		}
	}
	c.samples = append(c.samples, s)
}

// count adds up the part of the slots' time that is idle while requests are refused.
func (c *crowd) count() {
	if c.drop == 0 {
		return
	}
	for _, p := range c.pods {
		c.idle += 0.02 * float64(p.slots-p.running) / float64(crowdPods*c.slots)
	}
}

// over is the mean, the deviation and the most of a number from one time to another.
func (c *crowd) over(from, to float64, of func(sample) float64) (mean, deviation, most float64) {
	var n, sum, squares float64
	for _, s := range c.samples {
		if s.at >= from && s.at < to {
			v := of(s)
			n, sum, squares, most = n+1, sum+v, squares+v*v, max(most, v)
		}
	}
	mean = sum / n
	return mean, math.Sqrt(max(0, squares/n-mean*mean)), most
}

// first is the time of the first sample from then on of which that is true.
func (c *crowd) first(from float64, is func(sample) bool) float64 {
	for _, s := range c.samples {
		if s.at >= from && is(s) {
			return s.at
		}
	}
	return math.NaN()
}

func trueWait(s sample) float64 { return s.wait }
func dropped(s sample) float64  { return s.drop }

// From half of what it can serve a pool is offered more than that. The wait goes
// to the target and stays there, the slots stay busy, and the share refused is that
// of the excess.
func TestSheddingHoldsTheWaitNearItsTarget(t *testing.T) {
	t.Parallel()
	const target, begins, settled, ends = 2, 10, 30, 70 // seconds
	for _, pod := range []struct {
		slots int
		mean  float64 // of the service, seconds
	}{{1, 0.1}, {1, 1}, {16, 1}} {
		for _, factor := range []float64{1.2, 2} {
			for _, w := range sampled(2, watches) {
				t.Run(fmt.Sprintf("%d slots, %v s, %v times the capacity, %s", pod.slots, pod.mean, factor, w.name),
					func(t *testing.T) {
						t.Parallel()
						c := &crowd{watch: w, slots: pod.slots, mean: pod.mean, target: target,
							load: loadStep(begins, 0.5, factor)}
						c.run(1, ends)
						wait, deviation, _ := c.over(settled, ends, trueWait)
						drop, unrest, _ := c.over(settled, ends, dropped)
						_, _, peak := c.over(begins, settled, trueWait)
						rise := c.first(begins, func(s sample) bool { return s.drop >= (1-1/factor)/2 }) -
							c.first(begins, func(s sample) bool { return s.wait >= target/2. })
						idle, changes := c.idle/(ends-begins), float64(c.changes)/(ends-begins)
						t.Logf("wait %.2f ± %.2f s, peak %.2f s, half of the share %.1f s after half of the target; "+
							"refused %.3f ± %.3f; idle %.2f %%; %.1f changes a second, %d to none",
							wait, deviation, peak, rise, drop, unrest, 100*idle, changes, c.ended)
						c.check(t, factor, limits{wait: wait, peak: peak, rise: rise, drop: drop, idle: idle,
							changes: changes})
					})
			}
		}
	}
}

// limits are figures of a run that are bounded.
type limits struct{ wait, peak, rise, drop, idle, changes float64 }

func (c *crowd) check(t *testing.T, factor float64, got limits) {
	t.Helper()
	// Two services in the target leave no room for the spread of their own, so the
	// queue is short; where the reports are as old as the services it must be deeper
	// instead, lest slots fall idle unseen.
	few := c.slots == 1 && c.mean >= 1
	least, most, peak := 0.85, 1.15, 1.4
	if c.signals.inFlight {
		least, most = 0.75, 1.25 // the rate is an estimate
	}
	if few {
		least, most, peak = 0.25, 2, 2.5
	}
	if wait := got.wait / c.target; wait < least || wait > most || got.peak > peak*c.target {
		t.Errorf("wait %.2f s, peak %.2f s; want %.2f to %.2f targets of %v s, and at most %v", got.wait, got.peak,
			least, most, c.target, peak)
	}
	if want := 1 - 1/factor; math.Abs(got.drop-want) > 0.08 || got.idle > 0.05 {
		t.Errorf("refused %.3f, idle %.3f; want %.3f, and at most 5 %% idle", got.drop, got.idle, want)
	}
	byChance := 2.0
	if few {
		byChance = 6
	}
	if got.changes > 1.5 || float64(c.ended) > 6*(2-factor)/0.8+byChance {
		t.Errorf("%.1f changes a second, %d to none; want few", got.changes, c.ended)
	}
	if factor == 2 && !few && got.rise > 1.5 {
		t.Errorf("half of the share %.1f s after half of the target, want about a second", got.rise)
	}
}

// When the crowd goes away, nothing is refused a moment after nothing waits any
// more, and nothing from there on.
func TestSheddingEndsWithTheOverload(t *testing.T) {
	t.Parallel()
	const leaves, ends = 30, 60 // seconds
	for _, slots := range []int{1, 16} {
		for _, w := range sampled(2, watches) {
			t.Run(fmt.Sprintf("%d slots, %s", slots, w.name), func(t *testing.T) {
				t.Parallel()
				c := &crowd{watch: w, slots: slots, mean: 1, target: 2, load: loadStep(leaves, 2, 0.4)}
				c.run(1, ends)
				if before, _, _ := c.over(leaves-5, leaves, dropped); before < 0.25 {
					t.Errorf("refused %.2f at twice the capacity", before)
				}
				empty := c.first(leaves, func(s sample) bool { return s.wait == 0 })
				over := c.first(leaves, func(s sample) bool { return s.drop == 0 })
				t.Logf("nothing waits after %.1f s, nothing is refused after %.1f s", empty-leaves, over-leaves)
				if math.IsNaN(empty) { // by chance some request waits at each decision
					empty = ends
				}
				if !(over <= empty+1.5+2*w.scrape) { // the reports are late
					t.Errorf("refused until %.1f s after the crowd had left, and nothing waits after %.1f s",
						over-leaves, empty-leaves)
				}
				if _, _, most := c.over(over, ends, dropped); most > 0 {
					t.Errorf("refused %.2f at 0.4 of the capacity", most)
				}
			})
		}
	}
}

func TestNextToNothingIsRefusedBelowTheCapacity(t *testing.T) {
	t.Parallel()
	for _, slots := range []int{1, 16} {
		for _, w := range sampled(2, watches) {
			t.Run(fmt.Sprintf("%d slots, %s", slots, w.name), func(t *testing.T) {
				t.Parallel()
				c := &crowd{watch: w, slots: slots, mean: 1, target: 2, load: func(float64) float64 { return 0.85 }}
				c.run(3, 120)
				// The wait is now and then near the target by chance.
				if mean, _, most := c.over(0, 120, dropped); mean > 0.03 {
					t.Errorf("refused %.3f in the mean, %.2f at most, at 0.85 of the capacity", mean, most)
				}
			})
		}
	}
}

// A new endpoint has free slots for as long as it is trusted with a part of them; that is no
// reason to let in what lines up at the others.
func TestSheddingGoesOnWhileANewEndpointRamps(t *testing.T) {
	t.Parallel()
	const joins, ends = 40, 100 // seconds
	for _, w := range sampled(2, watches) {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			c := &crowd{watch: w, slots: 16, mean: 1, target: 2, load: loadStep(5, 0.5, 2), joins: joins,
				ramp: time.Minute}
			c.run(1, ends)
			_, _, peak := c.over(joins, ends, trueWait)
			ended := c.first(joins, func(s sample) bool { return s.drop == 0 })
			t.Logf("wait %.2f s at most", peak)
			if peak > 2.8 || !math.IsNaN(ended) {
				t.Errorf("wait %.2f s at most, and nothing refused at %.1f s; want 2.8 s, and never", peak, ended)
			}
		})
	}
}

// A target that is shorter than what chance moves within a horizon would leave
// slots idle while requests are refused.
func TestATargetTooShortForTheReportsGivesWayToGoodput(t *testing.T) {
	t.Parallel()
	c := &crowd{watch: watches[1], slots: 1, mean: 1, target: 0.2, load: func(float64) float64 { return 2 }}
	c.run(1, 80)
	wait, _, _ := c.over(20, 80, trueWait)
	idle := c.idle / 80
	t.Logf("wait %.2f s, idle %.1f %%", wait, 100*idle)
	if idle > 0.05 || wait > 4 {
		t.Errorf("wait %.2f s and %.3f idle, want 4 s and 0.05 at most", wait, idle)
	}
}
