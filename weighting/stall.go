package weighting

// Outliers: endpoints that stall or fail
//
// An endpoint that takes requests and answers none, or answers each at once with an error, looks idle and attracts what
// the others would have served. Its own report does not show that. The proxies' counts do, where they are exact:
//
//	progress        an answer; or completions, tokens generated, or seconds waited or executed, that rose; or a
//	                KV cache that changed while the numbers waiting and running did not
//	contradiction   two requests or more have been in flight for StalledAfter that a report made after that
//	                time does not show (without a gauge of running requests: more than waiting and slots),
//	                besides those that the endpoint did not show before its last progress, and it made no
//	                progress in that time; a gauge that showed only 0 while requests completed is no evidence
//	silence         F ≥ 9.2 · f and F ≥ 2 · F_max, and no answer and no progress in StalledAfter,
//	                and two requests are in flight or a gauge shows one
//	                F      request-seconds in flight since the last answer, without requests that
//	                       no report showed while the endpoint made progress
//	                f      request-seconds in flight for each answer, over about a minute
//	                F_max  the largest F that ended with an answer, in the pool, fading
//	                       within ten minutes
//	standstill      a report shows two requests or more, and nothing that counts as progress follows for
//	                StalledAfter plus half of the longest pause of any endpoint in the last minutes; and at least
//	                forty reports are known, by which as many in a row without progress have a probability below
//	                1e-4
//	failure         five requests in a row failed; or at least half, and five, of the last fifty or of those of
//	                the last ten seconds, whichever are fewer, and of those that ended last;
//	                and that is significant, given the median share q that the others fail: q to the power of
//	                those in a row is 1e-4 at most, or the failures are 3.7 standard deviations more than
//	                q of the requests
//	errors          see errors.go
//
// If ends were a Poisson process, silence of F would have the probability exp(−F/f): 9.2 is 1e-4. Requests that began
// together end together, and long ones come in runs, so F must also be twice as long as any silence that ended well.
//
// Slow uploads, idle WebSockets and open gRPC streams are in flight and are no work of the engine, and gauges lag by an
// iteration. So one request that no gauge shows is never evidence, several are none if they were there while the
// endpoint made progress, and none is before it is older than a gauge may be. Where an endpoint has nothing but
// uploads, contradiction and silence wait until the bodies must have come, by their content-lengths, as long as they
// are fewer than five; one without a content-length may take an hour.
//
// A failure is the endpoint's own: no connection, a reset, a 5xx.
//
// An ejected endpoint is flagged and gets its floor, for MinDwell at least. An answer without an error ends the
// ejection. Where proxies send load reports only, which count a 4xx as a success, the server must also have completed
// something, and an endpoint that was ejected for errors gets a trickle until then. Once nothing is in flight that
// could be answered, the endpoint is probed after the dwell: it is trusted as little as a new one. While old requests
// are still in flight it is probed later, and they do not count again. If it is ejected again at once, it is probed
// twice as late the next time.
//
// While more than half of a pool seems to be outliers, the fault is more likely in the reports or in the requests, so
// no endpoint is ejected; nor while none is healthy. This panic mode lasts for MinDwell at least, and until fewer
// endpoints fail half of their requests.

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

