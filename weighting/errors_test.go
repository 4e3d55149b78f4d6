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

// A deployment is a pool of endpoints to which requests come by the shares that the law decides, one
// step each 50 ms. Good requests take a time, and bad ones end at once with an error wherever they go.
type deployment struct {
	law      *Law
	rng      *rand.Rand
	now      time.Duration
	replicas []replica
	last     Decision

	good, bad float64       // requests per second
	mean      time.Duration // of a good one, exponential
	sticky    bool          // all bad requests go to the first endpoint
	retries   bool          // a good request that got an error is sent again at once
	again     int           // such tries, in the next step
}

// A replica is what is true of one endpoint.
type replica struct {
	joins                  time.Duration   // when it is in the pool from
	open                   []time.Duration // when the requests in flight end
	issued, errors, served float64
	report                 ServerReport

	gone  bool // the model: every request gets an error
	limit int  // requests at once, with an error for each above it; 0 is none
	speed float64
}

func newDeployment(n int, seed uint64) *deployment {
	dep := &deployment{law: NewLaw(DefaultParams()), rng: rand.New(rand.NewPCG(seed, 7)), replicas: make([]replica, n)}
	for i := range dep.replicas {
		dep.replicas[i].speed = 1
	}
	return dep
}

const deployTick = 50 * time.Millisecond

// arrivals is a draw of how many requests come in a step.
func (dep *deployment) arrivals(perSecond float64) (n int) {
	for at := dep.rng.ExpFloat64(); at < perSecond*deployTick.Seconds(); at += dep.rng.ExpFloat64() {
		n++
	}
	return n
}

// pick draws an endpoint by the shares in force, as proxies do: none with a flag.
func (dep *deployment) pick() *replica {
	sum := 0.0
	for _, e := range dep.last.Endpoints {
		if !e.Overloaded {
			sum += e.Share
		}
	}
	u := dep.rng.Float64() * sum
	for i, e := range dep.last.Endpoints {
		if u -= e.Share; !e.Overloaded && u <= 0 {
			return &dep.replicas[i]
		}
		if e.Overloaded {
			u += e.Share
		}
	}
	return &dep.replicas[dep.rng.IntN(len(dep.last.Endpoints))]
}

func (dep *deployment) send(p *replica, good bool) {
	p.issued++
	if good && !p.gone && (p.limit == 0 || len(p.open) < p.limit) {
		took := dep.rng.ExpFloat64() * float64(dep.mean) / p.speed
		p.open = append(p.open, dep.now+time.Duration(took))
		return
	}
	p.errors++
	if good && dep.retries {
		dep.again++
	}
}

func (dep *deployment) step() Decision {
	dep.now += deployTick
	if len(dep.last.Endpoints) > 0 {
		good := dep.arrivals(dep.good) + dep.again
		dep.again = 0
		for range good {
			dep.send(dep.pick(), true)
		}
		for range dep.arrivals(dep.bad) {
			p := &dep.replicas[0]
			if !dep.sticky {
				p = dep.pick()
			}
			dep.send(p, false)
		}
	}
	now := epoch.Add(dep.now)
	s := Snapshot{PushPeriod: deployTick, ScrapeInterval: 5 * deployTick}
	for i := range dep.replicas {
		p := &dep.replicas[i]
		p.end(dep.now)
		if dep.now%(5*deployTick) == 0 {
			running := known(float64(len(p.open)), now)
			p.report = ServerReport{Queue: known(0, now), Running: running, Completions: known(p.served, now)}
		}
		if p.joins <= dep.now {
			s.Endpoints = append(s.Endpoints, p.endpoint(i, now))
		}
	}
	dep.last = dep.law.Step(now, s)
	return dep.last
}

func (p *replica) end(now time.Duration) {
	open := p.open[:0]
	for _, at := range p.open {
		if at > now {
			open = append(open, at)
		} else {
			p.served++
		}
	}
	p.open = open
}

func (p *replica) endpoint(i int, now time.Time) Endpoint {
	return Endpoint{
		Address: fmt.Sprintf("%03d", i), Capacity: 64, Server: p.report,
		InFlight: known(float64(len(p.open)), now), Exact: true,
		Proxies: ProxyReport{
			Issued: known(p.issued, now), Ended: known(p.errors+p.served, now),
			Failed: known(0, now), Errors: known(p.errors, now), Succeeded: known(p.served, now),
			Answered: known(p.errors+p.served, now), LatencySeconds: known(0, now),
		},
	}
}

