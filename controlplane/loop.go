package controlplane

import (
	"context"
	"slices"
	"time"

	"steelyard/internal/api"
	"steelyard/weighting"
	"steelyard/weighting/flight"
	"steelyard/weighting/push"
)

// Run decides and publishes until ctx is done. A change wakes it at once; after a step it pauses for as
// long as the gate says, so that all changes of that time are decided on together.
func (c *Cluster) Run(ctx context.Context) error {
	gate := push.NewGate(c.current().Push)
	c.stepping.Lock()
	c.gate = gate
	c.stepping.Unlock()
	defer c.publishNeutral(gate)
	timer := time.NewTimer(c.pacer.wait())
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.pacer.sooner:
		case <-timer.C:
			c.pacer.begin()
			c.activity.Begin()
			pause := c.step(gate, time.Now())
			c.activity.End()
			c.pacer.finished(pause)
		}
		timer.Reset(c.pacer.wait())
	}
}

// publishNeutral leaves the proxies with weights that stay safe without updates.
func (c *Cluster) publishNeutral(gate *push.Gate) {
	if v := gate.Neutral(time.Now()); v.Push {
		c.activity.Begin()
		c.publish(v)
		c.activity.End()
	}
}

func (c *Cluster) publish(v push.Verdict) Push {
	p := Push{Reason: v.Reason}
	if p.Version, p.Err = c.publisher.Publish(c.name, v); p.Err != nil {
		p.Reason = ReasonError
	}
	p.Pushed = p.Err == nil
	return p
}

// step decides on the latest reports, and publishes the decision if the gate's verdict is to push.
func (c *Cluster) step(gate *push.Gate, now time.Time) push.Pause {
	c.stepping.Lock()
	defer c.stepping.Unlock()
	began := time.Now()
	gate.SetOptions(c.current().Push)
	verdict := gate.Step(now, c.input(now))
	deciding := time.Since(began)
	p := Push{Reason: verdict.Reason}
	if verdict.Push {
		p = c.publish(verdict)
	}
	pause := gate.Finish(now, push.Outcome{Pushed: p.Pushed, Took: deciding})
	before := c.decided(now, verdict.Decision, p, pause)
	c.observer.Stepped(c.name, before, verdict.Decision, p, time.Since(began))
	return pause
}

// input collects what a step decides on. It reuses its memory, so it is valid until the next call.
func (c *Cluster) input(now time.Time) push.Input {
	in := push.Input{Snapshot: c.snapshot(now), Ready: c.becomeReady(now)}
	c.mu.Lock()
	defer c.mu.Unlock()
	in.Subscribers = c.reporting.Subscribers
	return in
}

// becomeReady reports whether the cluster may be published. Once ready, a cluster
// stays so, whatever fails. A pool without endpoints has nothing to publish; its
// first endpoints begin the first round.
func (c *Cluster) becomeReady(now time.Time) bool {
	c.mu.Lock()
	was, warmUp, endpoints := c.ready, c.options.WarmUp, len(c.endpoints)
	var waiting string
	var waited time.Duration
	if !was && !c.populated.IsZero() {
		waiting, waited = c.waitingFor(), now.Sub(c.populated)
		c.ready = waiting == "" || waited >= warmUp
	}
	ready := c.ready
	c.mu.Unlock()
	switch {
	case was || !ready:
	case waiting == "":
		c.log.Info("ready", "endpoints", endpoints, "after", waited)
	default:
		c.log.Warn("published without a full round of reports", "warm_up", warmUp, "waiting_for", waiting)
	}
	return ready
}

// snapshot returns the cluster as the collectors report it. It is valid until the next call.
func (c *Cluster) snapshot(now time.Time) weighting.Snapshot {
	counts := c.proxies.Counts(c.name, now, c.counted)
	c.counted = counts.Endpoints
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reported(counts)
	c.seen = slices.Grow(c.seen[:0], len(c.endpoints))[:len(c.endpoints)]
	return c.known(now, c.seen)
}

// known returns the cluster by the reports that it has, and changes nothing but the memory for its endpoints. It is
// called with the lock.
func (c *Cluster) known(now time.Time, endpoints []weighting.Endpoint) weighting.Snapshot {
	s := weighting.Snapshot{
		Endpoints:      endpoints,
		PushDelay:      c.publisher.AckDelay(c.name),
		ScrapeInterval: c.options.ScrapeInterval,
		CountInterval:  c.countInterval(),
	}
	for i, e := range c.endpoints {
		r := c.inOrder[i]
		s.Endpoints[i] = weighting.Endpoint{
			Address: e.Address, ID: e.ID, Zone: e.Zone, Capacity: e.Capacity,
			Server: r.server, Refused: r.scrape.Refused && c.options.Scraped, Proxies: r.proxies.Proxies,
		}
		s.Endpoints[i].InFlight, s.Endpoints[i].Exact = c.inFlight(r, now)
		s.Endpoints[i].Override = c.override(e.Address, now)
		if e.Capacity == 0 {
			s.Endpoints[i].Capacity = c.options.Capacity
		}
	}
	return s
}

// reported stores the current reports of the proxies.
func (c *Cluster) reported(counts ProxyCounts) {
	c.rounds++
	for i := range counts.Endpoints {
		e := &counts.Endpoints[i]
		if r := c.record(i, e.Address); r != nil {
			r.proxies, r.round = *e, c.rounds
		}
	}
	for _, r := range c.inOrder {
		if r.round != c.rounds {
			r.proxies = flight.Counts{}
		}
	}
	counts.Endpoints = nil
	c.reporting = counts
}

// record returns the record of an address, nil if there is none. It tries the endpoint with index i first, which is
// usually the one.
func (c *Cluster) record(i int, address string) *record {
	if i < len(c.endpoints) && c.endpoints[i].Address == address {
		return c.inOrder[i]
	}
	return c.records[address]
}

func (c *Cluster) inFlight(r *record, now time.Time) (count weighting.Reading, exact bool) {
	if !c.countsByProxies() {
		return r.inFlight, false
	}
	count, others := r.proxies.InFlight, r.others(&c.options, now).Or(0)
	count.Value += others
	return count, r.proxies.Exact && others == 0 // what others count can leak
}

func (c *Cluster) countInterval() time.Duration {
	if c.countsByProxies() {
		return c.reporting.Interval
	}
	return c.options.CountInterval
}

// decided keeps the decision and its outcome. It returns the previous decision.
func (c *Cluster) decided(
	now time.Time, d weighting.Decision, outcome Push, pause push.Pause,
) (before weighting.Decision) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before, c.decision = c.decision, d
	p := &c.pushes
	p.err, p.pause = outcome.Err, pause
	if outcome.Pushed {
		p.pushed++
		p.at, p.last = now, outcome
	} else {
		p.suppressed++
	}
	return before
}

// override is what the law applies to an endpoint.
func (c *Cluster) override(address string, now time.Time) weighting.Override {
	o, ok := c.overrides[address]
	if !ok || !now.Before(o.Until.Time) {
		return weighting.Override{}
	}
	return weighting.Override{Drained: o.Kind == api.OverrideDrain, Share: o.Share.Or(0)}
}