// outlier is the state of outlier detection at one endpoint: how it treats the requests that the proxies sent it.
type outlier struct {
	at       time.Time // of the last step
	inFlight float64   // requests at that time
	lows     lows      // of inFlight

	lastAnswer   time.Time // of the last answer; or the last time when nothing was in flight
	lastProgress time.Time // of an answer, or of what showsProgress finds
	lastWork     time.Time // the same without errors

	comparedAt   time.Time // of the last report that was compared with the count
	shown        float64   // requests in that report, where it has a gauge of running ones
	notShown     float64   // requests in flight that the report did not show
	hidden       float64   // of those, the ones that were there during progress: uploads, idle streams
	contradicted float64   // the others, as far as they had been in flight for StalledAfter

	shownNone  bool          // that report shows none, by a gauge that is no constant
	sentBefore begun         // what had been sent when nothing was unanswered, or twenty requests ago and more
	uploads    time.Duration // what was sent since may be under way to the endpoint for so long

	moved bool      // it did some work since that report
	still time.Time // when the last report was made that followed work
	busy  still     // how often reports show requests and no progress
	pause highest   // seconds without progress that ended with some, while requests were shown

	pending float64     // request-seconds in flight since the last answer
	usual   serviceRate // answers, and the request-seconds in flight until the last one
	longest float64     // request-seconds in flight between two answers, the most in about ten minutes

	latest ends   // since the last step
	streak streak // of errors

	ended, failed float64 // recent requests, without errors that may be the request's own
	consecutive   float64 // requests that failed since the last one that did not
	failing       bool    // at least half of those that were reported last

	state            health
	since            time.Time // of the state
	reason           string    // of the ejection
	began            time.Time // of the trouble: since then the endpoint has not been healthy
	ejections        int       // in a row, without recovery between them
	recovered        bool      // since the last change of the state
	proof            proof     // of recovery, where that takes two
	ejectedForErrors bool      // for errors that an access log reported
	reportsOnly      bool      // the proxies report errors by load reports only, which count a 4xx as a success
}

// ejected reports whether the endpoint stalls or fails.
func (m *member) ejected() bool { return m.outlier.state == ejected }

// rank is 1 for an ejected endpoint.
func (o *outlier) rank() int {
	if o.state == ejected {
		return 1
	}
	return 0
}

// excludedLevel is far above that of members that are filled.
const excludedLevel = 1e6

// excludeFromFill fills up the ejected members, so that they get only their floor, and those that get a fixed share
// instead of a fill.
func (p *pool) excludeFromFill(vessels []Vessel) {
	for i := range p.members {
		if v, m := &vessels[i], &p.members[i]; m.ejected() || m.fixed(p) > 0 || m.overridden() {
			v.Load = max(v.Load, v.holds(excludedLevel))
		}
	}
}

// trouble is why an endpoint seems to be an outlier, and since when; zero where it does not.
type trouble struct {
	reason string
	since  time.Time
}

// detectOutliers finds the members that stall or fail. While that is more than half of a pool, the fault is more likely
// in the reports or in the requests; the same holds if an endpoint fails no more than the others. If no healthy member
// is left, outliers are as good as any other.
func (l *Law) detectOutliers(p *pool) {
	longest, pause, outliers, healthyMembers := 0.0, 0.0, 0, 0
	var all ends
	for i := range p.members {
		m := &p.members[i]
		m.outlier.observe(m, p)
		longest, pause = max(longest, m.outlier.longest), max(pause, m.outlier.pause.most())
		all.add(m.outlier.latest)
	}
	found := make([]trouble, len(p.members))
	var shares failures
	for i := range p.members {
		o := &p.members[i].outlier
		o.streak.extend(o.latest, all, p.members[i].share, o.inFlight)
		stall, since := o.stall(p, longest, pause)
		failure, errors := o.failureReason(), o.errorReason()
		reason := cmp.Or(stall, failure, errors)
		switch {
		case reason == "" && l.panicMode.on && o.failsOften():
			outliers++ // as before its latest answer
		case reason == "" && o.state == healthy:
			healthyMembers++
		case reason != "":
			outliers++
			if shares == nil { // most pools need none
				shares = p.failedShares()
			}
			if stall == "" && !o.failsMoreThan(shares.others(o)) {
				failure = ""
			}
		}
		if stall == "" {
			since = p.now
		}
		found[i] = trouble{cmp.Or(stall, failure, errors), since}
		o.ejectedForErrors = o.ejectedForErrors || errors != "" && !o.reportsOnly
	}
	panicking := l.panicMode.update(len(p.members) > 1 && (2*outliers > len(p.members) || healthyMembers == 0), p)
	for i := range p.members {
		m := &p.members[i]
		if panicking {
			found[i] = trouble{}
			m.outlier.endEjection(p.now)
		}
		m.outlier.transition(found[i], p)
		if m.outlier.state == probing && !panicking {
			m.ramp, m.probed = min(m.ramp, leastRamp), m.outlier.reason
		}
	}
}