// run steps for that long, and calls see with each decision.
func (dep *deployment) run(length time.Duration, see func(Decision)) {
	for until := dep.now + length; dep.now < until; {
		if d := dep.step(); see != nil {
			see(d)
		}
	}
}

// Errors that all requests of one client get are its own fault, however many there are and wherever they go: no
// endpoint is flagged for them, neither as failing nor as stalled among such short answers.
func TestAClientsOwnErrorsFlagNoEndpoint(t *testing.T) {
	bursts := func(dep *deployment) {
		if dep.bad = 0; dep.now%(5*second) >= 5*second-deployTick {
			dep.bad = 400
		}
	}
	days := func(dep *deployment) {
		if dep.good = 0; dep.now%(150*second) >= 120*second {
			dep.good = 5
		}
	}
	spells := func(dep *deployment) {
		if dep.bad = 0; dep.now%(40*second) >= 20*second {
			dep.bad = 200
		}
	}
	joins := func(dep *deployment) { dep.replicas[4].joins = time.Minute }
	limit := func(dep *deployment) {
		for i := range dep.replicas {
			dep.replicas[i].limit = 1
		}
	}
	slow := func(dep *deployment) { limit(dep); dep.replicas[0].speed = 0.5 }
	for name, c := range map[string]struct {
		pods      int
		good, bad float64
		mean      time.Duration
		sticky    bool
		retries   bool
		before    func(*deployment) // all
		each      func(*deployment) // step
	}{
		"many among long requests":         {pods: 4, good: 5, mean: 10 * second, bad: 100},
		"many among short requests":        {pods: 4, good: 20, mean: second / 20, bad: 100},
		"in a large pool":                  {pods: 12, good: 54, mean: 5 * second, bad: 100},
		"as many as others send":           {pods: 4, good: 1, mean: 2 * second, bad: 1},
		"few, long requests":               {pods: 4, good: 0.3, mean: 20 * second, bad: 0.3},
		"to one endpoint only":             {pods: 4, good: 20, mean: second, bad: 100, sticky: true},
		"to one endpoint, short requests":  {pods: 4, good: 60, mean: second / 20, bad: 100, sticky: true},
		"to one endpoint, few requests":    {pods: 4, good: 1, mean: second, bad: 10, sticky: true},
		"to the emptiest, which is new":    {pods: 5, good: 5, mean: 10 * second, bad: 100, before: joins},
		"in bursts":                        {pods: 4, good: 5, mean: 2 * second, each: bursts},
		"no others at night":               {pods: 4, mean: second, bad: 0.2, each: days},
		"now and then":                     {pods: 4, good: 20, mean: second, each: spells},
		"all are full":                     {pods: 4, good: 60, mean: second / 5, before: limit},
		"all are full, and tried again":    {pods: 4, good: 19, mean: second / 5, before: limit, retries: true},
		"all are full, and one is as slow": {pods: 4, good: 60, mean: second / 5, before: slow},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dep := newDeployment(c.pods, 1)
			dep.good, dep.bad, dep.mean, dep.sticky, dep.retries = c.good, c.bad, c.mean, c.sticky, c.retries
			if c.before != nil {
				c.before(dep)
			}
			const length = 5 * time.Minute
			shares := make([]float64, c.pods) // in the mean
			dep.run(length, func(d Decision) {
				for i, e := range d.Endpoints {
					if e.Overloaded {
						t.Fatalf("%v: %s is flagged: %s", dep.now, e.Address, e.OverloadReason)
					}
					shares[i] += e.Share * float64(deployTick) / float64(length)
				}
				if c.each != nil {
					c.each(dep)
				}
			})
			errors := 0.0
			for i := range dep.replicas {
				errors += dep.replicas[i].errors
			}
			if errors < 40 {
				t.Errorf("%v errors in all: that proves nothing", errors)
			}
			if least := slices.Min(shares) * float64(c.pods); least < 0.5 {
				t.Errorf("the shares are %.2f in the mean: one endpoint gets %.2f of an even part", shares, least)
			}
		})
	}
}

