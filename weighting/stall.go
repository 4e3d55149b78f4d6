package weighting

// Outliers: endpoints that stall
//
//	progress        an answer; or completions, tokens, iterations, or seconds waited or executed, that rose; or a
//	                KV cache that changed while the numbers waiting and running did not
//	contradiction   two requests or more have been in flight for a time T that a report made after that time
//	                does not show (without a gauge of running requests: more than waiting and slots), besides
//	                those that the endpoint did not show before its last progress, and it made no progress in
//	                that time; a gauge that showed only 0 while requests completed is no evidence
//	silence         F ≥ 9.2 · f and F ≥ 2 · F_max, and no answer and no progress in a time T,
//	                and two requests are in flight or a gauge shows one
//	                F      request-seconds in flight since the last answer, without requests that
//	                       no report showed while the endpoint made progress
//	                f      request-seconds in flight for each answer, over about a minute
//	                F_max  the largest F that ended with an answer, in the pool, fading
//	                       within ten minutes
//	standstill      a report shows two requests or more, and nothing that counts as progress follows for a time
//	                T; and at least forty reports are known, by which as many in a row without progress have a
//	                probability below 1e-6
//	T               the larger of StalledAfter and P, plus half of P, or a quarter of StalledAfter if that is more:
//	                progress shows late. P is the longest pause in the last minutes that ended with progress, of
//	                the endpoint or of a typical one, 10 s at most. Where no tokens are counted, T is StalledAfter,
//	                for a standstill plus half of P
//
// A time in which the law did not run, of more than two seconds and StalledAfter, is no evidence: all times begin
// again.
//
// If ends were a Poisson process, silence of F would have the probability exp(−F/f): 9.2 is 1e-4. Requests that began
// together end together, and long ones come in runs, so F must also be twice as long as any silence that ended well.
//
// Slow uploads, idle WebSockets and open gRPC streams are in flight and are no work of the engine, and gauges lag by an
// iteration. So one request that no gauge shows is never evidence, several are none if they were there while the
// endpoint made progress, and none is before it is older than a gauge may be. Where an endpoint has nothing but
// uploads, contradiction and silence wait until the bodies must have come, by their content-lengths, as long as they
// are fewer than five; one without a content-length may take an hour.

import (
	"fmt"
	"math"
	"time"
)

// Bounds on what is chance.
const (
	// twice the longest silence that ended well is for requests that do not end at random, such as a batch of long ones
	// that began together.
	twice         = 2
	fewestAnswers = 20 // that a mean needs
	several       = 2  // requests: a single one is as likely an upload or an idle stream as a stall
	longestTau    = 10 * time.Minute

	longestIteration = 10 * time.Second // no engine computes for longer before it shows something
)

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
	sent := m.passed.proxies.computed(&o.sent)
	// Progress is no beginning: a scrape may show it of requests that ended before those that are unanswered began.
	if o.unanswered() < 1 || sent.requests >= recent {
		o.sent = batch{}
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
// completed, or a KV cache that changes while no request goes, and none comes but to wait.
func (d *served) showsProgress(seen *ServerReport) bool {
	if d.waited.by > 0 || d.busy.by > 0 || d.tokens.generated+d.tokens.first+d.tokens.iterations > 0 {
		return true
	}
	return d.running.by == 0 && seen.Running.Value > 0 && d.queue.by >= 0 && d.utilization.by != 0
}

// compare compares a new report with the requests that were in flight when it was made. A server without a gauge of
// running requests shows those that fit its slots. A gauge may be as old as an iteration of the engine, so requests
// contradict it only once they have been in flight for longer than that.
func (o *outlier) compare(m *member) {
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
		o.busy.count(shows, o.moved, m.server.Tokens.At.IsZero())
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
	if since := at.Add(-o.patience); !o.lastProgress.After(since) {
		o.contradicted = o.lows.since(since) - shows - o.hidden
	}
}

// typicalPause is the median of the members' longest pauses, in seconds: one that stood still and went on is no reason
// to wait longer for the others.
func (p *pool) typicalPause() float64 {
	return orZero(p.median(func(m *member) (float64, bool) {
		pause := m.outlier.pause.most()
		return pause, pause > 0
	}))
}

// patience is how long an endpoint may show nothing new: without contradiction, and while it stands still. Progress of
// an engine that counts tokens is one of its iterations, and until that ends the gauges are those of the one before.
// With the prompts of many requests it takes seconds. Where progress is that a request ends, it says nothing about the
// age of the gauges.
func (m *member) patience(p *pool) (contradiction, standstill time.Duration) {
	after := p.params.Overload.StalledAfter
	seconds := min(max(m.outlier.pause.most(), p.pause), longestIteration.Seconds())
	pause := time.Duration(seconds * float64(time.Second))
	if m.server.Tokens.At.IsZero() {
		return after, after + pause/2
	}
	patience := max(after, pause) + max(pause, after/2)/2
	return patience, patience
}

// stall describes the stall, and since when it lasts; empty where there is none.
func (o *outlier) stall(p *pool, longest float64) (reason string, since time.Time) {
	const half = 0.5 // of a request: counts may not be whole numbers
	after := p.params.Overload.StalledAfter
	silent := p.now.Sub(o.lastAnswer)
	mean := o.usual.busy / o.usual.completions // seconds that a request is in flight
	switch {
	case after <= 0:
	case o.unanswered() < 1:
	case o.busy.improbable() && o.comparedAt.Sub(o.still) >= o.standstill:
		return fmt.Sprintf("stalled since %s: its own report shows %.0f requests, and nothing is done",
			o.clocks(o.still), o.shown), o.still
	case min(silent, p.now.Sub(o.lastProgress)) < o.patience+o.uploads:
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
	reports, without, requests float64 // fading; requests is the sum of those that the reports show
	last                       float64 // reports without progress since the last progress
	weight                     float64 // of these: with fewer requests than usual fewer end
}

// count takes in a report: the requests that it shows, whether there was progress since the one before, and whether
// progress is only that requests end.
func (s *still) count(shows float64, progress, ends bool) {
	const many = 500 // reports that are remembered
	busy := shows >= several
	if !busy || progress {
		s.last, s.weight = 0, 0
	}
	if !busy {
		return
	}
	keep := 1 - 1.0/many
	s.reports, s.without, s.requests = s.reports*keep+1, s.without*keep, s.requests*keep+shows
	if progress {
		return
	}
	s.without++
	s.last++
	if usual := s.requests / s.reports; ends && shows < usual {
		s.weight += shows / usual
	} else {
		s.weight++
	}
}

// improbable reports whether that many reports without progress are significant, by how often there is none otherwise.
// A pool is asked that a hundred thousand times an hour.
func (s *still) improbable() bool {
	const (
		fewest = 40 // reports
		never  = 14 // −ln of a probability: 1e-6
	)
	chance := (s.without - s.last + 1) / (s.reports - s.last + 2)
	return s.reports-s.last >= fewest && s.weight*-math.Log(chance) >= never
}