// panicMode is on while most of the pool seems to be outliers, so that no endpoint is ejected. It stays on, and off,
// for as long as a flag does: all flags depend on it, and it may depend on the next request of one endpoint that fails
// every other one.
type panicMode struct {
	on    bool
	since time.Time
}

// update follows what the state of the pool suggests, and returns whether the mode is on.
func (a *panicMode) update(on bool, p *pool) bool {
	if on != a.on && (a.since.IsZero() || p.now.Sub(a.since) >= p.params.Overload.MinDwell) {
		a.on, a.since = on, p.now
	}
	return a.on
}

// observe takes in what the proxies and the server report of the endpoint's requests. Only an exact count shows that
// requests are still in flight.
func (o *outlier) observe(m *member, p *pool) {
	elapsed := max(0, p.now.Sub(o.at))
	o.pending += o.unanswered() * elapsed.Seconds()
	o.at, o.inFlight = p.now, 0
	if m.Exact && trusted(m.seen.inFlight.state) && !m.blackout {
		o.inFlight = m.inFlight.Value
	}
	was := &m.tally.proxies
	failed, errors := risen(was.Failed, m.proxies.Failed), risen(was.Errors, m.proxies.Errors)
	o.latest = ends{failed + errors, risen(was.Succeeded, m.proxies.Succeeded)}
	o.outcomes(failed, max(0, risen(was.Ended, m.proxies.Ended)-errors), elapsed)
	answers, succeeded := o.answers(m)
	o.recovered = o.recovered || o.showsRecovery(m, p, answers)
	progress, worked := answers > 0, succeeded > rounding
	if m.server != m.tally.server { // in most steps the report is the same
		worked = worked || showsProgress(&m.tally.server, &m.server)
	}
	if worked { // errors are no work
		if o.shown >= several {
			o.pause.note(p.now.Sub(o.lastWork).Seconds(), p.now, slotsTau)
		}
		o.lastWork, o.moved = p.now, true
	}
	if progress || worked {
		o.lastProgress = p.now
		if p.now.Sub(o.comparedAt) <= p.params.Hold {
			o.hidden = o.notShown
		}
	}
	o.reportsOnly = m.proxies.Errors.Known() && !m.proxies.Answered.Known()
	o.lows.note(o.inFlight, p.now, p.params.Overload.StalledAfter)
	o.compare(m, p)
	o.hidden = min(o.hidden, o.inFlight)
	switch silence := max(0, p.now.Sub(o.lastAnswer)); {
	case succeeded > rounding:
		o.usual.add(succeeded, o.pending, silence)
		o.longest = max(o.pending, o.longest*math.Exp(-silence.Seconds()/longestTau.Seconds()))
		fallthrough
	case o.unanswered() < 1 || o.lastAnswer.IsZero():
		o.lastAnswer, o.contradicted, o.pending = p.now, 0, 0
	case answers > 0: // errors: the endpoint is alive, and they do not show how long a request takes
		o.usual.add(0, 0, silence)
		o.lastAnswer, o.contradicted = p.now, 0
	}
	o.uploads = o.uploading(m, p)
}

// uploading is for how long all that is unanswered may be uploads, which the endpoint has no part in yet: few requests
// of which no report shows any. How long a body takes follows from its size, on average. Where no request has a size,
// as the log leaves it out or all are gRPC, they are none.
func (o *outlier) uploading(m *member, p *pool) time.Duration {
	const (
		many    = 5       // requests
		recent  = 20      // requests
		slow    = 125_000 // bytes per second of a client: 1 Mbit/s
		longest = time.Hour
	)
	now := m.proxies.begun()
	sent := now.since(&o.sentBefore)
	// Progress is no beginning: a scrape may show it of requests that ended before those that are unanswered began.
	if o.unanswered() < 1 || sent.requests >= recent {
		o.sentBefore = now
		return 0
	}
	fresh := p.now.Sub(o.comparedAt) <= p.params.Hold
	if !o.shownNone || !fresh || o.unanswered() >= many || !m.proxies.withAccessLog() || !(m.proxies.Sized.Value > 0) {
		return 0
	}
	if sent.sized < sent.requests-rounding {
		return longest
	}
	if sent.sized == 0 {
		return 0
	}
	return time.Duration(min(sent.bytes/sent.sized/slow, longest.Seconds()) * float64(time.Second))
}

