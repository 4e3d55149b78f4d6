package sim

import (
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

// set plans one of the group's lanes.
func (g *group) set(l lane, t instant) { g.w.set(g.lanes+l, t) }

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

// touch brings a pod's clock up to now, before it changes.
func (w *world) touch(pod int32) *pod {
	p := &w.pods[pod]
	p.advance(w.now, w.from, w.until)
	p.remember(w.now)
	return p
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
