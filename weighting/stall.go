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
	well    health = iota
	ill            // stalls or fails: flagged, and its share is the floor
	suspect        // was ill, and nothing tells whether it still is: trusted as little as a new one
)

// conduct is how an endpoint treats the requests that the proxies sent it.
type conduct struct {
	at       time.Time // of the last step
	inFlight float64   // requests at that time
	proxies  ProxyReport
	server   ServerReport // as the server last said
	lows     lows         // of inFlight

	alive  time.Time // of the last answer; or the last time when nothing was in flight
	active time.Time // of the last work: an answer, or what works sees

	report time.Time // the last that was held against the count
	shown  float64   // requests in it, by a gauge of running ones
	hides  float64   // requests in flight that it did not show
	hidden float64   // of those, the ones that no report showed while the endpoint worked: uploads, idle streams
	denied float64   // the others, as far as they had stood for StalledAfter

	pending float64 // request-seconds in flight since the last answer
	usual   work    // answers, and the request-seconds in flight until the last one
	longest float64 // request-seconds in flight between two answers, the most of late

	latest ends   // since the last step
	streak streak // of errors

	ended, failed float64 // requests of late, without errors that may be the request's own
	row           float64 // requests that failed since one was answered
	failing       bool    // at least half of those that were told of last

	state    health
	since    time.Time // of the state
	reason   string    // why it is ill
	strikes  int       // illnesses without an answer between them
	answered bool      // since it fell ill
	proof    proof     // of that, where it takes two
	erring   bool      // it fell ill for errors that a log told of
}

// ill reports whether the endpoint stalls or fails.
func (m *member) ill() bool { return m.conduct.state == ill }

// rank is 1 for an endpoint that is ill.
func (c *conduct) rank() int {
	if c.state == ill {
		return 1
	}
	return 0
}

// hold fills up those that stall or fail, so that they get their floor alone, and
// those that get a fixed part instead of what would fill them.
func (p *pool) hold(vessels []vessel) {
	const above = 1e6 // a level, far above that of the others
	for i := range p.members {
		if v, m := &vessels[i], &p.members[i]; m.ill() || m.fixed(p) > 0 {
			v.load = max(v.load, v.holds(above))
		}
	}
}

// judge finds the members that stall or fail. While that is more than half of a
// pool, the fault is more likely in the reports, or in the requests; and so it is where
// one fails no more than all do. And while there is nobody else, those are as good as any.
func (l *Law) judge(p *pool) {
	longest, bad, well := 0.0, 0, 0
	var all ends
	for i := range p.members {
		m := &p.members[i]
		m.conduct.observe(m, p)
		longest = max(longest, m.conduct.longest)
		all.add(m.conduct.latest)
	}
	found := make([]string, len(p.members))
	var shares failures
	for i := range p.members {
		c := &p.members[i].conduct
		c.streak.extend(c.latest, all, p.members[i].share, c.inFlight)
		stalls, fails, errs := c.stalls(p, longest), c.fails(), c.errs()
		complaint := cmp.Or(stalls, fails, errs)
		switch {
		case complaint == "" && l.pardon.on && c.often():
			bad++ // as before its latest answer
		case complaint == "" && c.healthy():
			well++
		case complaint != "":
			bad++
			if shares == nil { // of most pools nobody asks
				shares = p.failed()
			}
			if stalls == "" && !c.failsMoreThan(shares.others(c)) {
				fails = ""
			}
		}
		found[i] = cmp.Or(stalls, fails, errs)
		c.erring = c.erring || errs != "" && !c.unlogged()
	}
	nobody := l.pardon.turn(len(p.members) > 1 && (2*bad > len(p.members) || well == 0), p)
	for i := range p.members {
		m := &p.members[i]
		if nobody {
			found[i] = ""
			m.conduct.release(p.now)
		}
		m.conduct.turn(found[i], p)
		if m.conduct.state == suspect && !nobody {
			m.ramp = min(m.ramp, leastRamp)
		}
	}
}

// A pardon says whether nobody is ill because most of the pool seems so. It stands, and stays
// away, as long as a flag does: all flags hang on it, and it may hang on the next request of one
// endpoint that fails every other.
type pardon struct {
	on    bool
	since time.Time
}

// turn follows what the pool asks for, and reports what holds.
func (a *pardon) turn(on bool, p *pool) bool {
	if on != a.on && (a.since.IsZero() || p.now.Sub(a.since) >= p.params.Overload.MinDwell) {
		a.on, a.since = on, p.now
	}
	return a.on
}

