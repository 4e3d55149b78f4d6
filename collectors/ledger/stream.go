package ledger

import (
	"hash/maphash"
	"time"
)

// A Stream is an open access log stream. Each worker of an Envoy has one for each
// of its loggers; they are one Envoy's together.
type Stream struct {
	ledger *Ledger
	envoy  *envoy // nil for one too many, and after Close
	open   list   // requests that began over it
}

// Open notes that a stream of an Envoy's access log was opened. What one Envoy
// too many says is ignored.
func (l *Ledger) Open(who Envoy, now time.Time) *Stream {
	l.mu.Lock()
	defer l.release()
	s := &Stream{ledger: l, envoy: l.envoyFor(who, now), open: list{which: inStream}}
	if s.envoy != nil {
		l.restate(s.envoy, func() { s.envoy.streams++ })
		l.hear(s.envoy, now)
	}
	return s
}

// Begin notes that a request got its connection to an endpoint.
func (s *Stream) Begin(now time.Time, id, address string) {
	s.one(now, maphash.String(s.ledger.seed, id), address, &Event{})
}

// End notes that a request to an endpoint is over.
func (s *Stream) End(now time.Time, id, address string, o Outcome) {
	s.one(now, maphash.String(s.ledger.seed, id), address, &Event{Ended: true, Outcome: o})
}

func (s *Stream) one(now time.Time, id uint64, address string, ev *Event) {
	l := s.ledger
	l.mu.Lock()
	defer l.release()
	if s.envoy == nil {
		return
	}
	began := l.event(s, id, l.addresses[address], ev)
	l.heardEvents(s.envoy, now, began)
}

// Events notes what one message of the stream says, in order.
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
		began += l.event(s, maphash.Bytes(l.seed, ev.ID), l.addresses[string(ev.Address)], ev)
	}
	l.heardEvents(s.envoy, now, began)
}

// heardEvents notes when events came, and how many of them were beginnings.
func (l *Ledger) heardEvents(e *envoy, now time.Time, began int) {
	e.lastEvent = now
	l.hear(e, now)
	if e.mode == ModeReports {
		return // the rate is the reports'
	}
	e.rate.note(now, float64(began))
	l.judge(e, now, false)
}

// event takes in one event and returns how many requests began: 0 or 1.
func (l *Ledger) event(s *Stream, id uint64, at *address, ev *Event) (began int) {
	e := s.envoy
	e.events++
	if !ev.Ended {
		began = 1
	}
	a := l.accountWith(e, at)
	if a == nil || len(a.slots) == 0 {
		l.ignore(e, at)
	}
	switch {
	case a == nil:
	case e.mode == ModeReports: // a straggler, or one that was not told: the reports count
	case ev.Ended:
		l.end(a, id, &ev.Outcome)
	default:
		l.begin(s, a, id, ev.Bytes)
	}
	return began
}

// ignore counts an entry about an address that the Envoy has no business with.
func (l *Ledger) ignore(e *envoy, at *address) {
	e.ignored++
	if at == nil {
		return
	}
	for _, s := range at.slots {
		s.cluster.ignored++
	}
}

func (l *Ledger) begin(s *Stream, a *account, id, received uint64) {
	if !l.record(s, key{id, a}, received) {
		a.envoy.unrecorded++
	}
	if a.envoy.reported {
		a.gap--
	}
	l.issue(a, 1)
	l.settle(a)
}

func (l *Ledger) end(a *account, id uint64, o *Outcome) {
	received := uint64(0) // before the beginning
	if !o.ConnectFailed {
		if r := a.envoy.requests[key{id, a}]; r != nil {
			received = r.received
			l.drop(r)
		} else {
			a.endUnseen()
		}
	}
	l.credit(a, o.sums(received))
	l.settle(a)
}

// endUnseen notes an end without a beginning. It lowers what a report told of
// requests that began unseen, and never what was seen to begin.
func (a *account) endUnseen() {
	a.envoy.unpaired++
	if a.correction > 0 {
		a.correction--
	}
	if a.difference > 0 {
		a.difference--
	}
}

// sums is what one end adds. received are the bytes before the beginning.
func (o *Outcome) sums(received uint64) sums {
	if o.ConnectFailed {
		return sums{failed: 1}
	}
	d := sums{ended: 1}
	if o.failed() {
		d.failed = 1
	}
	if o.Status > 0 && o.Latency > 0 && !o.Reset {
		d.answered, d.bytes, d.latency = 1, o.Bytes-min(received, o.Bytes), seconds(o.Latency)
	}
	return d
}

// failed says whether the endpoint failed the request. A 503 did not: it is the
// answer of a full queue.
func (o *Outcome) failed() bool {
	return o.ConnectFailed || o.Reset || o.Status >= 500 && o.Status != 503
}

// Close ends the stream, and with it the requests that began over it.
func (s *Stream) Close(now time.Time) {
	l := s.ledger
	l.mu.Lock()
	defer l.release()
	e := s.envoy
	if e == nil {
		return
	}
	for s.open.head != nil {
		a := s.open.head.key.account
		l.drop(s.open.head)
		a.difference++ // it may go on unseen: the next report is asked
		l.settle(a)
	}
	l.restate(e, func() { e.streams-- })
	s.envoy = nil
	l.leaveIfGone(e)
}
