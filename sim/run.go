package sim

import (
	"context"
	"errors"
	"fmt"
)

// Run places the requests of the scenario by one policy. It fails when the two
// are not sound, and when ctx ends first.
func Run(ctx context.Context, s Scenario, p Policy) (Result, error) {
	s, p = s.withDefaults(), p.withDefaults()
	if err := errors.Join(s.check(), p.check(s.Prompts != nil)); err != nil {
		return Result{}, fmt.Errorf("simulating %q under %q: %w", s.Name, p.Name, err)
	}
	w := newWorld(&s, &p)
	if err := w.run(ctx); err != nil {
		return Result{}, fmt.Errorf("simulating %q under %q: stopped at %v of %v: %w", s.Name, p.Name, w.now.duration(),
			s.Duration, err)
	}
	return w.tally.result(), nil
}

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
