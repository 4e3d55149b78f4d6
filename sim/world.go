package sim

import (
	"context"
	"math/rand/v2"
	"time"

	"steelyard/picking/prefix"
	"steelyard/sim/engine"
)

// A world is one run in progress.
type world struct {
	s   *Scenario
	p   *Policy
	now instant
	// What arrives, executes and completes counts from there until there.
	from, until instant

	*calendar
	lanes    lanes
	arrivals *arrivals
	capacity float64 // requests per second of the pods at the start
	script   []act   // what is to happen, in order
	pods     []pod
	envoys   []*envoy
	picks    *rand.Rand
	requests []request // those in the system, and free ones
	free     []int32

	unfinished int     // requests that count and are not done, in engines
	guesses    []guess // of least_work_guessed, by pod
	router     *router // of policies that look at prompts; else nil
	groups     []*group
	tally      tally
}

// A group is the Envoys that are sent the same assignments: those of one replica of Steelyard, or all.
type group struct {
	w          *world
	lanes      lane                 // the first of its own
	assignment *assignment          // in force
	received   instant              // the latest one, be it the same
	sent       mailbox[*assignment] // on the way to the Envoys
	control    *control             // nil without Steelyard
}

// A request in the system.
type request struct {
	arrived    instant
	started    instant
	begun      instant // when its beginning was reported; never if it was not
	work       float64 // seconds
	bytes      float64 // content-length; 0 where there is none
	envoy, pod int32
	counts     bool
	call       *engine.Request // to an engine; nil to a pod with slots
	content    prefix.Prompt   // of its prompt, for policies that look at it
}

// The lanes of a world: single ones, then those of each group, then one for each pod or Envoy.
const (
	laneArrival lane = iota
	laneScript
	laneFreeSlots
	laneWindow
	laneSample
	singleLanes
)

// The lanes of a group, counted from its first one.
const (
	laneSent lane = iota
	laneLoop
	laneScraped
	lanePoll
	lanePolled
	lanePickers
	laneShared
	groupLanes
)

// lanes are where the lanes of the pods and Envoys begin.
type lanes struct {
	done                            lane // of each pod
	scrape                          lane // of each pod, by each group
	entries, report, reported, last lane // of each Envoy
}

func newLanes(pods, envoys, groups int) lanes {
	p, e, g := lane(pods), lane(envoys), lane(groups)
	l := lanes{done: singleLanes + groupLanes*g}
	l.scrape = l.done + p
	l.entries = l.scrape + p*g
	l.report = l.entries + e
	l.reported = l.report + e
	l.last = l.reported + e
	return l
}

func at(d time.Duration) instant { return instant(d) }

func newWorld(s *Scenario, p *Policy) *world {
	pods := s.pods()
	w := &world{
		s: s, p: p, from: at(s.WarmUp), until: at(s.Duration),
		lanes: newLanes(len(pods), s.Envoys, p.groups()),
		pods:  pods, script: s.script(), guesses: make([]guess, len(pods)),
		picks: source(s.Seed, streamPicks),
	}
	w.calendar = newCalendar(int(w.lanes.last))
	w.capacity = s.capacity(pods)
	w.arrivals = newArrivals(s, s.rate(w.capacity))
	balancer, bias := p.envoys()
	seeds := source(s.Seed, streamSeeds)
	for range s.Envoys {
		w.envoys = append(w.envoys, newEnvoy(balancer, bias, len(pods), s.Workers, seeds))
	}
	w.tally = newTally(w)
	if p.byPrefix() {
		w.router = newRouter()
	}
	for i := range p.groups() {
		lanes := singleLanes + groupLanes*lane(i)
		w.groups = append(w.groups, &group{w: w, lanes: lanes, assignment: w.evenly(),
			sent: newMailbox[*assignment](w.calendar, lanes+laneSent)})
	}
	for i, g := range w.groups {
		if p.Steelyard != nil {
			g.control = newControl(g, i)
		}
	}
	w.plan()
	return w
}

// plan sets the first time of every lane that moves by itself.
func (w *world) plan() {
	w.set(laneArrival, w.arrivals.at)
	if len(w.script) > 0 {
		w.set(laneScript, w.script[0].at)
	}
	if w.p.Balancer == FreeSlots && w.p.Steelyard == nil {
		w.set(laneFreeSlots, 0)
	}
	w.set(laneWindow, w.from)
	if w.s.SampleEvery > 0 {
		w.set(laneSample, 0)
	}
	for _, c := range w.controls() {
		c.plan()
	}
}

