package weighting

// Outliers: endpoints that stall
//
//	progress       an answer; or completions, tokens, iterations, or seconds waited or executed, that rose; or a KV
//	               cache that changed while the numbers waiting and running did not
//	unanswered     requests in flight, without those that no report showed while the endpoint made progress
//	F              unanswered requests times seconds since the last answer; or, where tokens are counted, seconds since
//	               the last progress in which a gauge shows requests: an iteration ends when it ends, however many
//	               requests are in it
//	stall          F ≥ 9.2·f, and of requests F ≥ 2·F_max; and no progress for a time T; and two requests are
//	               unanswered or a gauge shows one
//	               f      F for each answer or progress, over about a minute, and twenty of them at least
//	               F_max  the largest F in the pool that ended with an answer, in the last minutes
//	contradiction  reports of a time T do not show two unanswered requests or more (without a gauge of running
//	               requests: show no more than waiting and slots), and no progress. A gauge that showed only 0 while
//	               requests completed is no evidence
//	T              StalledAfter; where tokens are counted, the larger of StalledAfter and P, plus half of P, or a
//	               quarter of StalledAfter if that is more: progress shows late, and until it does the gauges are those
//	               of the iteration before. P is the longest F in the last minutes that ended with progress, of the
//	               endpoint or of a typical one, 10 s at most
//
// If progress were a Poisson process, F would have the probability exp(−F/f): 9.2 is 1e-4. Requests that began together
// end together, and long ones come in runs, so F must also be twice as long as any that ended well.
//
// A time in which the law did not run, of more than two seconds and StalledAfter, is no evidence: all begins again.
//
// Slow uploads, idle WebSockets and open gRPC streams are in flight and are no work of the engine, and gauges lag by an
// iteration. So one request that no gauge shows is never evidence, and several are none if they were there while the
// endpoint made progress. Where an endpoint has nothing but uploads, a stall is one only once the bodies must have
// come, by their content-lengths, as long as they are fewer than five; one without a content-length may take an hour.

import (
	"fmt"
	"time"
)

// Bounds on what is chance.
const (
	several          = 2                // requests: a single one is as likely an upload or an idle stream as a stall
	longestIteration = 10 * time.Second // no engine computes for longer before it shows something
)

// A quiet is how much has waited since something came, and how much does so usually.
type quiet struct {
	pending float64     // F
	usual   serviceRate // how often something came, and F until then
	longest highest     // F that ended
}

// end ends it: something came n times, so long after the last one.
func (s *quiet) end(n float64, now time.Time, after time.Duration) {
	if s.pending > 0 {
		s.usual.add(n, s.pending, after)
		s.longest.note(s.pending, now, slotsTau)
	}
	s.pending = 0
}

// mean is F for each time that something came.
func (s *quiet) mean() float64 { return s.usual.busy / s.usual.completions }

// improbable reports whether chance does not explain that nothing comes.
func (s *quiet) improbable() bool {
	const fewest = 20 // that a mean needs
	return s.usual.completions >= fewest && s.pending >= improbable*s.mean()
}

// stall is how long an endpoint has done nothing with the requests that it has.
type stall struct {
	at       time.Time // of the last step
	answer   time.Time // the last one; or the last time when nothing was unanswered
	progress time.Time // the same of progress
	answers  quiet     // in request-seconds
	reports  quiet     // of progress in reports that count tokens: in seconds

	inFlight float64   // requests, at the last step
	hidden   float64   // those that no report showed during progress: uploads, idle streams
	reported time.Time // of the last report that was compared with the count
	shown    float64   // requests in that report, where it has a gauge of running ones and is not late
	notShown float64   // requests in flight that it did not show
	unshown  time.Time // since when reports have not shown several that are unanswered; zero: the last one did

	sent    batch         // since nothing was unanswered, or the last ones
	uploads time.Duration // these may be under way to the endpoint for so long
}

// unanswered is how many requests are in flight that should get an answer, sooner or later.
func (s *stall) unanswered() float64 { return s.inFlight - s.hidden }

