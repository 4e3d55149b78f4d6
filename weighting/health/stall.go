package health

import (
	"fmt"
	"time"
)

// Bounds on what is chance.
const (
	several          = 2                // requests: a single one is as likely an upload or an idle stream as a stall
	LongestIteration = 10 * time.Second // no engine computes for longer before it shows something
)

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

	sent, sized, bytes float64       // requests that began since nothing was unanswered, or the last ones
	uploads            time.Duration // these may be under way to the endpoint for so long
}

// unanswered is how many requests are in flight that should get an answer, sooner or later.
func (s *stall) unanswered() float64 { return s.inFlight - s.hidden }

// observe takes in what is new.
func (s *stall) observe(in *Sample, c *common) {
	now := c.now
	elapsed := max(0, now.Sub(s.at))
	if !s.at.IsZero() && elapsed > max(c.unobserved(), c.StalledAfter) {
		s.restart(now)
	} else {
		s.answers.pending += s.unanswered() * elapsed.Seconds()
		s.reports.pending += min(s.shown, 1) * elapsed.Seconds()
	}
	s.at, s.inFlight = now, in.InFlight
	if in.Done > 0 {
		s.answers.end(in.Done, now.Sub(s.answer))
		s.answer = now
	}
	if in.Done > 0 || in.Progress {
		s.reports.end(1, now.Sub(s.progress))
		if now.Sub(s.reported) <= c.Hold {
			s.hidden = s.notShown
		}
	}
	if in.Alive || in.Progress { // errors, too, but they do not show how long a request takes
		s.progress, s.unshown = now, time.Time{}
	}
	s.compare(in)
	s.hidden = min(s.hidden, s.inFlight)
	if now.Sub(s.reported) > c.Hold || !in.Steps {
		s.reports.pending = 0
	}
	if s.unanswered() < 1 || s.answer.IsZero() {
		s.restart(now)
	}
	s.upload(in)
}

// compare compares a new report with the requests that were in flight when it was made.
func (s *stall) compare(in *Sample) {
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
func (s *stall) upload(in *Sample) {
	const (
		many   = 5       // requests
		recent = 20      // requests
		slow   = 125_000 // bytes per second of a client: 1 Mbit/s
	)
	s.uploads = 0
	s.sent, s.sized, s.bytes = s.sent+in.Sent, s.sized+in.Sized, s.bytes+in.Bytes
	switch {
	case s.unanswered() < 1 || s.sent >= recent:
		s.sent, s.sized, s.bytes = 0, 0, 0
	case !in.ShowsIdle || s.unanswered() >= many || !in.Sizes:
	case s.sized < s.sent-rounding:
		s.uploads = longest
	case s.sized > 0:
		seconds := min(s.bytes/s.sized/slow, longest.Seconds())
		s.uploads = time.Duration(seconds * float64(time.Second))
	}
}

// restart begins the times in which nothing happened again. The law did not run for as long as a stall takes, as in a
// process that was stopped, and what the proxies reported meanwhile may come after the first new page of the server.
func (s *stall) restart(now time.Time) {
	s.answer, s.progress, s.unshown = now, now, time.Time{}
	s.answers.pending, s.reports.pending = 0, 0
}

func (s *stall) finding(in *Sample, before *Verdict, c *common) (string, time.Time) {
	patience, now := s.patience(in.Steps, c), c.now
	what := ""
	switch {
	case c.StalledAfter <= 0 || s.unanswered() < 1 || now.Sub(s.progress) < patience+s.uploads:
	case !s.unshown.IsZero() && s.reported.Sub(s.unshown) >= patience:
		what = fmt.Sprintf("none of %.0f requests in flight ends, and its own report does not show them",
			s.notShown-s.hidden)
	case s.unanswered() < several && s.shown < 1:
	case s.reports.improbable():
		what = fmt.Sprintf("its own report shows %.0f requests, and nothing is done", s.shown)
	case s.answers.improbable() && c.unseen(&s.answers):
		what = fmt.Sprintf("none of %.0f requests in flight ends, and one takes %.3g s on average",
			s.unanswered(), s.answers.mean())
	case s.unanswered() >= several && c.slowerThanAll(&s.answers, now.Sub(s.progress)):
		what = fmt.Sprintf("none of %.0f requests in flight ends, and one takes %.3g s elsewhere in the pool",
			s.unanswered(), c.answers.mean())
	}
	if what == "" {
		return "", time.Time{}
	}
	return s.since(before) + what, s.progress
}

// unseen reports whether no endpoint was silent for so long before it answered.
func (c *common) unseen(answers *quiet) bool {
	const twice = 2
	return answers.pending >= twice*c.silence
}

// slowerThanAll reports the same of an endpoint that has answered too little to have a mean, as one that hangs soon
// after it came. It has as long as if it had a single request, as several that began together end together, and as long
// as an iteration may take, as its requests may be longer than those of others.
func (c *common) slowerThanAll(answers *quiet, silent time.Duration) bool {
	return !answers.known() && c.answers.known() && c.unseen(answers) &&
		silent.Seconds() >= max(falseAlarm*c.answers.mean(), LongestIteration.Seconds())
}

// since says since when the endpoint stalls: where it was tried again meanwhile, both times.
func (s *stall) since(before *Verdict) string {
	if before.State == Healthy {
		return fmt.Sprintf("stalled since %s: ", clock(s.progress))
	}
	return fmt.Sprintf("stalled since %s, and not healthy since %s: ", clock(s.progress), clock(before.Began))
}

// patience is T: for how long an endpoint may show nothing new.
func (s *stall) patience(steps bool, c *common) time.Duration {
	after := c.StalledAfter
	if !steps {
		return after
	}
	pause := time.Duration(min(max(s.reports.longest, c.pause), LongestIteration.Seconds()) * float64(time.Second))
	return max(after, pause) + max(pause, after/2)/2
}

func clock(t time.Time) string { return t.UTC().Format("15:04:05Z") }
