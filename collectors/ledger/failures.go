package ledger

import (
	"math/bits"
	"slices"
	"time"

	"steelyard/weighting/flight"
)

// Bounds on which failures count.
const (
	maxHosts      = 8                // that are compared: those with the newest requests
	maxDiscounted = 8                // accounts of one endpoint that are kept because their failures do not count
	rowPause      = 10 * time.Second // without a failure; then the next one begins another row
	failuresEnd   = time.Minute      // without a failure; then the comparison ends

	// An answer shows for three times the longest gap between two recent answers that an endpoint serves, so that one
	// with few requests does not seem to stop between them. It shows it for at least servesFor and at most servesMost.
	servesGaps = 3
	servesFor  = 5 * time.Second
	servesMost = 2 * time.Minute
	// gapAssumed is the longest gap before one is measured; gapPeriod is the time for which a measured one is kept at
	// least.
	gapAssumed = 10 * time.Second
	gapPeriod  = 2 * time.Minute
)

// outcomes has a bit for each of an account's latest requests: the lowest is the newest, 1 is a failure. The highest
// bit that is set is not one of them, but shows how many there are: 31 at most. 0 means none.
type outcomes uint32

// allAnswered stands for eight answers in a row, after which older outcomes do not matter.
const (
	allAnswered outcomes = 1 << answeredRow
	answeredRow          = 8
)

func (o *outcomes) record(failed outcomes) {
	const full = 1 << 31
	before := max(*o, 1)
	*o = before<<1 | before&full | failed
	if *o >= allAnswered && *o&(allAnswered-1) == 0 {
		*o = allAnswered
	}
}

// fail reports whether enough requests fail that the endpoint, or the network to it, seems to be the cause: all of
// them, the last three, or at least three and 30 %.
func (o outcomes) fail() bool {
	const row = 7
	if o <= 1 || o == allAnswered {
		return false
	}
	all, failed := bits.Len32(uint32(o))-1, bits.OnesCount32(uint32(o))-1
	return failed == all || o&row == row && all >= 3 || failed >= 3 && 10*failed >= 3*all
}

// An answer is the newest answer to an account's requests.
type answer struct {
	by *account // nil if the account is gone
	at int64    // nanoseconds since 1970, which are faster to take and to compare for each answer; 0: there was none
}

// showsServing reports whether the answer shows that the endpoint serves its account: it is no older than most, and it
// came after `since`, when the failures in question began, or the next request of its account did not fail.
func (n *answer) showsServing(now time.Time, most time.Duration, since time.Time) bool {
	if n.at == 0 || now.UnixNano()-n.at > int64(most) {
		return false
	}
	return n.after(since) || n.by == nil || n.by.recent&1 == 0
}

func (n *answer) after(t time.Time) bool { return n.at != 0 && time.Unix(0, n.at).After(t) }

// newestAnswers holds the newest answer of all, and the newest one of any other account.
type newestAnswers struct{ newest, other answer }

func (s *newestAnswers) record(a *account, now int64) {
	if s.newest.by != a {
		s.other, s.newest.by = s.newest, a
	}
	s.newest.at = now
}

// ofOthers returns the newest answer of an account other than a.
func (s *newestAnswers) ofOthers(a *account) *answer {
	if s.newest.by == a {
		return &s.other
	}
	return &s.newest
}

// remove removes the answers of an account.
func (s *newestAnswers) remove(a *account) {
	if s.newest.by == a {
		s.newest, s.other = s.other, answer{}
	} else if s.other.by == a {
		s.other = answer{}
	}
}

// release drops the reference to an account that is forgotten, and keeps the time of its answer.
func (s *newestAnswers) release(a *account) {
	for _, n := range []*answer{&s.newest, &s.other} {
		if n.by == a {
			n.by = nil
		}
	}
}

// gaps tracks the longest pauses between answers of an endpoint that serves.
type gaps struct {
	longest, before int64 // nanoseconds; in this period, and in the one before
	until           int64 // the end of the period, in nanoseconds since 1970
}

func (g *gaps) observe(now, gap int64) {
	g.longest = max(g.longest, gap)
	if now > g.until {
		if g.until == 0 {
			g.longest = int64(gapAssumed)
		}
		g.before, g.longest, g.until = g.longest, 0, now+int64(gapPeriod)
	}
}

// limit returns for how long an answer shows that the endpoint serves.
func (g *gaps) limit() time.Duration {
	return min(max(servesFor, servesGaps*time.Duration(max(g.longest, g.before))), servesMost)
}

// A hostRecord is what the Envoys of one host report about an endpoint. Only hosts count as independent of one another,
// because one program can connect under many node ids.
type hostRecord struct {
	host      string
	at        time.Time     // of its newest request that ended
	answers   newestAnswers // of accounts that do not fail
	failed    time.Time     // its newest failure
	rowSince  time.Time     // the start of the current row of failures, of accounts to which most requests fail
	rowLatest time.Time     // the newest failure of that row
}

// A failureCheck compares the failures at an endpoint with the answers that other hosts get there. There is one while
// the endpoint has failures.
type failureCheck struct {
	hosts      []hostRecord
	failed     time.Time // the newest failure
	discounted []discountedFailures
}

// discountedFailures are failures that one account reports and that do not count.
type discountedFailures struct {
	account       *account
	since, latest time.Time
}

