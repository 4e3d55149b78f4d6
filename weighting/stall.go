package weighting

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"
)

// health of an endpoint, by how it treats the requests that it has.
type health int

const (
	healthy health = iota
	ejected        // it stalls or fails: flagged, and its share is the floor
	probing        // it was ejected, and nothing shows whether it recovered: trusted as little as a new one
)

// conduct is how an endpoint treats the requests that the proxies sent it.
type outlier struct {
	at       time.Time // of the last step
	inFlight float64   // requests at that time
	proxies  ProxyReport
	server   ServerReport // as the server last said
	lows     lows         // of inFlight

	lastAnswer   time.Time // of the last answer; or the last time when nothing was in flight
	lastProgress time.Time // of the last work: an answer, or what progress sees

	comparedAt   time.Time // the last that was held against the count
	shown        float64   // requests in it, by a gauge of running ones
	notShown     float64   // requests in flight that it did not show
	hidden       float64   // of those, the ones that no report showed while the endpoint worked: uploads, idle streams
	contradicted float64   // the others, as far as they had stood for StalledAfter

	pending float64     // request-seconds in flight since the last answer
	usual   serviceRate // answers, and the request-seconds in flight until the last one
	longest float64     // request-seconds in flight between two answers, the most of late

	latest ends   // since the last step
	streak streak // of errors

	ended, failed float64 // requests of late, without errors that may be the request's own
	consecutive   float64 // requests that failed since one was answered
	failing       bool    // at least half of those that were told of last

	state            health
	since            time.Time // of the state
	reason           string    // why it is ill
	ejections        int       // illnesses without an answer between them
	recovered        bool      // since it fell ill
	proof            proof     // of that, where it takes two
	ejectedForErrors bool      // it fell ill for errors that a log told of
}

// ill reports whether the endpoint stalls or fails.
func (m *member) ejected() bool { return m.outlier.state == ejected }

// rank is 1 for an endpoint that is ill.
func (c *outlier) rank() int {
	if c.state == ejected {
		return 1
	}
	return 0
}

// hold fills up those that stall or fail, so that they get their floor alone, and
// those that get a fixed part instead of what would fill them.
func (p *pool) excludeFromFill(vessels []vessel) {
	const above = 1e6 // a level, far above that of the others
	for i := range p.members {
		if v, m := &vessels[i], &p.members[i]; m.ejected() || m.fixed(p) > 0 {
			v.load = max(v.load, v.holds(above))
		}
	}
}

// judge finds the members that stall or fail. While that is more than half of a
// pool, the fault is more likely in the reports, or in the requests; and so it is where
// one fails no more than all do. And while there is nobody else, those are as good as any.
func (l *Law) detectOutliers(p *pool) {
	longest, suspects, fine := 0.0, 0, 0
	var all ends
	for i := range p.members {
		m := &p.members[i]
		m.outlier.observe(m, p)
		longest = max(longest, m.outlier.longest)
		all.add(m.outlier.latest)
	}
	found := make([]string, len(p.members))
	var shares failures
	for i := range p.members {
		c := &p.members[i].outlier
		c.streak.extend(c.latest, all, p.members[i].share, c.inFlight)
		stall, failure, errors := c.stallReason(p, longest), c.failureReason(), c.errorReason()
		reason := cmp.Or(stall, failure, errors)
		switch {
		case reason == "" && l.panicMode.on && c.failsOften():
			suspects++ // as before its latest answer
		case reason == "" && c.state == healthy:
			fine++
		case reason != "":
			suspects++
			if shares == nil { // of most pools nobody asks
				shares = p.failedShares()
			}
			if stall == "" && !c.failsMoreThan(shares.others(c)) {
				failure = ""
			}
		}
		found[i] = cmp.Or(stall, failure, errors)
		c.ejectedForErrors = c.ejectedForErrors || errors != "" && !c.reportsOnly()
	}
	panicking := l.panicMode.update(len(p.members) > 1 && (2*suspects > len(p.members) || fine == 0), p)
	for i := range p.members {
		m := &p.members[i]
		if panicking {
			found[i] = ""
			m.outlier.endEjection(p.now)
		}
		m.outlier.transition(found[i], p)
		if m.outlier.state == probing && !panicking {
			m.ramp = min(m.ramp, leastRamp)
		}
	}
}

// A pardon says whether nobody is ill because most of the pool seems so. It stands, and stays
// away, as long as a flag does: all flags hang on it, and it may hang on the next request of one
// endpoint that fails every other.
type panicMode struct {
	on    bool
	since time.Time
}