// observe takes in what the proxies and the server say of the endpoint's requests.
// Only of an exact count it can be said that its requests still stand.
func (c *conduct) observe(m *member, p *pool) {
	elapsed := max(0, p.now.Sub(c.at))
	c.pending += c.unanswered() * elapsed.Seconds()
	c.at, c.inFlight = p.now, 0
	if m.Exact && believed(m.seen.inFlight.state) && !m.blackout {
		c.inFlight = m.inFlight.Value
	}
	failed, errors := risen(c.proxies.Failed, m.proxies.Failed), risen(c.proxies.Errors, m.proxies.Errors)
	c.latest = ends{failed + errors, risen(c.proxies.Succeeded, m.proxies.Succeeded)}
	c.outcomes(failed, max(0, risen(c.proxies.Ended, m.proxies.Ended)-errors), elapsed)
	answers, whole := c.answers(m)
	c.answered = c.answered || c.serves(m, p, answers)
	works := answers > 0
	if m.server != c.server { // in most steps nothing is new
		works = works || c.works(&m.server)
		c.server = m.server
	}
	if works {
		c.active = p.now
		if p.now.Sub(c.report) <= p.params.Hold {
			c.hidden = c.hides
		}
	}
	c.proxies = m.proxies
	c.lows.note(c.inFlight, p.now, p.params.Overload.StalledAfter)
	c.compare(m, p)
	c.hidden = min(c.hidden, c.inFlight)
	switch silence := max(0, p.now.Sub(c.alive)); {
	case whole > rounding:
		c.usual.add(whole, c.pending, silence)
		c.longest = max(c.pending, c.longest*math.Exp(-silence.Seconds()/longestTau.Seconds()))
		fallthrough
	case c.unanswered() < 1 || c.alive.IsZero():
		c.alive, c.denied, c.pending = p.now, 0, 0
	case answers > 0: // errors, which show that it lives, and not how long a request takes
		c.usual.add(0, 0, silence)
		c.alive, c.denied = p.now, 0
	}
}

// unanswered is how many requests are in flight that an answer is due for, sooner or later.
func (c *conduct) unanswered() float64 { return c.inFlight - c.hidden }

// works reports whether a server's report shows work that was done since the one before:
// requests that completed, or a KV cache that changes while no request comes or goes.
func (c *conduct) works(seen *ServerReport) bool {
	old := &c.server
	if risen(old.QueueSeconds, seen.QueueSeconds) > 0 || risen(old.BusySeconds, seen.BusySeconds) > 0 {
		return true
	}
	same := old.Queue.Value == seen.Queue.Value && old.Running.Value == seen.Running.Value && seen.Running.Value > 0
	return same && old.Utilization.Known() && old.Utilization.Value != seen.Utilization.Value
}

// outcomes adds requests that failed, and all that ended, in a time.
func (c *conduct) outcomes(failed, ended float64, elapsed time.Duration) {
	keep := math.Exp(-elapsed.Seconds()/failingTau.Seconds() - ended/failingOf)
	c.failed, c.ended = c.failed*keep+failed, c.ended*keep+ended
	if c.row += failed; ended-failed > rounding {
		c.row = 0
	}
	if failed+ended > 0 {
		c.failing = failed >= failing*ended
	}
}

// logged reports whether all proxies tell how each request ended.
func (m *member) logged() bool { return m.proxies.Answered.Known() && !m.proxies.Partial }