// observe takes in what is new. A gap is a time between two steps that is no wait for reports, and hold the age from
// which on a report is late.
func (s *stall) observe(now time.Time, in *observation, gap, hold time.Duration) {
	elapsed := max(0, now.Sub(s.at))
	if !s.at.IsZero() && elapsed > gap {
		s.restart(now)
	} else {
		s.answers.pending += s.unanswered() * elapsed.Seconds()
		s.reports.pending += min(s.shown, 1) * elapsed.Seconds()
	}
	s.at, s.inFlight = now, in.InFlight
	if in.Done > 0 {
		s.answers.end(in.Done, now, now.Sub(s.answer))
		s.answer = now
	}
	if in.Done > 0 || in.Progress {
		s.reports.end(1, now, now.Sub(s.progress))
		if now.Sub(s.reported) <= hold {
			s.hidden = s.notShown
		}
	}
	if in.Alive || in.Progress { // errors, too, but they do not show how long a request takes
		s.progress, s.unshown = now, time.Time{}
	}
	s.compare(in)
	s.hidden = min(s.hidden, s.inFlight)
	if now.Sub(s.reported) > hold || !in.Steps {
		s.reports.pending = 0
	}
	if s.unanswered() < 1 || s.answer.IsZero() {
		s.restart(now)
	}
	s.upload(in)
}

// compare compares a new report with the requests that were in flight when it was made.
func (s *stall) compare(in *observation) {
	const half = 0.5 // of a request: counts may not be whole numbers
	if !in.Reported.After(s.reported) {
		return
	}
	s.reported, s.shown, s.notShown = in.Reported, in.Shown, in.NotShown
	s.hidden = min(s.hidden, s.notShown)
	if in.ShowsNothing || s.notShown-s.hidden <= several-half {
		s.unshown = time.Time{}
	} else if s.unshown.IsZero() {
		s.unshown = in.Reported
	}
}

// upload determines for how long all that is unanswered may be uploads, which the endpoint has no part in yet: few
// requests of which no report shows any. How long a body takes follows from its size, on average. Where no request has
// a size, as the log leaves it out or all are gRPC, they are none. Progress is no beginning: a scrape may show it of
// requests that ended before those that are unanswered began.
func (s *stall) upload(in *observation) {
	const (
		many    = 5       // requests
		recent  = 20      // requests
		slow    = 125_000 // bytes per second of a client: 1 Mbit/s
		longest = time.Hour
	)
	s.uploads = 0
	s.sent = batch{s.sent.requests + in.Sent.requests, s.sent.sized + in.Sent.sized, s.sent.bytes + in.Sent.bytes}
	switch {
	case s.unanswered() < 1 || s.sent.requests >= recent:
		s.sent = batch{}
	case !in.ShowsIdle || s.unanswered() >= many || !in.Sizes:
	case s.sent.sized < s.sent.requests-rounding:
		s.uploads = longest
	case s.sent.sized > 0:
		seconds := min(s.sent.bytes/s.sent.sized/slow, longest.Seconds())
		s.uploads = time.Duration(seconds * float64(time.Second))
	}
}

// restart begins the times in which nothing happened again. The law did not run for as long as a stall takes, as in a
// process that was stopped, and what the proxies reported meanwhile may come after the first new page of the server.
func (s *stall) restart(now time.Time) {
	s.answer, s.progress, s.unshown = now, now, time.Time{}
	s.answers.pending, s.reports.pending = 0, 0
}

// forgive is a restart after which old requests do not count.
func (s *stall) forgive(now time.Time) {
	s.restart(now)
	s.hidden = max(0, s.inFlight-s.shown)
}

// finding describes the stall, and since when it lasts; empty where there is none. longest is F_max of the pool, and
// typical P of a typical endpoint.
func (s *stall) finding(now time.Time, in *observation, after time.Duration, longest, typical float64,
) (string, time.Time) {
	const twice = 2
	patience := after
	if in.Steps {
		seconds := min(max(s.reports.longest.most(), typical), longestIteration.Seconds())
		pause := time.Duration(seconds * float64(time.Second))
		patience = max(after, pause) + max(pause, after/2)/2
	}
	switch {
	case after <= 0 || s.unanswered() < 1 || now.Sub(s.progress) < patience+s.uploads:
	case !s.unshown.IsZero() && s.reported.Sub(s.unshown) >= patience:
		return fmt.Sprintf("none of %.0f requests in flight ends, and its own report does not show them",
			s.notShown-s.hidden), s.answer
	case s.unanswered() < several && s.shown < 1:
	case s.reports.improbable():
		return fmt.Sprintf("its own report shows %.0f requests, and nothing is done", s.shown), s.progress
	case s.answers.improbable() && s.answers.pending >= twice*longest:
		return fmt.Sprintf("none of %.0f requests in flight ends, and one takes %.3g s on average",
			s.unanswered(), s.answers.mean()), s.answer
	}
	return "", time.Time{}
}