// filterFailures takes in the end of a request, and removes a failure from d if the Envoy that reports it fails most of
// its requests, while the endpoint serves at least as many hosts as it fails. Then the fault is in that Envoy or in the
// network between the two, and the Envoy's own outlier detection handles it. Where no other host has requests, or none
// gets answers any more, the failures of one host count.
func (a *account) filterFailures(now time.Time, d *flight.Sums) {
	s := a.member
	if d.Failed == 0 && d.Answered > 0 {
		if a.recent != allAnswered { // rarely so: it saves a write
			a.recent.record(0)
		}
		if !a.recent.fail() {
			s.answered(a, now.UnixNano())
		}
	}
	if s.failures != nil || d.Failed > 0 {
		s.checkFailure(a, now, d)
	}
}

// answered takes in an answer. The gap is measured to the newest answer of this account, if that is the newest of all,
// and otherwise to the newest answer of any account but the one with the newest of all: so an Envoy with many requests
// does not hide how few the others have.
func (s *member) answered(a *account, now int64) {
	last := &s.answers.newest
	if last.by != a {
		last = &s.answers.other
	}
	gap := int64(0)
	if last.at != 0 {
		gap = now - last.at
	}
	s.gaps.observe(now, gap)
	s.answers.record(a, now)
}

// checkFailure takes in the end of a request while the endpoint has failures.
func (s *member) checkFailure(a *account, now time.Time, d *flight.Sums) {
	if d.Answered+d.Failed == 0 {
		return // the client or Envoy ended it
	}
	if s.failures == nil {
		s.failures = &failureCheck{hosts: make([]hostRecord, 0, maxHosts)}
		for _, n := range []answer{s.answers.other, s.answers.newest} {
			if n.by != nil {
				s.failures.host(n.by, now).answers.record(n.by, n.at)
			}
		}
	}
	if !s.failures.counts(a, now, d) {
		d.Failed = 0
	}
	if now.Sub(s.failures.failed) > failuresEnd {
		s.failures = nil
	}
}

// host returns the record of an account's host. If there are too many, a new one replaces the one with the oldest
// requests.
func (f *failureCheck) host(a *account, now time.Time) *hostRecord {
	host := a.envoy.node.Host
	i := slices.IndexFunc(f.hosts, func(h hostRecord) bool { return h.host == host })
	switch {
	case i >= 0:
	case len(f.hosts) < maxHosts:
		i = len(f.hosts)
		f.hosts = append(f.hosts, hostRecord{host: host})
	default:
		i = 0
		for j := range f.hosts {
			if f.hosts[j].at.Before(f.hosts[i].at) {
				i = j
			}
		}
		f.hosts[i] = hostRecord{host: host}
	}
	f.hosts[i].at = now
	return &f.hosts[i]
}

// counts takes in the end of a request, and reports whether it counts. An answer always does.
func (f *failureCheck) counts(a *account, now time.Time, d *flight.Sums) bool {
	h := f.host(a, now)
	if d.Failed == 0 {
		if !a.recent.fail() {
			h.answers.record(a, now.UnixNano())
		}
		return true
	}
	f.failed, h.failed = now, now
	if a.recent.record(1); !a.recent.fail() {
		return true
	}
	h.answers.remove(a)
	if now.Sub(h.rowLatest) > rowPause {
		h.rowSince = now
	}
	h.rowLatest = now
	if f.failsMore(a, h, now) {
		return true
	}
	f.discount(a, now)
	return false
}

// failsMore reports whether the endpoint fails more hosts than it serves. The host `own` is that of account a, which
// has just reported a failure.
func (f *failureCheck) failsMore(a *account, own *hostRecord, now time.Time) bool {
	limit, fail, served := a.member.gaps.limit(), 0, 0
	for i := range f.hosts {
		h := &f.hosts[i]
		n := &h.answers.newest
		if h == own {
			n = h.answers.ofOthers(a)
		}
		switch {
		case n.showsServing(now, limit, own.rowSince):
			served++
		case h == own || now.Sub(h.failed) <= limit:
			fail++
		}
	}
	return fail > served
}

// discount notes a failure that does not count.
func (f *failureCheck) discount(a *account, now time.Time) {
	i := slices.IndexFunc(f.discounted, func(d discountedFailures) bool { return d.account == a })
	if i < 0 {
		f.discounted = slices.DeleteFunc(f.discounted,
			func(d discountedFailures) bool { return now.Sub(d.latest) > failuresEnd })
		if len(f.discounted) == maxDiscounted {
			return
		}
		i = len(f.discounted)
		f.discounted = append(f.discounted, discountedFailures{account: a, since: now})
	}
	d := &f.discounted[i]
	if !d.latest.IsZero() && now.Sub(d.latest) > failuresEnd {
		d.since = now
	}
	d.latest = now
}

// persist reports whether an account's failures have been discounted for too long to be chance.
func (d *discountedFailures) persist(now time.Time) bool {
	return now.Sub(d.latest) <= rowPause && d.latest.Sub(d.since) >= gaugeLag
}

// forgetAccount drops what refers to an account.
func (s *member) forgetAccount(a *account) {
	s.answers.release(a)
	f := s.failures
	if f == nil {
		return
	}
	for i := range f.hosts {
		f.hosts[i].answers.release(a)
	}
	f.discounted = slices.DeleteFunc(f.discounted, func(d discountedFailures) bool { return d.account == a })
}