// An endpoint that answers at once with an error looks idle, and attracts what the others would have answered.
func TestAnEndpointThatAnswersWithErrorsWhatOthersAnswerIsFlagged(t *testing.T) {
	gone := func(dep *deployment) { dep.replicas[0].gone = true }
	full := func(dep *deployment) { dep.replicas[0].limit = 2 }
	for name, c := range map[string]struct {
		pods      int
		good, bad float64
		mean      time.Duration
		retries   bool
		fails     func(*deployment)
		within    time.Duration
		errors    float64 // in a minute, at most
	}{
		"short requests": {pods: 4, good: 60, mean: second / 50, fails: gone, within: second,
			errors: 60},
		"long ones": {pods: 4, good: 5, mean: 10 * second, fails: gone, within: 15 * second,
			errors: 90},
		"a large pool": {pods: 12, good: 54, mean: 10 * second, fails: gone,
			within: 2 * second, errors: 120},
		"requests with errors come again": {pods: 4, good: 60, mean: second / 50, retries: true, fails: gone,
			within: second, errors: 90},
		"few requests": {pods: 4, good: 2, mean: second / 2, fails: gone, within: 40 * second,
			errors: 30},
		"two endpoints": {pods: 2, good: 10, mean: second / 5, fails: gone, within: 8 * second,
			errors: 100},
		"and a client that fails everywhere": {pods: 4, good: 20, mean: second, bad: 100, fails: gone,
			within: 6 * second, errors: 600},
		"a full engine, where others have room": {pods: 4, good: 40, mean: second / 2, fails: full, within: 5 * second,
			errors: 200},
		"a full engine, long requests": {pods: 4, good: 10, mean: 5 * second, fails: full, within: 10 * second,
			errors: 100},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := range seeds(1, 3) {
				dep := newDeployment(c.pods, seed)
				dep.good, dep.bad, dep.mean, dep.retries = c.good, c.bad, c.mean, c.retries
				dep.run(time.Minute, nil)
				c.fails(dep)
				from, before, flagged := dep.now, dep.replicas[0].errors, time.Duration(-1)
				dep.run(time.Minute, func(d Decision) {
					for i, e := range d.Endpoints {
						failing := strings.HasPrefix(e.OverloadReason, "failing: ")
						if e.Overloaded && (i > 0 || e.Share > DefaultParams().Floor || !failing) {
							t.Fatalf("%s: flagged for %q, share %v", e.Address, e.OverloadReason, e.Share)
						}
					}
					if d.Endpoints[0].Overloaded && flagged < 0 {
						flagged = dep.now - from
						t.Logf("after %v and %v errors %s", flagged, dep.replicas[0].errors-before,
							d.Endpoints[0].OverloadReason)
					}
				})
				errors := dep.replicas[0].errors - before
				if flagged < 0 || flagged > c.within || errors > c.errors {
					t.Errorf("seed %d: flagged after %v, %v errors in a minute; want within %v, at most %v",
						seed, flagged, errors, c.within, c.errors)
				}
				dep.replicas[0].gone, dep.replicas[0].limit = false, 0
				dep.run(2*time.Minute, nil)
				if e := dep.last.Endpoints[0]; e.Overloaded || e.Ramp < 1 {
					t.Errorf("seed %d: two minutes after it is well: flagged %t (%s), trusted with %v",
						seed, e.Overloaded, e.OverloadReason, e.Ramp)
				}
			}
		})
	}
}

// errs answers the next n requests with errors.
func (b *countedEndpoint) errs(n float64) {
	b.issued, b.ended, b.answered, b.errors = b.issued+n, b.ended+n, b.answered+n, b.errors+n
}

// Without an access log the proxies report some errors (5xx, no answer) and count others (404, 429) as successes, which
// the server does not complete. A change of what they report ends no ejection.
func TestAChangeOfTheProxiesReportsEndsNoEjection(t *testing.T) {
	for name, fails := range map[string]func(b *countedEndpoint, logged bool){
		"errors in load reports": func(b *countedEndpoint, _ bool) { b.errs(1) },
		"errors that load reports count as successes": func(b *countedEndpoint, logged bool) {
			b.errs(1)
			if !logged {
				b.errors--
			}
		},
		"failures": func(b *countedEndpoint, logged bool) {
			if b.errs(1); logged {
				b.errors, b.failed = b.errors-1, b.failed+1
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newCountedPool(4)
			b := &w.endpoints[0]
			logged := func(on bool) {
				for i := range w.endpoints {
					w.endpoints[i].reportsOnly = !on
				}
			}
			w.run(10*second, func() { w.others(); b.inFlight, b.running = 2, 2; b.serve(1) })
			b.inFlight, b.running = 0, 0
			if flagged, _ := w.run(3*second, func() { w.others(); fails(b, true) }); flagged < 0 {
				t.Fatal("not flagged")
			}
			requests := 0
			for i := range 600 { // on and off each six seconds
				log := i/60%2 == 1
				logged(log)
				w.others()
				if w.law.memory["0"].health.State == health.Probing {
					fails(b, log && i%60 > 0) // the last load report and the change come together
					requests++
				}
				e := w.step().Endpoints[0]
				if !e.Overloaded && e.Ramp > leastRamp {
					t.Fatalf("after %d steps it is trusted with %v", i, e.Ramp)
				}
				if blind := !log && strings.Contains(name, "successes"); !e.Overloaded && blind && e.Share > 0.02 {
					t.Fatalf("after %d steps it gets %v, and nothing shows what becomes of its requests", i, e.Share)
				}
			}
			if requests == 0 {
				t.Error("it was not probed in a minute")
			}
			logged(false)
			_, d := w.run(40*second, func() { w.others(); b.inFlight, b.running = 2, 2; b.serve(1) })
			if e := d.Endpoints[0]; e.Overloaded || e.Ramp < 1 {
				t.Errorf("healed, by load reports: flagged %t (%s), trusted with %v", e.Overloaded, e.OverloadReason,
					e.Ramp)
			}
		})
	}
}

