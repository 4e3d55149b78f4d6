package push

import (
	"math"
	"slices"
	"time"

	"steelyard/weighting"
)

// Options are the settings of one cluster.
type Options struct {
	Params weighting.Params
	Budget Budget
	// Deadband is the change of the shares, as total variation 0..1, up to which nothing is pushed.
	Deadband float64
	// Heartbeat is the longest time without a push; 0 is no limit.
	Heartbeat time.Duration
	// StaleAfter is how long the proxies may use an assignment; 0 is for ever.
	StaleAfter time.Duration
}

// Reasons of a verdict.
const (
	ReasonChanged    = "changed"    // the shares moved by more than the deadband, or StaleAfter changed
	ReasonMembership = "membership" // an endpoint came, went or moved to another zone; also the first push
	ReasonOverload   = "overload"   // an overload flag was raised or lowered
	ReasonOverride   = "override"   // what an operator decided about an endpoint changed
	ReasonDrop       = "drop"       // the drop fraction changed
	ReasonHeartbeat  = "heartbeat"  // nothing was pushed for a heartbeat

	ReasonDeadband = "deadband"  // not pushed: the shares changed by no more than the deadband
	ReasonRecent   = "recent"    // not pushed: the shares in force are too recent to be replaced by others
	ReasonBudget   = "budget"    // not pushed: the change gains less than the budget asks for at present
	ReasonNotReady = "not ready" // not pushed: not ready, or no endpoints and none ever pushed
)

// An Input is what a step decides on.
type Input struct {
	weighting.Snapshot // PushPeriod 0: that of the gate
	Subscribers        Subscribers
	// Ready means that enough is known for a first push.
	Ready bool
}

// A Verdict is a decision and whether it is pushed.
type Verdict struct {
	Decision   weighting.Decision
	Push       bool
	Reason     string        // of the push, or why there is none
	StaleAfter time.Duration // Options.StaleAfter, stretched to what the budgets sustain
	// Members means that the push is also due where proxies get the endpoints without their weights: they changed, one
	// began or ceased to fail or to be drained, or a minute has passed, for a proxy that refused the push before.
	Members bool
	// ProxyTime is what the push uses of the Allowance of each proxy that gets it.
	ProxyTime time.Duration
}

// An Outcome is what happened to a verdict.
type Outcome struct {
	Pushed bool          // it was to be pushed, and was
	Took   time.Duration // computing the step
}

// MaxIdle is the longest time from the end of a pause to the next step. A step follows at once when something
// is new; where nothing is, the ages of the reports still change what the law decides.
const MaxIdle = 250 * time.Millisecond

// A Pause is how long to wait for the next step.
type Pause struct {
	Rest time.Duration // whatever happens
	// IdleRest is how much longer to wait while no proxy reports requests, so that the first request of an idle cluster
	// need not wait until a heartbeat is paid for.
	IdleRest time.Duration
	// Interval is the time from one push to the next that the budgets sustain at present, and Limit
	// what sets it.
	Interval time.Duration
	Limit    string
}

// A Gate is the law of one cluster and what of its decisions is in force. It is not safe for
// concurrent use: one loop steps it.
type Gate struct {
	options  Options
	law      *weighting.Law
	bucket   bucket
	effort   effort
	interval time.Duration // of the last pause
	decision weighting.Decision
	inForce  *inForce      // nil before the first push
	members  *inForce      // the same of the last push with Verdict.Members
	pending  *inForce      // the verdict of the step that is not finished, nil where it is no push
	terms    terms         // of that step
	gather   time.Duration // of that step
	held     bool          // the decision of that step was not pushed
}

// NewGate starts a gate that has seen nothing.
func NewGate(o Options) *Gate {
	return &Gate{options: o, law: weighting.NewLaw(o.Params)}
}

// SetOptions changes the settings and keeps all that was learned.
func (g *Gate) SetOptions(o Options) {
	g.options = o
	g.law.SetParams(o.Params)
}

// Step decides on the input and judges the decision. Finish must follow, before the next Step.
func (g *Gate) Step(now time.Time, in Input) Verdict {
	g.terms = g.options.Budget.terms(in.Subscribers, len(in.Endpoints))
	g.gather = gather(&in.Snapshot)
	if in.PushPeriod == 0 {
		in.PushPeriod = max(g.terms.floor, g.interval)
	}
	in.Held = g.held
	g.decision = g.law.Step(now, in.Snapshot)
	return g.verdict(now, g.decision, in.Ready)
}

// Decided is when the latest decision was made; zero before the first.
func (g *Gate) Decided() time.Time { return g.decision.At }