// turn follows what the pool asks for, and reports what holds.
func (a *panicMode) update(on bool, p *pool) bool {
	if on != a.on && (a.since.IsZero() || p.now.Sub(a.since) >= p.params.Overload.MinDwell) {
		a.on, a.since = on, p.now
	}
	return a.on
}

// observe takes in what the proxies and the server say of the endpoint's requests.
// Only of an exact count it can be said that its requests still stand.
func (c *outlier) observe(m *member, p *pool) {
	elapsed := max(0, p.now.Sub(c.at))
	c.pending += c.unanswered() * elapsed.Seconds()
	c.at, c.inFlight = p.now, 0
	if m.Exact && trusted(m.seen.inFlight.state) && !m.blackout {
		c.inFlight = m.inFlight.Value
	}
	failed, errors := risen(c.proxies.Failed, m.proxies.Failed), risen(c.proxies.Errors, m.proxies.Errors)
	c.latest = ends{failed + errors, risen(c.proxies.Succeeded, m.proxies.Succeeded)}
	c.outcomes(failed, max(0, risen(c.proxies.Ended, m.proxies.Ended)-errors), elapsed)
	answers, whole := c.answers(m)
	c.recovered = c.recovered || c.showsRecovery(m, p, answers)
	progress := answers > 0
	if m.server != c.server { // in most steps nothing is new
		progress = progress || c.showsProgress(&m.server)
		c.server = m.server
	}
	if progress {
		c.lastProgress = p.now
		if p.now.Sub(c.comparedAt) <= p.params.Hold {
			c.hidden = c.notShown
		}
	}
	c.proxies = m.proxies
	c.lows.note(c.inFlight, p.now, p.params.Overload.StalledAfter)
	c.compare(m, p)
	c.hidden = min(c.hidden, c.inFlight)
	switch silence := max(0, p.now.Sub(c.lastAnswer)); {
	case whole > rounding:
		c.usual.add(whole, c.pending, silence)
		c.longest = max(c.pending, c.longest*math.Exp(-silence.Seconds()/longestTau.Seconds()))
		fallthrough
	case c.unanswered() < 1 || c.lastAnswer.IsZero():
		c.lastAnswer, c.contradicted, c.pending = p.now, 0, 0
	case answers > 0: // errors, which show that it lives, and not how long a request takes
		c.usual.add(0, 0, silence)
		c.lastAnswer, c.contradicted = p.now, 0
	}
}

// unanswered is how many requests are in flight that an answer is due for, sooner or later.
func (c *outlier) unanswered() float64 { return c.inFlight - c.hidden }

// progress reports whether a server's report shows work that was done since the one before:
// requests that completed, or a KV cache that changes while no request comes or goes.
func (c *outlier) showsProgress(seen *ServerReport) bool {
	old := &c.server
	if risen(old.QueueSeconds, seen.QueueSeconds) > 0 || risen(old.BusySeconds, seen.BusySeconds) > 0 {
		return true
	}
	same := old.Queue.Value == seen.Queue.Value && old.Running.Value == seen.Running.Value && seen.Running.Value > 0
	return same && old.Utilization.Known() && old.Utilization.Value != seen.Utilization.Value
}

// outcomes adds requests that failed, and all that ended, in a time.
func (c *outlier) outcomes(failed, ended float64, elapsed time.Duration) {
	keep := math.Exp(-elapsed.Seconds()/failingTau.Seconds() - ended/failingRequests)
	c.failed, c.ended = c.failed*keep+failed, c.ended*keep+ended
	if c.consecutive += failed; ended-failed > rounding {
		c.consecutive = 0
	}
	if failed+ended > 0 {
		c.failing = failed >= failingShare*ended
	}
}

// logged reports whether all proxies tell how each request ended.
func (m *member) withAccessLog() bool { return m.proxies.Answered.Known() && !m.proxies.Partial }

// answers is how many requests were answered since the last step, and how many of them not
// with an error. A client that gave up ends a request, too, and says nothing for the endpoint.
func (c *outlier) answers(m *member) (all, whole float64) {
	told := risen(c.proxies.Answered, m.proxies.Answered)
	errors := told - c.latest.answered
	if !m.withAccessLog() {
		told, errors = max(told, risen(c.proxies.Ended, m.proxies.Ended)), c.latest.errors
	}
	all = max(told, risen(c.server.Completions, m.server.Completions))
	if !m.proxies.Succeeded.Known() {
		return all, all
	}
	return all, max(0, all-max(0, errors))
}