// Load reports report errors late and many at once.
func TestErrorsInLoadReportsFlag(t *testing.T) {
	for _, every := range []int{1, 10} { // steps
		w := newCountedPool(4)
		for i := range w.endpoints {
			w.endpoints[i].reportsOnly = true
		}
		b, n := &w.endpoints[0], 0
		reported := func(do func(n float64)) {
			if n++; n%every == 0 {
				do(float64(every))
			}
			w.others()
		}
		w.run(10*second, func() { b.inFlight, b.running = 2, 2; reported(b.serve) })
		flagged, _ := w.run(10*second, func() { b.inFlight, b.running = 0, 0; reported(b.errs) })
		if flagged < 0 || flagged > 4*second {
			t.Errorf("a report each %d steps: flagged after %v, want within 4 s", every, flagged)
		}
	}
}

// A proxy may eject an endpoint after five failures, and report nothing more; how its requests ended before them comes
// with the same report.
func TestFiveErrorsInLoadReportsAreEnough(t *testing.T) {
	w := newCountedPool(4)
	for i := range w.endpoints {
		w.endpoints[i].reportsOnly = true
	}
	b := &w.endpoints[0]
	w.run(5*second, func() { w.others(); b.inFlight, b.running = 2, 2; b.serve(1) })
	b.inFlight, b.running = 0, 0
	b.serve(4)
	b.errs(5)
	flagged, _ := w.run(3*second, w.others)
	if flagged < 0 {
		t.Error("not flagged")
	}
}

// An error that may be the request's own shows neither that the endpoint is healthy nor that it is not: its failures
// before go on counting.
func TestAnErrorIsNoAnswerBetweenFailures(t *testing.T) {
	w := newCountedPool(4)
	b, n := &w.endpoints[0], 0
	flagged, d := w.run(10*second, func() {
		w.others()
		b.inFlight, b.running = 0, 0
		if n++; n%2 == 0 {
			b.errs(1)
		} else {
			b.serve(1)
			b.failed++
		}
	})
	if flagged < 0 || flagged > 2*second || !strings.HasPrefix(d.Endpoints[0].OverloadReason, "failing: ") {
		t.Errorf("flagged after %v: %q", flagged, d.Endpoints[0].OverloadReason)
	}
}

// Errors end at once. A request of some seconds among them is no silence.
func TestErrorsDoNotShowHowLongARequestTakes(t *testing.T) {
	w := newCountedPool(4)
	n := 0
	long := func(errors bool) {
		n++
		for i := range w.endpoints {
			b := &w.endpoints[i]
			b.inFlight, b.running = 4, 4
			if n%25 == 0 {
				b.serve(1)
			}
			if errors {
				b.errs(2)
			}
		}
	}
	w.run(time.Minute, func() { long(true) })
	b := &w.endpoints[0]
	served := *b
	flagged, d := w.run(8*second, func() {
		long(false)
		b.issued, b.ended, b.answered, b.completed = served.issued, served.ended, served.answered, served.completed
	})
	if flagged >= 0 {
		t.Errorf("flagged after %v: %s", flagged, d.Endpoints[0].OverloadReason)
	}
}

// An endpoint that got some errors and then no requests, because proxies eject it or send none
// there, needs no answers.
func TestAnEndpointWithoutRequestsNeedsNoAnswers(t *testing.T) {
	w := newCountedPool(4)
	b := &w.endpoints[0]
	w.run(5*second, func() { w.others(); b.inFlight, b.running = 2, 2; b.serve(1) })
	b.inFlight, b.running = 0, 0
	b.errs(4)
	flagged, _ := w.run(20*second, w.others)
	want(t, "flagged after", flagged, -1)
}