// unanswered is how many requests are in flight that should get an answer, sooner or later.
func (o *outlier) unanswered() float64 { return o.inFlight - o.hidden }

// showsProgress reports whether a server's report shows work that was done since the one before: requests that
// completed, or a KV cache that changes while no request comes or goes.
func showsProgress(old, seen *ServerReport) bool {
	if risen(old.QueueSeconds, seen.QueueSeconds) > 0 || risen(old.BusySeconds, seen.BusySeconds) > 0 {
		return true
	}
	if d, ok := seen.Tokens.growth(&old.Tokens); ok && d.generated+d.first > 0 {
		return true
	}
	same := old.Queue.Value == seen.Queue.Value && old.Running.Value == seen.Running.Value && seen.Running.Value > 0
	return same && old.Utilization.Known() && old.Utilization.Value != seen.Utilization.Value
}

// outcomes adds requests that failed, and all that ended, in some time.
func (o *outlier) outcomes(failed, ended float64, elapsed time.Duration) {
	keep := math.Exp(-elapsed.Seconds()/failingTau.Seconds() - ended/failingRequests)
	o.failed, o.ended = o.failed*keep+failed, o.ended*keep+ended
	if o.consecutive += failed; ended-failed > rounding {
		o.consecutive = 0
	}
	if failed+ended > 0 {
		o.failing = failed >= failingShare*ended
	}
}

// withAccessLog reports whether all proxies report how each request ended.
func (r *ProxyReport) withAccessLog() bool { return r.Answered.Known() && !r.Partial }

// answers is how many requests were answered since the last step, and how many of them without an error. A client that
// gives up ends a request, too, which shows nothing about the endpoint.
func (o *outlier) answers(m *member) (all, succeeded float64) {
	answered := risen(m.tally.proxies.Answered, m.proxies.Answered)
	errors := answered - o.latest.answered
	if !m.proxies.withAccessLog() {
		answered, errors = max(answered, risen(m.tally.proxies.Ended, m.proxies.Ended)), o.latest.errors
	}
	all = max(answered, risen(m.tally.server.Completions, m.server.Completions))
	if !m.proxies.Succeeded.Known() {
		return all, all
	}
	return all, max(0, all-max(0, errors))
}

// proof is the evidence of recovery where the proxies send load reports only.
type proof struct{ succeeded, completed bool }

// showsRecovery reports whether the requests since the last step show that the endpoint is healthy. Load reports count
// an answer with a 404 or 429 as a success; the server completes nothing then. Servers also count requests that fail
// otherwise, and load reports count those as errors. What ended since the last step is in the access log only if there
// was one then: the last load report may come with the change.
func (o *outlier) showsRecovery(m *member, p *pool, answers float64) bool {
	switch {
	case !m.proxies.Succeeded.Known():
		return answers > o.latest.errors+rounding
	case m.proxies.withAccessLog() && m.tally.proxies.withAccessLog():
		return o.latest.answered > o.latest.errors+rounding
	}
	o.proof.succeeded = o.proof.succeeded || o.latest.answered > o.latest.errors+rounding
	o.proof.completed = o.proof.completed || risen(m.tally.server.Completions, m.server.Completions) > 0 ||
		!p.usable(m.server.Completions)
	return o.proof.succeeded && o.proof.completed
}

// risen is by how much a sum rose between two readings.
func risen(old, seen Reading) float64 {
	perSecond, dt := flow(old, seen)
	return orZero(perSecond) * dt.Seconds()
}