// Preview is what the law would decide with other parameters and another snapshot. It changes nothing.
func (g *Gate) Preview(now time.Time, p weighting.Params, s weighting.Snapshot) weighting.Decision {
	law := g.law.Clone()
	law.SetParams(p)
	if s.PushPeriod == 0 {
		s.PushPeriod = max(g.terms.floor, g.interval)
	}
	s.Held = g.held
	return law.Step(now, s)
}

// Neutral is the last verdict of a control plane that stops: each endpoint gets its part of the capacity, none is
// flagged for its load and nothing is dropped. Weights that are not renewed would go on sending the requests to the
// endpoint that was idle last. It is pushed even if it is already in force, so that it goes stale late.
func (g *Gate) Neutral(now time.Time) Verdict {
	v := g.verdict(now, g.decision.Neutral(), g.inForce != nil)
	if g.inForce != nil && !v.Push {
		v.Push, v.Reason = true, ReasonHeartbeat
	}
	return v
}

func (g *Gate) verdict(now time.Time, d weighting.Decision, ready bool) Verdict {
	v := Verdict{Decision: d, Reason: ReasonNotReady, ProxyTime: g.terms.each}
	var heartbeat time.Duration
	heartbeat, v.StaleAfter = g.terms.stretch(g.options.Heartbeat, g.options.StaleAfter)
	g.pending = nil
	if !ready {
		return v
	}
	if v.Reason, v.Push = g.judge(now, &v, heartbeat); v.Push {
		g.pending = newInForce(now, &v)
		v.Members = g.members.membersDue(g.pending)
		g.pending.members = v.Members
	}
	return v
}

// misplaced is a distance of the shares, as a part of the largest that n endpoints can have, 1 − 1/n from even shares:
// beyond it they are replaced however long they should last. Shares for some milliseconds may send nearly all to one
// endpoint, and must not stay for a second when the horizon becomes one of seconds.
const misplaced = 0.75

// judge returns whether the verdict's decision is to be pushed, and why.
func (g *Gate) judge(now time.Time, v *Verdict, heartbeat time.Duration) (reason string, push bool) {
	last, d := g.inForce, &v.Decision
	if last == nil {
		if len(d.Endpoints) == 0 {
			// Discovery has found no endpoint yet, which is no reason to have proxies drop
			// theirs. After a first push, no endpoints means that they are gone, and that is pushed.
			return ReasonNotReady, false
		}
		return ReasonMembership, true
	}
	same, flagged, overridden, distance := last.compare(d.Endpoints)
	differs := !(distance <= max(0, g.options.Deadband)) // NaN counts as a change, which Publish refuses by name
	since, lasts := now.Sub(last.at), lasting(d.Horizon, v.StaleAfter)
	if distance > misplaced*(1-1/float64(len(d.Endpoints))) {
		lasts = 0
	}
	switch {
	case !same:
		return ReasonMembership, true
	case overridden:
		return ReasonOverride, true
	case flagged:
		return ReasonOverload, true
	case dropChanged(last.drop, d.DropFraction):
		return ReasonDrop, true
	case differs && since >= lasts && g.gains(now, d):
		return ReasonChanged, true
	case last.staleAfter != v.StaleAfter:
		return ReasonChanged, true
	case heartbeat > 0 && since >= max(heartbeat, lasts):
		return ReasonHeartbeat, true
	case differs && since >= lasts:
		return ReasonBudget, false
	case differs:
		return ReasonRecent, false
	}
	return ReasonDeadband, false
}

// lasting returns how long the shares of a decision stay in force at least: for as much as the horizon exceeds a
// second, up to a second. A proxy's scheduler visits each endpoint as often as its weight says, and starts over with
// every push. So where a decision is good for seconds, frequent pushes gain nothing and cost evenness: with one push a
// second instead of five, p99 and mean of the engines' time to the first token are 0.93 of what they were.
func lasting(horizon, staleAfter time.Duration) time.Duration {
	const second, pushes = time.Second, 3 // two may be late
	lasts := min(max(0, horizon-second), second)
	if staleAfter > 0 {
		lasts = min(lasts, staleAfter/pushes)
	}
	return lasts
}

// gains reports whether a change of the shares gains what the budget asks for.
func (g *Gate) gains(now time.Time, d *weighting.Decision) bool {
	least := g.bucket.leastGain(now, g.terms)
	return least <= 0 || !(d.Gain(g.inForce.shares) < least)
}