// of is the group of an Envoy: they are dealt out in turn.
func (w *world) of(envoy int32) *group { return w.groups[int(envoy)%len(w.groups)] }

// controls are the replicas of Steelyard; none without.
func (w *world) controls() []*control {
	var all []*control
	for _, g := range w.groups {
		if g.control != nil {
			all = append(all, g.control)
		}
	}
	return all
}

// run lets things happen until the end. Engines go on, and requests that do not count
// keep coming, until those that count are done, or for as long again.
func (w *world) run(ctx context.Context) error {
	const between = 1 << 14 // looks at the context
	for n := 0; ; n++ {
		if n%between == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		l, t := w.next()
		if end := w.until; t > end {
			if w.unfinished > 0 {
				end = 2 * w.until
			}
			if t > end {
				w.now = end
				return nil
			}
		}
		w.now = t
		w.happen(l)
	}
}

// happen does what is due in a lane.
func (w *world) happen(l lane) {
	switch {
	case l == laneArrival:
		w.arrive()
	case l < singleLanes:
		w.happenOnce(l)
	case l < w.lanes.done:
		w.groups[(l-singleLanes)/groupLanes].happen((l - singleLanes) % groupLanes)
	case l < w.lanes.scrape:
		w.complete(l - w.lanes.done)
	case l < w.lanes.entries:
		pods := lane(len(w.pods))
		w.groups[(l-w.lanes.scrape)/pods].control.scrape((l - w.lanes.scrape) % pods)
	case l < w.lanes.report:
		envoy := l - w.lanes.entries
		w.of(envoy).control.entries.deliver(envoy)
	case l < w.lanes.reported:
		envoy := l - w.lanes.report
		w.of(envoy).control.reports.report(envoy)
	default:
		envoy := l - w.lanes.reported
		w.of(envoy).control.reports.deliver(envoy)
	}
}

func (g *group) happen(l lane) {
	switch l {
	case laneSent:
		g.receive()
	case laneLoop:
		g.control.loop()
	case laneScraped:
		g.control.scraped()
	case lanePoll:
		g.control.poll()
	case lanePolled:
		g.control.polled()
	case lanePickers:
		g.control.pickers.receive()
	case laneShared:
		g.control.pickers.share()
	}
}

// set plans one of the group's lanes.
func (g *group) set(l lane, t instant) { g.w.set(g.lanes+l, t) }

func (w *world) happenOnce(l lane) {
	switch l {
	case laneScript:
		w.act()
	case laneFreeSlots:
		w.sendFreeSlots()
	case laneWindow:
		w.tally.window()
		w.again(l, w.tally.every)
	case laneSample:
		w.tally.sample()
		w.again(l, at(w.s.SampleEvery))
	}
}

// again plans what is measured now for later, while the time counts.
func (w *world) again(l lane, every instant) {
	next := w.now + every
	if next > w.until {
		next = never
	}
	w.set(l, next)
}

// measures reports whether what happens now counts.
func (w *world) measures() bool { return w.now >= w.from && w.now <= w.until }

// arrive takes in the next request.
func (w *world) arrive() {
	a := w.arrivals.take()
	w.set(laneArrival, w.arrivals.at)
	if w.p.looksAtContent() {
		a.content = contentOf(&a.prompt)
	}
	counts, g := w.measures(), w.of(a.envoy)
	pod := int32(-1)
	if !(a.coin < g.assignment.drop) {
		pod = w.pick(g, a)
	}
	if pod < 0 {
		w.tally.refused(counts)
		return
	}
	id := w.admit(request{
		arrived: w.now, begun: never, work: a.work, bytes: a.prompt.bytes, envoy: a.envoy, pod: pod, counts: counts,
		content: a.content,
	})
	e := w.envoys[a.envoy]
	e.moved(g.assignment)
	e.active[pod]++
	e.issued[pod]++
	w.tally.placed(pod, counts)
	if g.control != nil {
		g.control.begun(&w.requests[id])
	}
	p := w.touch(pod)
	switch {
	case p.engine != nil:
		w.call(p, id, a.prompt)
	case len(p.running) < p.slots:
		w.start(p, id)
	default:
		p.queue.push(id)
	}
	w.set(w.lanes.done+pod, p.completes())
}