// compare compares a new report with the requests that were in flight when it was made. A server without a gauge of
// running requests shows those that fit its slots. A gauge may be as old as an iteration of the engine, so requests
// contradict it only once they have been in flight for longer than that.
func (o *outlier) compare(m *member, p *pool) {
	const within = 500 * time.Millisecond
	queue, running := m.server.Queue, m.server.Running
	gauge := running.Known()
	if !gauge && m.slotsSource != CapacityAssumed && m.slotsSource != CapacityWork {
		running = Reading{Value: m.atOnce(), At: queue.At}
	}
	at := earlier(queue.At, running.At)
	if !queue.Known() || !running.Known() || !at.After(o.comparedAt) {
		return
	}
	inFlight, ok := m.inFlightNear(at, within)
	if !ok {
		return
	}
	shows := queue.Value + running.Value
	o.comparedAt, o.notShown, o.shown, o.contradicted = at, max(0, inFlight-shows), 0, 0
	if gauge {
		o.busy.count(shows >= several, o.moved)
		if o.moved || shows < several {
			o.still = at
		}
		o.shown, o.moved = shows, false
	}
	o.hidden = min(o.hidden, o.notShown)
	constant := m.ceiling.showsNone(&m.server)
	if o.shownNone = gauge && shows < 1 && !constant; constant {
		return
	}
	if since := at.Add(-p.params.Overload.StalledAfter); !o.lastProgress.After(since) {
		o.contradicted = o.lows.since(since) - shows - o.hidden
	}
}

// Bounds on what is chance.
const (
	// improbable is −ln 1e-4: so many answers were to be expected since the last one.
	improbable = 9.2
	// sigmas is the number of standard deviations with about that probability.
	sigmas = 3.7
	// twice the longest silence that ended well is for requests that do not end at random, such as a batch of long ones
	// that began together.
	twice               = 2
	fewestAnswers       = 20 // that a mean needs
	fewestEnded         = 5  // that a share of failures needs
	failingShare        = 0.5
	failingTau          = 10 * time.Second
	failingRequests     = 50   // requests: the span, where they are fewer than those of failingTau
	several             = 2    // requests: a single one is as likely an upload or an idle stream as a stall
	consecutiveFailures = 5    // no later than a proxy ejects the endpoint: then nothing more is seen
	rounding            = 1e-6 // of differences of sums
	longestTau          = 10 * time.Minute
)

// stall describes the stall, and since when it lasts; empty where there is none.
func (o *outlier) stall(p *pool, longest, pause float64) (reason string, since time.Time) {
	const half = 0.5 // of a request: counts may not be whole numbers
	after := p.params.Overload.StalledAfter
	silent := p.now.Sub(o.lastAnswer)
	mean := o.usual.busy / o.usual.completions // seconds that a request is in flight
	switch {
	case after <= 0:
	case o.unanswered() < 1:
	case o.busy.improbable() && o.comparedAt.Sub(o.still).Seconds() >= after.Seconds()+pause/2:
		return fmt.Sprintf("stalled since %s: its own report shows %.0f requests, and nothing is done",
			o.clocks(o.still), o.shown), o.still
	case min(silent, p.now.Sub(o.lastProgress)) < after+o.uploads:
	case o.contradicted > several-half:
		return fmt.Sprintf(
			"stalled since %s: none of %.0f requests in flight ends, and its own report does not show them",
			o.clocks(o.lastAnswer), o.contradicted), o.lastAnswer
	case o.unanswered() < several && o.shown < 1:
	case o.usual.completions >= fewestAnswers && o.pending >= max(improbable*mean, twice*longest):
		return fmt.Sprintf("stalled since %s: none of %.0f requests in flight ends, and one takes %.3g s on average",
			o.clocks(o.lastAnswer), o.unanswered(), mean), o.lastAnswer
	}
	return "", time.Time{}
}

// clocks is since when the endpoint stalls: where it was tried again meanwhile, both times.
func (o *outlier) clocks(since time.Time) string {
	if o.state == healthy {
		return clock(since)
	}
	return clock(since) + ", and not healthy since " + clock(o.began)
}

// A still is how often reports show requests at the endpoint, and how often no progress since the report before.
type still struct {
	reports, without float64 // fading
	last             float64 // reports without progress since the last progress
}

// count takes in a report: of a busy endpoint, and of progress since the one before.
func (s *still) count(busy, progress bool) {
	const many = 500 // reports that are remembered
	if !busy || progress {
		s.last = 0
	}
	if !busy {
		return
	}
	keep := 1 - 1.0/many
	s.reports, s.without = s.reports*keep+1, s.without*keep
	if !progress {
		s.without++
		s.last++
	}
}

