package ledger

import (
	"math/bits"
	"slices"
	"time"

	"steelyard/weighting/flight"
)

// Bounds on which failures count.
const (
	witnesses = 8                // hosts, those with the newest requests
	accusers  = 8                // accounts of one endpoint whose failures do not count, that are kept
	pause     = 10 * time.Second // without a failure; then the next one begins another row
	forgotten = time.Minute      // without a failure

	// An answer shows that an endpoint serves for three times the longest gap between two answers of late, so that
	// one with few requests is not forgotten between them; and within these bounds.
	fineGaps = 3
	fineFor  = 5 * time.Second
	fineMost = 2 * time.Minute
	// gapAssumed is the longest gap while little is known, and gapPeriod how long a measured one is kept at least.
	gapAssumed = 10 * time.Second
	gapPeriod  = 2 * time.Minute
)

// outcomes are how the latest requests of an account ended, as bits: the lowest is the newest, 1 for a failure. The
// highest that is set is not one of them, but shows how many there are: 31 at most. 0 is none.
type outcomes uint32

// allAnswered are eight answers in a row. What was before does not matter any more.
const (
	allAnswered outcomes = 1 << answeredRow
	answeredRow          = 8
)

func (o *outcomes) note(failed outcomes) {
	const full = 1 << 31
	before := max(*o, 1)
	*o = before<<1 | before&full | failed
	if *o >= allAnswered && *o&(allAnswered-1) == 0 {
		*o = allAnswered
	}
}

// fail reports whether so many requests fail that the endpoint, or the way to it, seems to be the cause: all, the last
// three, or three and 30 %.
func (o outcomes) fail() bool {
	const row = 7
	if o <= 1 || o == allAnswered {
		return false
	}
	all, failed := bits.Len32(uint32(o))-1, bits.OnesCount32(uint32(o))-1
	return failed == all || o&row == row && all >= 3 || failed >= 3 && 10*failed >= 3*all
}

// An answer is the newest one of an account.
type answer struct {
	by *account // nil for one that has left
	at int64    // nanoseconds since 1970, which are faster to take and to compare for each answer; 0: there was none
}

// fine reports whether the answer shows that the endpoint serves others than one whose failures began at a time: it is
// no older than that, and where it is from before the failures, the next request did not fail as well.
func (n *answer) fine(now time.Time, most time.Duration, since time.Time) bool {
	if n.at == 0 || now.UnixNano()-n.at > int64(most) {
		return false
	}
	return n.after(since) || n.by == nil || n.by.recent&1 == 0
}

func (n *answer) after(t time.Time) bool { return n.at != 0 && time.Unix(0, n.at).After(t) }

// newestAnswers are those by one account, and by any other.
type newestAnswers struct{ newest, other answer }

func (s *newestAnswers) note(a *account, now int64) {
	if s.newest.by != a {
		s.other, s.newest.by = s.newest, a
	}
	s.newest.at = now
}

// ofOthers is the newest of an account other than a.
func (s *newestAnswers) ofOthers(a *account) *answer {
	if s.newest.by == a {
		return &s.other
	}
	return &s.newest
}

// withdraw removes those of an account.
func (s *newestAnswers) withdraw(a *account) {
	if s.newest.by == a {
		s.newest, s.other = s.other, answer{}
	} else if s.other.by == a {
		s.other = answer{}
	}
}

// leave keeps when an account that leaves had an answer.
func (s *newestAnswers) leave(a *account) {
	for _, n := range []*answer{&s.newest, &s.other} {
		if n.by == a {
			n.by = nil
		}
	}
}

// gaps follow how long an endpoint has no answers while it serves.
type gaps struct {
	longest, before int64 // nanoseconds; in this period, and in the one before
	until           int64 // the end of the period, as in an answer
}

func (g *gaps) note(now, gap int64) {
	g.longest = max(g.longest, gap)
	if now > g.until {
		if g.until == 0 {
			g.longest = int64(gapAssumed)
		}
		g.before, g.longest, g.until = g.longest, 0, now+int64(gapPeriod)
	}
}

// most is how long an answer shows that the endpoint serves.
func (g *gaps) most() time.Duration {
	return min(max(fineFor, fineGaps*time.Duration(max(g.longest, g.before))), fineMost)
}

// A witness is a host with requests at the endpoint. All Envoys of a host are one witness, because one program can
// connect under many node ids.
type witness struct {
	host    string
	at      time.Time     // of its newest request that ended
	answers newestAnswers // of accounts that do not fail
	failed  time.Time     // when the newest failure was
	since   time.Time     // when the row of failures began that an account reports which fails, and
	accused time.Time     // when the newest of them was
}

// An accusation compares the failures at an endpoint with the answers that others get there. It lasts for as
// long as there are failures.
type accusation struct {
	hosts    []witness
	failed   time.Time // of the newest failure
	disputed []accuser
}

// An accuser reports failures that do not count.
type accuser struct {
	account     *account
	since, last time.Time
}

