package ledger

import (
	"hash/maphash"
	"strings"
	"time"

	"steelyard/weighting/flight"
)

// Open notes that a stream of an Envoy's access log was opened. If there are too many Envoys, it is ignored.
func (l *Ledger) Open(node Envoy, now time.Time) *Stream {
	l.mu.Lock()
	defer l.release()
	s := &Stream{ledger: l, envoy: l.envoyFor(node, now), open: list{which: inStream}}
	if s.envoy != nil {
		l.restate(s.envoy, func() { s.envoy.streams++ })
		s.envoy.unlogged = false
		l.regroup(s.envoy)
		l.noteMessage(s.envoy, now)
	}
	return s
}

// Events takes in one message of the stream, in order.
func (s *Stream) Events(now time.Time, events []Event) {
	l := s.ledger
	l.mu.Lock()
	defer l.release()
	if s.envoy == nil || len(events) == 0 {
		return
	}
	began := 0
	for i := range events {
		ev := &events[i]
		if !ev.Ended {
			began++
		}
		l.event(s, now, ev)
	}
	l.noteEvents(s.envoy, now, began)
}

// noteEvents notes when events came, and how many of them were beginnings.
func (l *Ledger) noteEvents(e *envoy, now time.Time, began int) {
	e.lastEvent = now
	l.noteMessage(e, now)
	if e.mode == ModeReports {
		return // the rate follows the reports
	}
	e.rate.observe(now, float64(began))
	l.chooseMode(e, now, false)
}

// event takes in one event. Where it does not show which cluster of an endpoint the
// request went through, it counts in each.
func (l *Ledger) event(s *Stream, now time.Time, ev *Event) {
	e := s.envoy
	e.totals.Received++
	at := l.addresses[string(ev.Address)]
	if at == nil {
		e.totals.Ignored++
		e.wide = e.wide || e.mode != ModeReports
		return
	}
	id, watched := maphash.Bytes(l.seed, ev.ID), false
	meant, hashed := e.meant(at, ev.Cluster)
	ev.hashed = hashed
	for _, m := range at.members {
		if meant != nil && m.cluster != meant {
			continue
		}
		if a := l.accountWith(e, m); a != nil {
			watched = watched || a.watched
			l.step(s, a, now, id, ev)
		}
	}
	if !watched {
		e.totals.Ignored++
	}
}

// meant returns which of an endpoint's clusters an Envoy means by its own name for one, nil if there is only one, or
// the name is unknown; and whether that chooses endpoints by a hash.
func (e *envoy) meant(at *address, name []byte) (c *cluster, hashes bool) {
	s, known := e.services[string(name)]
	if !known { // as in a bootstrap of Steelyard's
		s = service{name: string(name)}
		if base, ok := strings.CutSuffix(s.name, affinitySuffix); ok && at.servedBy(s.name) == nil {
			s = service{name: base, hashes: true}
		}
	}
	if len(at.members) > 1 {
		c = at.servedBy(s.name)
	}
	return c, s.hashes
}

// affinitySuffix has the name of the cluster that hashes in a bootstrap of Steelyard's.
const affinitySuffix = "_affinity"

// step applies an event to an account.
func (l *Ledger) step(s *Stream, a *account, now time.Time, id uint64, ev *Event) {
	switch {
	case a.envoy.mode == ModeReports: // it has not switched its log off yet: its reports count
	case ev.Ended:
		l.end(a, now, id, ev)
	default:
		l.begin(s, a, now, id, ev)
	}
}

func (l *Ledger) begin(s *Stream, a *account, now time.Time, id uint64, ev *Event) {
	k := key{id, a}
	var r *request
	if !a.envoy.beganLate(k) {
		r = l.openRequest(s, k, ev.Bytes)
	}
	change := a.count.Begin(flight.Beginning{Size: ev.Body, Hashed: ev.hashed, Untracked: r == nil,
		Reported: a.envoy.reported()})
	l.apply(a, &change)
	if free := l.recordBegin(a, now); r != nil {
		r.free = free
	}
	l.noteTraffic(a) // even if nothing was issued, because requests were overcounted
}

func (l *Ledger) end(a *account, now time.Time, id uint64, ev *Event) {
	o := &ev.Outcome
	received, free := uint64(0), false // before the beginning; the request found a free slot
	change := flight.Change{Sums: ev.sums()}
	if !o.ConnectFailed {
		pairing := flight.Unpaired
		switch r := a.envoy.requests[key{id, a}]; {
		case r == nil:
			a.envoy.totals.Unpaired++
			l.endedEarly(a.envoy, now, key{id, a})
		default:
			pairing, received, free = flight.Open, r.received, r.free
			if r.closed {
				pairing = flight.Closed
			}
			l.drop(r)
		}
		change = a.count.End(pairing, change.Sums)
	}
	if a.watched {
		a.member.average(now, o, &change.Sums, received)
		a.filterFailures(now, &change.Sums)
	}
	l.apply(a, &change)
	l.recordEnd(a, now, change.Sums.Latency, change.Sums.Answered == 1, free)
}

// sums returns what one end adds to the sums.
func (ev *Event) sums() flight.Sums {
	o := &ev.Outcome
	if o.ConnectFailed {
		return flight.Sums{Failed: 1}
	}
	d := flight.Sums{Ended: 1}
	if o.Status > 0 && o.Latency > 0 && !o.Reset {
		d.Answered, d.Latency = 1, seconds(o.Latency)
	}
	switch {
	case o.failed():
		d.Failed = 1
	case o.erred():
		d.Errors = 1
		if ev.Body.Known && o.Status >= 400 {
			d.Refused, d.RefusedBytes = 1, ev.Body.Counted()
		}
	case o.GRPCStatus == 0:
		d.Succeeded = d.Answered
	}
	return d
}

// failed reports whether the endpoint failed the request. A 503 of a full queue is a failure, too: an endpoint
// that answers each request with one at once would otherwise look like the fastest. What Envoy refuses itself
// never reached an endpoint.
func (o *Outcome) failed() bool {
	return o.ConnectFailed || o.Reset || o.Status >= 500
}

// grpcCanceled is the gRPC status of a request that its client cancelled.
const grpcCanceled = 1

// erred reports whether the request ended in an error that may be its own fault: it asked for a model that no endpoint
// has, or that this one no longer has. Only a comparison with other endpoints shows which.
func (o *Outcome) erred() bool {
	return o.Status >= 400 || o.GRPCStatus != 0 && o.GRPCStatus != grpcCanceled
}

// Close ends the stream, and with it the requests that began over it.
func (s *Stream) Close() {
	l := s.ledger
	l.mu.Lock()
	defer l.release()
	e := s.envoy
	if e == nil {
		return
	}
	for s.open.head != nil {
		r := s.open.head
		a, open := r.key.account, !r.closed
		l.drop(r)
		if open {
			change := a.count.Lose()
			l.apply(a, &change)
		}
	}
	l.restate(e, func() { e.streams-- })
	l.regroup(e)
	s.envoy = nil
	l.leaveIfGone(e)
}
