package sim

// What becomes of a request: it arrives, is placed, served and done.

import "steelyard/sim/engine"

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

// choose is the choice of a policy that sees every pod for every request.
func (w *world) choose(a arrival) int32 {
	if w.router != nil {
		return w.byContent(&a)
	}
	switch w.p.Balancer {
	case FewestInFlight:
		return w.least(func(p *pod, _ int) float64 { return float64(p.load()) })
	case LeastWork:
		output := w.arrivals.prompts.output
		return w.least(func(p *pod, _ int) float64 { return p.engine.Work(output) })
	case LeastWorkGuessed:
		pod := w.least(w.guessed)
		w.guess(pod, a.prompt)
		return pod
	}
	return w.shortest()
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
