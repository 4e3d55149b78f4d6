package sim

import (
	"math/rand/v2"
	"time"

	"steelyard/picking"
	"steelyard/weighting"
	"steelyard/weighting/flight"
	"steelyard/weighting/push"
	"steelyard/xds/envoyspec"
)

// A control is Steelyard: the sources, and the loop of package controlplane around the gate that the
// product runs.
type control struct {
	w      *world
	g      *group // of the Envoys that are connected to it
	number int    // of the replica
	o      Steelyard

	away  bool
	since instant // when it came (back)

	gate       *push.Gate
	staleAfter time.Duration // as last pushed
	rhythm     push.Rhythm
	allowance  push.Allowance // of each Envoy; they are alike, as all subscribe to this cluster only

	envoys    []int // that are connected
	addresses []string
	zones     []string
	members   []int32
	endpoints []weighting.Endpoint // scratch, one for each member
	server    []weighting.ServerReport
	counts    [][]flight.Counter // by Envoy and pod
	proxies   []proxied          // by pod, over all Envoys
	redis     redis
	scrapes   mailbox[scraped]
	entries   entries
	reports   reports

	pickers *pickers // nil without
	dither  *rand.Rand
	shares  []float64 // scratch
	weights []uint32
}

// proxied is what the proxies report of one pod.
type proxied struct {
	inFlight int64
	sums     flight.Sums
}

// counted takes what changed at the count of an Envoy into that of the pod.
func (c *control) counted(pod int32, change flight.Change) {
	p := &c.proxies[pod]
	p.inFlight += int64(change.InFlight)
	p.sums.Add(&change.Sums)
}

// scraped is a report on its way from a server.
type scraped struct {
	pod    int32
	failed bool
	report weighting.ServerReport
}

// redis is the shared counts as polled.
type redis struct {
	leaked []float64 // by pod
	read   []float64 // on their way
	taken  instant
	counts []weighting.Reading
}

func newControl(g *group, number int) *control {
	w := g.w
	c := &control{w: w, g: g, number: number, o: w.s.Signals.over(w.p.Steelyard.withDefaults())}
	c.envoys = c.connected()
	c.scrapes = newMailbox[scraped](w.calendar, g.lanes+laneScraped)
	n := len(w.pods)
	for i := range n {
		c.addresses = append(c.addresses, podName(i))
	}
	for _, g := range w.s.Pods {
		for range g.Count {
			c.zones = append(c.zones, g.Zone)
		}
	}
	if c.o.Picker != NoPicker {
		c.pickers = newPickers(g, c.o.Picker.looks())
	}
	c.dither, c.staleAfter = source(w.s.Seed, streamDither+uint64(number)<<32), c.o.FallbackAfter
	c.begin()
	return c
}

// begin is the start of a process: it knows nothing.
func (c *control) begin() {
	n := len(c.w.pods)
	c.gate = push.NewGate(push.Options{
		Params: c.o.Params, Budget: c.o.budget(), Deadband: c.o.Deadband, Heartbeat: c.o.Heartbeat,
		StaleAfter: c.o.FallbackAfter,
	})
	c.since, c.rhythm = c.w.now, push.NewRhythm(c.w.now.time())
	c.server = make([]weighting.ServerReport, n)
	c.proxies = make([]proxied, n)
	c.redis.counts = make([]weighting.Reading, n)
	if c.redis.leaked == nil {
		c.redis.leaked, c.redis.read = make([]float64, n), make([]float64, n)
		c.entries, c.reports = newEntries(c), newReports(c)
	}
	c.entries.reset()
	c.reports.reset()
	c.resetCounts()
	c.scrapes.clear()
	c.listMembers()
}

// resetCounts forgets what was counted.
func (c *control) resetCounts() {
	basis := flight.ByLog
	if c.o.Source == LoadReports {
		basis = flight.ByReports
	}
	c.counts = make([][]flight.Counter, len(c.w.envoys))
	for i := range c.counts {
		c.counts[i] = make([]flight.Counter, len(c.w.pods))
		for pod := range c.counts[i] {
			c.counts[i][pod].Switch(basis)
		}
	}
}