// vouch leaves what counts of the end of a request: all of it, but for a failure that an Envoy reports to which most
// requests fail, while at least as many other hosts get answers from the endpoint. The fault is between the two then,
// or in that Envoy, whose own outlier detection is for that. Where others have no requests, or no answers any more, the
// reports of one are enough.
func (a *account) vouch(now time.Time, d *flight.Sums) {
	s := a.slot
	if d.Failed == 0 && d.Answered > 0 {
		if a.recent != allAnswered { // as it nearly always is
			a.recent.note(0)
		}
		if !a.recent.fail() {
			s.answered(a, now.UnixNano())
		}
	}
	if s.accused != nil || d.Failed > 0 {
		s.hear(a, now, d)
	}
}

// answered takes in an answer. The gap is the one between the answers of this Envoy, or of all but the one before, so
// that one with many requests does not hide how few the others have.
func (s *slot) answered(a *account, now int64) {
	last := &s.answers.newest
	if last.by != a {
		last = &s.answers.other
	}
	gap := int64(0)
	if last.at != 0 {
		gap = now - last.at
	}
	s.gaps.note(now, gap)
	s.answers.note(a, now)
}

// hear takes in the end of a request while there are failures.
func (s *slot) hear(a *account, now time.Time, d *flight.Sums) {
	if d.Answered+d.Failed == 0 {
		return // the client or Envoy ended it
	}
	if s.accused == nil {
		s.accused = &accusation{hosts: make([]witness, 0, witnesses)}
		for _, n := range []answer{s.answers.other, s.answers.newest} {
			if n.by != nil {
				s.accused.witness(n.by, now).answers.note(n.by, n.at)
			}
		}
	}
	if !s.accused.counts(a, now, d) {
		d.Failed = 0
	}
	if now.Sub(s.accused.failed) > forgotten {
		s.accused = nil
	}
}

// witness returns that of an account's host, instead of the one with the oldest requests if need be.
func (acc *accusation) witness(a *account, now time.Time) *witness {
	host := a.envoy.node.Host
	i := slices.IndexFunc(acc.hosts, func(w witness) bool { return w.host == host })
	switch {
	case i >= 0:
	case len(acc.hosts) < witnesses:
		i = len(acc.hosts)
		acc.hosts = append(acc.hosts, witness{host: host})
	default:
		i = 0
		for j := range acc.hosts {
			if acc.hosts[j].at.Before(acc.hosts[i].at) {
				i = j
			}
		}
		acc.hosts[i] = witness{host: host}
	}
	acc.hosts[i].at = now
	return &acc.hosts[i]
}

// counts takes in the end of a request, and reports whether it counts.
func (acc *accusation) counts(a *account, now time.Time, d *flight.Sums) bool {
	w := acc.witness(a, now)
	if d.Failed == 0 {
		if !a.recent.fail() {
			w.answers.note(a, now.UnixNano())
		}
		return true
	}
	acc.failed, w.failed = now, now
	if a.recent.note(1); !a.recent.fail() {
		return true
	}
	w.answers.withdraw(a)
	if now.Sub(w.accused) > pause {
		w.since = now
	}
	w.accused = now
	if acc.trusted(a, w, now) {
		return true
	}
	acc.dispute(a, now)
	return false
}

// trusted reports whether more hosts fail at the endpoint than are served there. a, of the host w, is one that fails.
func (acc *accusation) trusted(a *account, w *witness, now time.Time) bool {
	most, fail, served := a.slot.gaps.most(), 0, 0
	for i := range acc.hosts {
		h := &acc.hosts[i]
		n := &h.answers.newest
		if h == w {
			n = h.answers.ofOthers(a)
		}
		switch {
		case n.fine(now, most, w.since):
			served++
		case h == w || now.Sub(h.failed) <= most && !n.after(h.failed):
			fail++
		}
	}
	return fail > served
}

// dispute takes note of a failure that does not count.
func (acc *accusation) dispute(a *account, now time.Time) {
	i := slices.IndexFunc(acc.disputed, func(c accuser) bool { return c.account == a })
	if i < 0 {
		acc.disputed = slices.DeleteFunc(acc.disputed, func(c accuser) bool { return now.Sub(c.last) > forgotten })
		if len(acc.disputed) == accusers {
			return
		}
		i = len(acc.disputed)
		acc.disputed = append(acc.disputed, accuser{account: a, since: now})
	}
	c := &acc.disputed[i]
	if !c.last.IsZero() && now.Sub(c.last) > forgotten {
		c.since = now
	}
	c.last = now
}

// lasts reports whether failures have not counted for longer than by chance.
func (c *accuser) lasts(now time.Time) bool {
	return now.Sub(c.last) <= pause && c.last.Sub(c.since) >= laggard
}

// unaccuse forgets the requests of an Envoy that leaves.
func (s *slot) unaccuse(a *account) {
	s.answers.leave(a)
	acc := s.accused
	if acc == nil {
		return
	}
	for i := range acc.hosts {
		acc.hosts[i].answers.leave(a)
	}
	acc.disputed = slices.DeleteFunc(acc.disputed, func(c accuser) bool { return c.account == a })
}