// Finish ends a step with what became of its verdict. One that could not be pushed is not in force, so
// that the next step finds the same difference again.
func (g *Gate) Finish(now time.Time, o Outcome) Pause {
	const idle = 9 // times what a step takes
	g.held = !(o.Pushed && g.pending != nil)
	if !g.held {
		g.inForce = g.pending
		if g.pending.members {
			g.members = g.pending
		}
		g.bucket.pushed(now, g.terms)
	}
	g.pending = nil
	pause := Pause{Rest: max(g.terms.floor, idle*g.effort.record(o.Took), g.gather)}
	pause.Interval, pause.Limit = g.bucket.interval(now, g.terms)
	g.interval = pause.Interval
	if !o.Pushed {
		return pause
	}
	afterPush := g.bucket.rest(now, g.terms)
	longest := max(pause.Rest, afterPush)
	if g.terms.idle { // traffic would bring another CPU budget
		afterPush = max(g.terms.floor, g.terms.bytes)
	}
	pause.Rest = max(pause.Rest, afterPush)
	pause.IdleRest = longest - pause.Rest
	return pause
}

// dropResolution is the smallest change of a drop fraction that is pushed for its own sake. The
// fraction follows a mean over the pool and so moves with every decision; without a resolution every
// decision would be a push.
const dropResolution = 0.001

func dropChanged(was, is float64) bool {
	return (was == 0) != (is == 0) || !(math.Abs(was-is) < dropResolution)
}

// inForce is what was pushed last.
type inForce struct {
	at         time.Time
	endpoints  []endpoint // sorted by address, as decisions are
	shares     []float64  // of the endpoints
	drop       float64
	staleAfter time.Duration
	members    bool // Verdict.Members
}

type endpoint struct {
	address, zone   string
	overloaded, out bool
	override        weighting.Override
}

func newInForce(now time.Time, v *Verdict) *inForce {
	n := len(v.Decision.Endpoints)
	f := &inForce{
		at: now, drop: v.Decision.DropFraction, staleAfter: v.StaleAfter,
		endpoints: make([]endpoint, n), shares: make([]float64, n),
	}
	for i := range v.Decision.Endpoints {
		e := &v.Decision.Endpoints[i]
		f.endpoints[i], f.shares[i] = endpoint{e.Address, e.Zone, e.Overloaded, e.Out(), e.Override}, e.Share
	}
	return f
}

// compare reports whether the endpoints are those in force, and if so, whether an overload flag
// or an override changed, and the total variation distance of the shares.
func (f *inForce) compare(
	endpoints []weighting.EndpointDecision,
) (same, flagged, overridden bool, distance float64) {
	if len(endpoints) != len(f.endpoints) {
		return false, false, false, 0
	}
	for i := range endpoints {
		e, was := &endpoints[i], &f.endpoints[i]
		if e.Address != was.address || e.Zone != was.zone {
			return false, false, false, 0
		}
		overridden = overridden || was.override != e.Override
		flagged = flagged || was.overloaded != e.Overloaded
		distance += math.Abs(e.Share-f.shares[i]) / 2
	}
	return true, flagged, overridden, distance
}

// membersDue reports whether the endpoints of the next push are due without their weights, too.
func (f *inForce) membersDue(next *inForce) bool {
	const repeat = time.Minute
	return f == nil || next.at.Sub(f.at) >= repeat ||
		!slices.EqualFunc(f.endpoints, next.endpoints, func(a, b endpoint) bool {
			return a.address == b.address && a.zone == b.zone && a.out == b.out &&
				a.override.Drained == b.override.Drained
		})
}

// gather is how long to wait for more readings before the next step where the loads come from scrapes only: no
// endpoint has a count of its requests in flight. Of many endpoints there is always a new reading, and each by itself
// changes little. (In the simulator, the wait at the 99th percentile with 100 endpoints is 0.4 % ± 2 % longer.)
// Whatever else is new waits no longer than it would for a step without a reading.
func gather(s *weighting.Snapshot) time.Duration {
	const part = 20 // of the endpoints, and of the interval in which all of them are read
	counted := func(e weighting.Endpoint) bool { return e.InFlight.Known() }
	if len(s.Endpoints) <= part || slices.ContainsFunc(s.Endpoints, counted) {
		return 0
	}
	return min(s.ScrapeInterval/part, MaxIdle)
}

// An effort is what a step costs: the least that any of the recent ones took. On a busy machine a step
// is interrupted now and then, and takes longer than it costs; resting in proportion would make a
// control plane that is short of CPU ten times as slow.
type effort struct {
	recent [16]time.Duration
	steps  int
}

// record notes what a step took, and returns the effort.
func (e *effort) record(took time.Duration) time.Duration {
	e.recent[e.steps%len(e.recent)] = took
	e.steps++
	least := took
	for _, t := range e.recent[:min(e.steps, len(e.recent))] {
		least = min(least, t)
	}
	return least
}