// improbable reports whether that many reports without progress are significant, by how often there is none otherwise.
func (s *still) improbable() bool {
	const fewest = 40 // reports
	chance := (s.without - s.last + 1) / (s.reports - s.last + 2)
	return s.reports-s.last >= fewest && s.last*-math.Log(chance) >= improbable
}

// failureReason describes the failures; empty where there are none.
func (o *outlier) failureReason() string {
	switch {
	case o.consecutive >= consecutiveFailures:
		return fmt.Sprintf("failing: the last %.0f requests failed", o.consecutive)
	case o.failsOften() && o.failing:
		return fmt.Sprintf("failing: %.0f of the last %.0f requests failed", o.failed, o.attempts())
	}
	return ""
}

// failsOften reports whether the endpoint failed at least half of its recent requests.
func (o *outlier) failsOften() bool {
	share, enough := o.failedShare()
	return enough && share >= failingShare
}

// failsMoreThan reports whether the endpoint's failures are significant where such a share of all requests fails.
func (o *outlier) failsMoreThan(share float64) bool {
	if o.consecutive >= consecutiveFailures && o.consecutive*-math.Log(share) >= improbable {
		return true
	}
	attempts := o.attempts()
	return o.failing && o.failed-share*attempts >= sigmas*math.Sqrt(share*(1-share)*attempts) && share < 1
}

// failures are the shares of their requests that members failed, sorted.
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

// failedShare is the share of the recent requests that failed; enough is false where they are too few.
func (o *outlier) failedShare() (share float64, enough bool) {
	attempts := o.attempts()
	return o.failed / attempts, attempts >= fewestEnded
}

// attempts are the recent requests. One that got no connection failed, and is not among those that ended.
func (o *outlier) attempts() float64 { return max(o.ended, o.failed) }

// others is the share that the others of the pool fail: their median, and 0 where none is known. What all of them fail
// now and then is the fault of the requests, or of their number.
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

// transition moves the endpoint between the states. An ejected endpoint gets no requests, so whether it recovered shows
// only once it is probed; each time it is ejected again soon, the next probe comes later.
func (o *outlier) transition(found trouble, p *pool) {
	const (
		forgetAfter = time.Minute      // in the healthy state
		probeAfter  = 30 * time.Second // while old requests are still in flight
		doublings   = 5
	)
	held := p.now.Sub(o.since)
	switch {
	case o.state != ejected && found.reason != "":
		if o.state == healthy {
			o.began = found.since
			if held > forgetAfter {
				o.ejections = 0
			}
		}
		o.ejections = min(o.ejections+1, doublings)
		o.enterState(ejected, p.now)
		o.reason = found.reason
	case o.state == ejected && held < min(p.params.Overload.MinDwell, time.Hour)<<(o.ejections-1):
	case o.state == ejected && found.reason == "" && o.recovered:
		o.enterState(healthy, p.now)
	case o.state == ejected && (o.inFlight < 1 || held >= probeAfter<<(o.ejections-1)):
		o.probe(p.now)
	case o.state == probing && o.recovered:
		o.enterState(healthy, p.now)
	}
}

// probe ends the ejection, to see how the endpoint behaves now.
func (o *outlier) probe(now time.Time) {
	o.enterState(probing, now)
	o.lastAnswer, o.contradicted, o.pending = now, 0, 0
	o.hidden = max(0, o.inFlight-o.shown) // old requests do not count again
	o.ended, o.failed, o.consecutive, o.failing = 0, 0, 0, false
	o.streak = streak{}
}

// endEjection ends an ejection at once and forgets it, because the fault was not the endpoint's. The evidence stays
// until an answer refutes it: else the pool would seem healthy a moment later, and the same endpoints would be flagged
// again and again.
func (o *outlier) endEjection(now time.Time) {
	o.ejections = 0
	if o.state == ejected {
		o.enterState(probing, now)
	}
}

func (o *outlier) enterState(s health, now time.Time) {
	o.state, o.since, o.recovered, o.proof, o.streak.fresh = s, now, false, proof{}, ends{}
	o.ejectedForErrors = o.ejectedForErrors && s != healthy
}