// answers is how many requests were answered since the last step, and how many of them not
// with an error. A client that gave up ends a request, too, and says nothing for the endpoint.
func (c *conduct) answers(m *member) (all, whole float64) {
	told := risen(c.proxies.Answered, m.proxies.Answered)
	errors := told - c.latest.answered
	if !m.logged() {
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
func (c *conduct) serves(m *member, p *pool, answers float64) bool {
	switch {
	case !m.proxies.Succeeded.Known():
		return answers > c.latest.errors+rounding
	case m.logged():
		return c.latest.answered > c.latest.errors+rounding
	}
	c.proof.succeeded = c.proof.succeeded || c.latest.answered > c.latest.errors+rounding
	c.proof.completed = c.proof.completed || risen(c.server.Completions, m.server.Completions) > 0 || !p.tells(m.server.Completions)
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
func (c *conduct) compare(m *member, p *pool) {
	const within = 500 * time.Millisecond
	queue, running := m.server.Queue, m.server.Running
	gauge := running.Known()
	if !gauge && m.slotsSource != CapacityAssumed {
		running = Reading{Value: m.atOnce(), At: queue.At}
	}
	at := earlier(queue.At, running.At)
	if !queue.Known() || !running.Known() || !at.After(c.report) {
		return
	}
	inFlight, ok := m.inFlightNear(at, within)
	if !ok {
		return
	}
	shows := queue.Value + running.Value
	c.report, c.hides, c.shown, c.denied = at, max(0, inFlight-shows), 0, 0
	if gauge {
		c.shown = shows
	}
	c.hidden = min(c.hidden, c.hides)
	if since := at.Add(-p.params.Overload.StalledAfter); !c.active.After(since) {
		c.denied = c.lows.since(since) - shows - c.hidden
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
	meanTimes, twice = 3, 2
	fewestAnswers    = 20 // behind a mean
	fewestEnded      = 5  // behind a share of failures
	failing          = 0.5
	failingTau       = 10 * time.Second
	failingOf        = 50   // requests, if they are fewer than those of that time
	several          = 2    // requests: one that stands is an upload or an idle stream as likely as a stall
	failedInARow     = 5    // after which an Envoy may eject it, and nothing more is heard of it
	rounding         = 1e-6 // of differences of sums
	longestTau       = 10 * time.Minute
)

// stalls says how the endpoint stalls; nothing, if it is empty.
func (c *conduct) stalls(p *pool, longest float64) string {
	const half = 0.5 // of a request: counts come as numbers that may not be whole
	after := p.params.Overload.StalledAfter
	silent := p.now.Sub(c.alive)
	mean := c.usual.busy / c.usual.completions // seconds that a request is in flight
	switch {
	case after <= 0:
	case c.unanswered() < 1 || min(silent, p.now.Sub(c.active)) < after:
	case c.denied > several-half:
		return fmt.Sprintf("stalled since %s: %.0f in flight, which its own report denies, and none ends", clock(c.alive), c.denied)
	case c.unanswered() < several && c.shown < 1:
	case c.usual.completions >= fewestAnswers && silent.Seconds() >= meanTimes*mean &&
		c.pending >= max(improbable*mean, twice*longest):
		return fmt.Sprintf("stalled since %s: %.0f in flight, and none ends, where one takes %.3g s", clock(c.alive), c.unanswered(), mean)
	}
	return ""
}

// fails says how the endpoint fails; nothing, if it is empty.
func (c *conduct) fails() string {
	switch {
	case c.row >= failedInARow:
		return fmt.Sprintf("failing: the last %.0f requests", c.row)
	case c.often() && c.failing:
		return fmt.Sprintf("failing: %.0f of the last %.0f requests", c.failed, c.attempts())
	}
	return ""
}

// often reports whether it failed at least half of the requests of late.
func (c *conduct) often() bool {
	share, told := c.share()
	return told && share >= failing
}

// failsMoreThan reports whether what was told of the endpoint's failures is no chance where
// such a share of all requests fails.
func (c *conduct) failsMoreThan(share float64) bool {
	if c.row >= failedInARow && c.row*-math.Log(share) >= improbable {
		return true
	}
	attempts := c.attempts()
	return c.failing && c.failed-share*attempts >= sigmas*math.Sqrt(share*(1-share)*attempts) && share < 1
}

// failures are the shares of their requests that members fail, sorted.
type failures []float64

func (p *pool) failed() failures {
	shares := make(failures, 0, len(p.members))
	for i := range p.members {
		if share, told := p.members[i].conduct.share(); told {
			shares = append(shares, share)
		}
	}
	slices.Sort(shares)
	return shares
}

// share is that of the requests which failed; false where they are too few.
func (c *conduct) share() (share float64, told bool) {
	attempts := c.attempts()
	return c.failed / attempts, attempts >= fewestEnded
}

// attempts are the requests of late. One that got no connection failed, and is not among those
// that ended.
func (c *conduct) attempts() float64 { return max(c.ended, c.failed) }

// others is what the others of the pool fail: the median, and none where nothing tells. What
// all of them fail now and then is the fault of the requests, or of how many there are.
func (f failures) others(but *conduct) float64 {
	own, others := len(f), len(f)
	if share, told := but.share(); told {
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
func (c *conduct) turn(complaint string, p *pool) {
	const (
		forgiven   = time.Minute      // of good health
		probeAfter = 30 * time.Second // where requests stand on
		doublings  = 5
	)
	held := p.now.Sub(c.since)
	switch {
	case c.state != ill && complaint != "":
		if c.state == well && held > forgiven {
			c.strikes = 0
		}
		c.strikes = min(c.strikes+1, doublings)
		c.enter(ill, p.now)
		c.reason = complaint
	case c.state == ill && held < min(p.params.Overload.MinDwell, time.Hour)<<(c.strikes-1):
	case c.state == ill && complaint == "" && c.answered:
		c.enter(well, p.now)
	case c.state == ill && (c.inFlight < 1 || held >= probeAfter<<(c.strikes-1)):
		c.try(p.now)
	case c.state == suspect && c.answered:
		c.enter(well, p.now)
	}
}

// try lets an endpoint go that was ill, to see how it is now.
func (c *conduct) try(now time.Time) {
	c.enter(suspect, now)
	c.alive, c.denied, c.pending, c.hidden = now, 0, 0, max(0, c.inFlight-c.shown) // what stands is no news
	c.ended, c.failed, c.row, c.failing = 0, 0, 0, false
	c.streak = streak{}
}

// release ends an illness at once, and forgives it: the fault was another's. What told of
// it stands until an answer does away with it: else the pool would seem well a moment later, and
// the same would be flagged again and again.
func (c *conduct) release(now time.Time) {
	c.strikes = 0
	if c.state == ill {
		c.enter(suspect, now)
	}
}

// healthy is said of an endpoint that neither is ill nor was until now.
func (c *conduct) healthy() bool { return c.state == well }

func (c *conduct) enter(s health, now time.Time) {
	c.state, c.since, c.answered, c.proof = s, now, false, proof{}
	c.erring = c.erring && s != well
}