// proof is what tells together that an endpoint is well.
type proof struct{ succeeded, completed bool }

// serves reports whether the requests since the last step say that the endpoint is well. Load
// reports take an answer with a 404 or 429 for a success; the server completes nothing then. It counts
// what fails otherwise, too, which load reports tell.
func (c *outlier) showsRecovery(m *member, p *pool, answers float64) bool {
	switch {
	case !m.proxies.Succeeded.Known():
		return answers > c.latest.errors+rounding
	case m.withAccessLog():
		return c.latest.answered > c.latest.errors+rounding
	}
	c.proof.succeeded = c.proof.succeeded || c.latest.answered > c.latest.errors+rounding
	c.proof.completed = c.proof.completed || risen(c.server.Completions, m.server.Completions) > 0 || !p.usable(m.server.Completions)
	return c.proof.succeeded && c.proof.completed
}

// risen is by how much a sum rose between two readings.
func risen(old, seen Reading) float64 {
	perSecond, dt := flow(old, seen)
	return orZero(perSecond) * dt.Seconds()
}

// compare holds a report that is new against the requests that were in flight when it was made.
// A server without a gauge of running requests shows those that fit its slots. What a gauge shows
// may be as old as an iteration of the engine, so that a request is denied only once it has stood
// for longer than that.
func (c *outlier) compare(m *member, p *pool) {
	const within = 500 * time.Millisecond
	queue, running := m.server.Queue, m.server.Running
	gauge := running.Known()
	if !gauge && m.slotsSource != CapacityAssumed {
		running = Reading{Value: m.atOnce(), At: queue.At}
	}
	at := earlier(queue.At, running.At)
	if !queue.Known() || !running.Known() || !at.After(c.comparedAt) {
		return
	}
	inFlight, ok := m.inFlightNear(at, within)
	if !ok {
		return
	}
	shows := queue.Value + running.Value
	c.comparedAt, c.notShown, c.shown, c.contradicted = at, max(0, inFlight-shows), 0, 0
	if gauge {
		c.shown = shows
	}
	c.hidden = min(c.hidden, c.notShown)
	if since := at.Add(-p.params.Overload.StalledAfter); !c.lastProgress.After(since) {
		c.contradicted = c.lows.since(since) - shows - c.hidden
	}
}

// Bounds on what is chance.
const (
	// improbable is −ln 1e-4: so many answers would have come since the last one.
	improbable = 9.2
	// sigmas of a share have about that probability.
	sigmas = 3.7
	// meanTimes and twice are for requests that do not end at random, such as a
	// batch of long ones that began together: so many mean times, and so often the
	// longest silence that ended well.
	meanTimes, twice    = 3, 2
	fewestAnswers       = 20 // behind a mean
	fewestEnded         = 5  // behind a share of failures
	failingShare        = 0.5
	failingTau          = 10 * time.Second
	failingRequests     = 50   // requests, if they are fewer than those of that time
	several             = 2    // requests: one that stands is an upload or an idle stream as likely as a stall
	consecutiveFailures = 5    // after which an Envoy may eject it, and nothing more is heard of it
	rounding            = 1e-6 // of differences of sums
	longestTau          = 10 * time.Minute
)

// stalls says how the endpoint stalls; nothing, if it is empty.
func (c *outlier) stallReason(p *pool, longest float64) string {
	const half = 0.5 // of a request: counts come as numbers that may not be whole
	after := p.params.Overload.StalledAfter
	silent := p.now.Sub(c.lastAnswer)
	mean := c.usual.busy / c.usual.completions // seconds that a request is in flight
	switch {
	case after <= 0:
	case c.unanswered() < 1 || min(silent, p.now.Sub(c.lastProgress)) < after:
	case c.contradicted > several-half:
		return fmt.Sprintf("stalled since %s: %.0f in flight, which its own report denies, and none ends", clock(c.lastAnswer), c.contradicted)
	case c.unanswered() < several && c.shown < 1:
	case c.usual.completions >= fewestAnswers && silent.Seconds() >= meanTimes*mean &&
		c.pending >= max(improbable*mean, twice*longest):
		return fmt.Sprintf("stalled since %s: %.0f in flight, and none ends, where one takes %.3g s", clock(c.lastAnswer), c.unanswered(), mean)
	}
	return ""
}