// pick chooses a pod.
func (w *world) pick(g *group, a arrival) int32 {
	if w.p.Steelyard == nil && !w.p.byEnvoys() {
		return w.choose(a)
	}
	if g.control != nil && g.control.pickers != nil {
		if pod := g.control.pickers.pick(&a); pod >= 0 {
			return pod
		}
	}
	if g.control != nil && g.stale() && len(g.control.members) > 0 {
		return w.envoys[a.envoy].twoChoices(g.control.members, w.picks)
	}
	return w.envoys[a.envoy].pick(g.assignment, int(a.worker), w.picks)
}

// stale reports whether the Envoys have turned to their fallback.
func (g *group) stale() bool {
	after := g.control.staleAfter
	return after > 0 && g.w.now-g.received > at(after)
}

// touch brings a pod's clock up to now, before it changes.
func (w *world) touch(pod int32) *pod {
	p := &w.pods[pod]
	p.advance(w.now, w.from, w.until)
	p.remember(w.now)
	return p
}

func (w *world) admit(r request) (id int32) {
	if n := len(w.free); n > 0 {
		id = w.free[n-1]
		w.free = w.free[:n-1]
		w.requests[id] = r
		return id
	}
	w.requests = append(w.requests, r)
	return int32(len(w.requests) - 1)
}

func (w *world) start(p *pod, id int32) {
	r := &w.requests[id]
	r.started = w.now
	p.begin(id, r.work)
	if r.counts {
		w.tally.waited(w.now - r.arrived)
	}
}

// call hands a request to an engine.
func (w *world) call(p *pod, id int32, asked prompt) {
	r := &w.requests[id]
	r.call = &engine.Request{ID: id, Prompt: asked.prompt, Cached: asked.cached, Output: asked.output,
		Blocks: asked.blocks}
	if r.counts {
		w.unfinished++
	}
	p.engine.Arrive(w.now.duration(), r.call)
}

// complete ends the iteration of an engine that is due, or the request of a pod that
// is, and begins one that waits.
func (w *world) complete(pod int32) {
	p := w.touch(pod)
	if p.engine != nil {
		for _, call := range p.engine.Step(w.now.duration()) {
			if w.requests[call.ID].counts {
				w.unfinished--
			}
			w.finish(call.ID)
		}
	} else {
		id := p.finish()
		r := &w.requests[id]
		p.completions++
		p.queueSeconds += float64(r.started-r.arrived) / 1e9
		p.busySeconds += float64(w.now-r.started) / 1e9
		w.finish(id)
		if p.queue.len() > 0 && len(p.running) < p.slots {
			w.start(p, p.queue.pop())
		}
	}
	w.set(w.lanes.done+pod, p.completes())
}

// finish takes a request that is done out of the system.
func (w *world) finish(id int32) {
	r := &w.requests[id]
	w.tally.completed(r)
	if w.p.looksAtContent() {
		w.learn(r)
	}
	e, g := w.envoys[r.envoy], w.of(r.envoy)
	e.moved(g.assignment)
	e.active[r.pod]--
	if g.control != nil {
		g.control.ended(r)
	}
	w.free = append(w.free, id)
}

// send puts an assignment on its way to the Envoys.
func (g *group) send(a *assignment, delay time.Duration) {
	g.sent.send(g.w.now+at(delay), a)
}

// receive puts an assignment in force. One that is the same to a balancer is no
// reason to rebuild anything, and Envoy does not even look at its drop.
func (g *group) receive() {
	next := g.sent.receive()
	g.received = g.w.now
	if !next.same(g.assignment) {
		g.assignment = next
	}
}

// evenly is an assignment of all endpoints with one weight.
func (w *world) evenly() *assignment {
	a := newAssignment(len(w.pods))
	n := 0.0
	for i := range w.pods {
		if w.pods[i].present {
			a.weights[i] = 1
			n++
		}
	}
	for i := range w.pods {
		a.shares[i] = float64(a.weights[i]) / max(1, n)
	}
	a.settle()
	return a
}