// plan sets the first times of what runs by itself.
func (c *control) plan() {
	for i := range c.w.pods {
		if c.o.ScrapeInterval > 0 {
			c.w.set(c.scrapeLane(lane(i)), c.w.now+at(phase(i, c.o.ScrapeInterval)))
		}
	}
	switch c.o.Source {
	case AccessLog, LoadReports:
		if c.exact() {
			c.reports.plan()
		}
	case Redis:
		c.g.set(lanePoll, c.w.now)
	}
	c.poke()
}

// exact says that there are load reports, so that what proxies count cannot drift.
func (c *control) exact() bool {
	return c.o.Source == LoadReports || c.o.Source == AccessLog && !c.o.Uncorrected
}

// phase is where in the interval a pod is scraped.
func phase(pod int, interval time.Duration) time.Duration {
	hash := uint64(pod+1) * 0x9e3779b97f4a7c15 // Fibonacci hashing
	return time.Duration(float64(hash>>11) / (1 << 53) * float64(interval))
}

// goAway stops the process or starts a new one.
func (c *control) goAway(away bool) {
	c.away = away
	if away {
		c.g.set(laneLoop, never)
		c.entries.reset()
		return
	}
	c.begin()
	c.poke()
}

func (c *control) listMembers() {
	c.members = c.members[:0]
	for i := range c.w.pods {
		if c.w.pods[i].present {
			c.members = append(c.members, int32(i))
		}
	}
}

func (c *control) membership() {
	c.listMembers()
	for i := range c.w.pods {
		if !c.w.pods[i].present {
			c.server[i] = weighting.ServerReport{} // reports do not outlive the endpoint
			c.redis.counts[i] = weighting.Reading{}
		}
	}
	c.poke()
}

// begun and ended take in a request.
func (c *control) begun(r *request) {
	switch c.o.Source {
	case AccessLog:
		c.entries.begun(r)
	case Redis:
		if c.entries.lost() {
			c.redis.leaked[r.pod]--
		}
	}
}

func (c *control) ended(r *request) {
	switch c.o.Source {
	case AccessLog:
		c.entries.ended(r)
	case Redis:
		if c.entries.lost() {
			c.redis.leaked[r.pod]++
		}
	}
}

// poll reads the shared counts, polled takes them in.
func (c *control) poll() {
	c.g.set(lanePoll, c.w.now+at(c.o.ReportInterval))
	if c.w.at[c.g.lanes+lanePolled] != never {
		return // the poll before is outstanding
	}
	for pod := range c.redis.read {
		n := c.redis.leaked[pod]
		for _, e := range c.w.envoys {
			n += float64(e.active[pod])
		}
		c.redis.read[pod] = max(0, n)
	}
	c.redis.taken = c.w.now
	c.g.set(lanePolled, c.w.now+c.reports.delays.next())
}

func (c *control) polled() {
	c.g.set(lanePolled, never)
	if c.away || c.redis.taken < c.since {
		return
	}
	for _, pod := range c.members {
		c.redis.counts[pod] = weighting.Reading{Value: c.redis.read[pod], At: c.redis.taken.time()}
	}
	c.poke()
}

// scrapeLane returns the lane of the scrapes of a pod by this replica.
func (c *control) scrapeLane(pod lane) lane {
	return c.w.lanes.scrape + lane(c.number*len(c.w.pods)) + pod
}

// connected are the Envoys that are connected to this replica.
func (c *control) connected() (envoys []int) {
	for i := range c.w.envoys {
		if c.w.of(int32(i)) == c.g {
			envoys = append(envoys, i)
		}
	}
	return envoys
}

// scrape reads a server's metrics.
func (c *control) scrape(pod lane) {
	w := c.w
	w.set(c.scrapeLane(pod), w.now+at(c.o.ScrapeInterval))
	if c.away || !w.pods[pod].present {
		return
	}
	p := w.touch(pod)
	c.scrapes.send(w.now+at(c.o.ScrapeDelay), scraped{pod: pod, failed: p.stale, report: p.report(w.now)})
}

func (c *control) scraped() {
	s := c.scrapes.receive()
	if !s.failed && c.w.pods[s.pod].present {
		c.server[s.pod] = s.report
	}
	c.poke()
}

// poke wakes the loop: something is new. active does too: Envoys reported requests.
func (c *control) poke() { c.news((*push.Rhythm).Poked) }

func (c *control) active() { c.news((*push.Rhythm).ProxyActive) }