// fails says how the endpoint fails; nothing, if it is empty.
func (c *outlier) failureReason() string {
	switch {
	case c.consecutive >= consecutiveFailures:
		return fmt.Sprintf("failing: the last %.0f requests", c.consecutive)
	case c.failsOften() && c.failing:
		return fmt.Sprintf("failing: %.0f of the last %.0f requests", c.failed, c.attempts())
	}
	return ""
}

// often reports whether it failed at least half of the requests of late.
func (c *outlier) failsOften() bool {
	share, enough := c.failedShare()
	return enough && share >= failingShare
}

// failsMoreThan reports whether what was told of the endpoint's failures is no chance where
// such a share of all requests fails.
func (c *outlier) failsMoreThan(share float64) bool {
	if c.consecutive >= consecutiveFailures && c.consecutive*-math.Log(share) >= improbable {
		return true
	}
	attempts := c.attempts()
	return c.failing && c.failed-share*attempts >= sigmas*math.Sqrt(share*(1-share)*attempts) && share < 1
}

// failures are the shares of their requests that members fail, sorted.
type failures []float64

func (p *pool) failedShares() failures {
	shares := make(failures, 0, len(p.members))
	for i := range p.members {
		if share, enough := p.members[i].outlier.failedShare(); enough {
			shares = append(shares, share)
		}
	}
	slices.Sort(shares)
	return shares
}

// share is that of the requests which failed; false where they are too few.
func (c *outlier) failedShare() (share float64, enough bool) {
	attempts := c.attempts()
	return c.failed / attempts, attempts >= fewestEnded
}

// attempts are the requests of late. One that got no connection failed, and is not among those
// that ended.
func (c *outlier) attempts() float64 { return max(c.ended, c.failed) }

// others is what the others of the pool fail: the median, and none where nothing tells. What
// all of them fail now and then is the fault of the requests, or of how many there are.
func (f failures) others(but *outlier) float64 {
	own, others := len(f), len(f)
	if share, enough := but.failedShare(); enough {
		own, _ = slices.BinarySearch(f, share)
		others--
	}
	if others == 0 {
		return 0
	}
	at := func(k int) float64 {
		if k >= own {
			k++
		}
		return f[k]
	}
	return (at((others-1)/2) + at(others/2)) / 2
}

func clock(t time.Time) string { return t.UTC().Format("15:04:05Z") }

// turn moves the endpoint between the states of health. What is flagged gets no
// requests, so that it may be well again shows only once it is let go: later each
// time that it soon falls ill again.
func (c *outlier) transition(reason string, p *pool) {
	const (
		forgetAfter = time.Minute      // of good health
		probeAfter  = 30 * time.Second // where requests stand on
		doublings   = 5
	)
	held := p.now.Sub(c.since)
	switch {
	case c.state != ejected && reason != "":
		if c.state == healthy && held > forgetAfter {
			c.ejections = 0
		}
		c.ejections = min(c.ejections+1, doublings)
		c.enterState(ejected, p.now)
		c.reason = reason
	case c.state == ejected && held < min(p.params.Overload.MinDwell, time.Hour)<<(c.ejections-1):
	case c.state == ejected && reason == "" && c.recovered:
		c.enterState(healthy, p.now)
	case c.state == ejected && (c.inFlight < 1 || held >= probeAfter<<(c.ejections-1)):
		c.probe(p.now)
	case c.state == probing && c.recovered:
		c.enterState(healthy, p.now)
	}
}

// try lets an endpoint go that was ill, to see how it is now.
func (c *outlier) probe(now time.Time) {
	c.enterState(probing, now)
	c.lastAnswer, c.contradicted, c.pending, c.hidden = now, 0, 0, max(0, c.inFlight-c.shown) // what stands is no news
	c.ended, c.failed, c.consecutive, c.failing = 0, 0, 0, false
	c.streak = streak{}
}

// release ends an illness at once, and forgives it: the fault was another's. What told of
// it stands until an answer does away with it: else the pool would seem well a moment later, and
// the same would be flagged again and again.
func (c *outlier) endEjection(now time.Time) {
	c.ejections = 0
	if c.state == ejected {
		c.enterState(probing, now)
	}
}

func (c *outlier) enterState(s health, now time.Time) {
	c.state, c.since, c.recovered, c.proof = s, now, false, proof{}
	c.ejectedForErrors = c.ejectedForErrors && s != healthy
}
