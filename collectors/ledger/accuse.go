package ledger

import (
	"math"
	"time"

	"steelyard/weighting/flight"
)

// An accusation compares the requests of the Envoy with most failures at an endpoint with those of all
// others. It lasts for as long as there are failures.
type accusation struct {
	by          *account
	votes       int // for by, after Boyer and Moore
	own, others record
	failed      time.Time // of the newest failure
	since, last time.Time // of failures that did not count; zero where all did
}

// A record is how requests ended of late: in about the last ten seconds, and of the last fifty.
type record struct {
	ended, failed float64
	row           int       // failures since the last answer
	at            time.Time // of the newest end
	answered      time.Time // of the newest answer
}

// newestAnswers are those of an endpoint: by one Envoy, and by any other.
type newestAnswers struct {
	by         *account
	at, others time.Time
}

// Bounds on which failures count.
const (
	recordTau  = 10 * time.Second
	recordOf   = 50              // requests
	forgotten  = time.Minute     // without a failure
	fineFor    = 5 * time.Second // since an answer
	fineRow    = 3               // failures in a row, by which it is not fine any more
	fineFailed = 1.5             // failures that are chance
	fineShare  = 0.25            // of requests that may fail
	failing    = 0.3             // of requests, three of them, from where on it seems to fail
)

func (r *record) note(now time.Time, d *flight.Sums) {
	n := float64(max(d.Ended, d.Failed)) // one that got no connection failed, and did not end
	keep := math.Exp(-now.Sub(r.at).Seconds()/recordTau.Seconds() - n/recordOf)
	r.ended, r.failed, r.at = r.ended*keep+n, r.failed*keep+float64(d.Failed), now
	if r.row++; d.Failed == 0 {
		r.row, r.answered = 0, now
	}
}

// share is that of the requests which failed.
func (r *record) share() float64 { return r.failed / max(r.ended, 1) }

// fine reports whether requests are answered.
func (r *record) fine(now time.Time) bool {
	return now.Sub(r.answered) <= fineFor && r.row < fineRow && (r.failed < fineFailed || r.share() < fineShare)
}

// fails reports whether so many requests fail that the endpoint seems to be the cause.
func (r *record) fails() bool {
	return r.row >= fineRow || r.failed >= fineRow && r.share() >= failing
}

func (s *newestAnswers) note(a *account, now time.Time) {
	if s.by != a {
		s.by, s.others = a, s.at
	}
	s.at = now
}

// vouch leaves what counts of the end of a request: all of it, but for a failure that only one Envoy
// reports, while the others get answers from the endpoint. The fault is between the two then, or in that Envoy,
// whose own outlier detection is for that. Where others have no requests, or no answers any more, the
// reports of one are enough.
func (a *account) vouch(now time.Time, d *flight.Sums) {
	s := a.slot
	if d.Failed == 0 && d.Answered > 0 {
		s.answers.note(a, now)
	}
	if s.accused != nil || d.Failed > 0 {
		s.hear(a, now, d)
	}
}

// hear takes in the end of a request while there are failures.
func (s *slot) hear(a *account, now time.Time, d *flight.Sums) {
	if d.Answered+d.Failed == 0 {
		return // the client or Envoy ended it
	}
	if s.accused == nil {
		s.accused = &accusation{by: a, others: record{answered: s.answers.ofOthers(a)}}
	}
	if !s.accused.counts(a, now, d) {
		d.Failed = 0
	}
	if now.Sub(s.accused.failed) > forgotten {
		s.accused = nil
	}
}

// ofOthers is when an Envoy other than a's last had an answer.
func (s *newestAnswers) ofOthers(a *account) time.Time {
	if s.by == a {
		return s.others
	}
	return s.at
}

// counts takes in the end of a request of a's, and reports whether it counts.
func (acc *accusation) counts(a *account, now time.Time, d *flight.Sums) bool {
	if d.Failed > 0 {
		acc.failed = now
		acc.vote(a)
	}
	if a != acc.by {
		acc.others.note(now, d)
		return true
	}
	acc.own.note(now, d)
	if d.Failed == 0 || !acc.own.fails() || !acc.others.fine(now) {
		return true
	}
	if now.Sub(acc.last) > forgotten {
		acc.since = now
	}
	acc.last = now
	return false
}

// vote finds the Envoy with more than half of the latest failures, if there is one.
func (acc *accusation) vote(a *account) {
	switch {
	case a == acc.by:
		acc.votes = min(acc.votes+1, recordOf)
	case acc.votes > 0:
		acc.votes--
	default:
		acc.others.merge(&acc.own)
		acc.by, acc.votes, acc.own = a, 1, record{}
	}
}

// merge adds the record of one more Envoy.
func (r *record) merge(other *record) {
	r.ended, r.failed, r.row = r.ended+other.ended, r.failed+other.failed, min(r.row, other.row)
	if other.answered.After(r.answered) {
		r.answered = other.answered
	}
}

// disputed reports whether failures that only one Envoy reports have not counted for longer than by chance.
func (acc *accusation) disputed(now time.Time) bool {
	return acc != nil && now.Sub(acc.last) <= recordTau && acc.last.Sub(acc.since) >= laggard
}

// unaccuse forgets the requests of an Envoy that leaves.
func (s *slot) unaccuse(a *account) {
	if s.answers.by == a {
		s.answers.by = nil
	}
	if s.accused != nil && s.accused.by == a {
		s.accused = nil
	}
}