func (c *control) news(record func(*push.Rhythm) (sooner bool)) {
	if !c.away && record(&c.rhythm) {
		c.schedule()
	}
}

// schedule plans the next step.
func (c *control) schedule() { c.g.set(laneLoop, c.w.now+at(c.rhythm.Wait(c.w.now.time()))) }

// loop steps.
func (c *control) loop() {
	c.rhythm.Begin()
	c.rhythm.Finished(c.w.now.time(), c.step())
	c.schedule()
}

// stepTime is what a step takes for each endpoint (docs/cost.md). In the simulation its outcome is there at once, and
// only the pause after it goes by this time.
const stepTime = 3 * time.Microsecond

// step decides and publishes.
func (c *control) step() push.Pause {
	now := c.w.now.time()
	c.w.tally.stepped()
	shown := c.snapshot(now)
	if c.o.Shown != nil {
		c.o.Shown(c.w.now.duration(), &shown)
	}
	verdict := c.gate.Step(now, push.Input{
		Snapshot: shown, Subscribers: push.Subscribers{Proxies: len(c.envoys)}, Ready: true,
	})
	if c.o.Decided != nil {
		c.o.Decided(c.w.now.duration(), &verdict.Decision)
	}
	if c.pickers != nil {
		c.pickers.send(picking.UpdateOf(&verdict.Decision), at(c.o.PushDelay))
	}
	pushed := verdict.Push && c.push(&verdict)
	took := stepTime * time.Duration(len(c.members))
	return c.gate.Finish(now, push.Outcome{Pushed: pushed, Took: took})
}

// snapshot is the cluster as the sources show it.
func (c *control) snapshot(now time.Time) weighting.Snapshot {
	s := weighting.Snapshot{
		PushDelay: c.o.PushDelay, ScrapeInterval: c.o.ScrapeInterval,
	}
	if c.o.Source == LoadReports || c.o.Source == Redis {
		s.CountInterval = c.o.ReportInterval
	}
	counted := now
	if c.o.Source == LoadReports {
		age, ok := c.reports.age()
		if counted = now.Add(-age); !ok {
			counted = time.Time{}
		}
	}
	var logged time.Time
	if c.o.Source == AccessLog {
		logged = counted
	}
	c.endpoints = c.endpoints[:0]
	for _, pod := range c.members {
		e := weighting.Endpoint{Address: c.addresses[pod], Zone: c.zones[pod], Server: c.server[pod]}
		if c.o.Capacity {
			e.Capacity = c.w.pods[pod].capacity
		}
		switch c.o.Source {
		case AccessLog, LoadReports:
			e.InFlight = weighting.Reading{Value: float64(c.proxies[pod].inFlight), At: counted}
			e.Exact = c.exact()
			e.Proxies = c.proxies[pod].sums.Report(counted, logged)
			e.Proxies.Partial = len(c.w.groups) > 1 // the other replicas' Envoys report elsewhere
		case Redis:
			e.InFlight = c.redis.counts[pod]
		}
		c.endpoints = append(c.endpoints, e)
	}
	s.Endpoints = c.endpoints
	return s
}

// push sends a decision to the Envoys.
func (c *control) push(v *push.Verdict) bool {
	d, a := &v.Decision, newAssignment(len(c.w.pods))
	c.shares = c.shares[:0]
	for k := range d.Endpoints {
		e, pod := &d.Endpoints[k], c.members[k]
		c.shares = append(c.shares, e.Share)
		a.shares[pod], a.degraded[pod] = e.Share, e.Overloaded
	}
	if len(c.shares) > 0 {
		bounds, err := envoyspec.BoundsFor(len(c.shares))
		if err != nil {
			return false // not with as few pods as check lets through
		}
		c.weights = append(c.weights[:0], make([]uint32, len(c.shares))...)
		bounds.Weights(c.weights, c.shares, c.dither)
	}
	for k := range d.Endpoints {
		if pod := c.members[k]; !c.w.pods[pod].ejected {
			a.weights[pod] = c.weights[k]
		}
	}
	a.drop = d.DropFraction
	a.settle()
	c.w.tally.pushed()
	c.staleAfter = v.StaleAfter
	now := c.w.now.time()
	wait := c.allowance.Wait(now)
	c.allowance.Use(now, v.ProxyTime)
	c.g.send(a, wait+c.o.PushDelay)
	return true
}
