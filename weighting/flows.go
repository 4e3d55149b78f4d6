package weighting

import (
	"math"
	"time"
)

// flows are the rates of a pool that shedding goes by, each for one slot.
type flows struct {
	served  adaptiveRate // completions of full slots, by those who see all of them
	done    adaptiveRate // the same, by those who also tell what arrives
	sent    adaptiveRate // arrivals, over the part of the time that was not refused
	changes loadChanges  // of loads that come without counters
}

// capacity is completions per second of a slot that is never free.
func (f *flows) capacity() float64 {
	if f.served.long.slotSeconds == 0 && f.changes.slotSeconds > 0 {
		return f.changes.departures()
	}
	return f.served.rate()
}

// excess is the logarithm of what is offered over what is served; 0 while that is
// not known.
func (f *flows) excess() float64 {
	const (
		sure    = 10   // requests
		extreme = 1e-9 // of a ratio
	)
	if f.sent.long.requests < sure {
		return 0
	}
	left := f.done.rate()
	if f.done.long.requests < sure {
		if f.changes.readings < sure {
			return 0
		}
		left = f.changes.departures()
	}
	return math.Log(max(f.sent.rate()/left, extreme))
}

// again has what is offered be learned again, from the last few. Where nobody counts
// it is known of a full pool alone, and so from nothing.
func (f *flows) relearnOffered() {
	f.sent.long = f.sent.short
	if f.done.long.requests == 0 {
		f.sent = adaptiveRate{}
	}
}

// turned reports whether what is offered or what is served is no longer what it was.
func (f *flows) changed() bool { return f.sent.changed || f.done.changed }

// fade lets the rates forget.
func (f *flows) fade(elapsed, slots, accepted float64, full bool) {
	const requests, least, most = 100, 4, 60 // of loadChanges; seconds
	f.sent.fade(elapsed, slots*accepted, 1)
	f.done.changed = false
	if full {
		f.done.fade(elapsed, slots, least)
		f.served.fade(elapsed, slots, least)
		f.changes.fade(keep(elapsed, f.changes.departures()*slots, requests, least, most))
	}
}

// count takes in what came and went at the pool since the last step. What
// completes tells of the capacity only while hardly a slot is free.
func (s *shedder) count(p *pool) {
	var slots float64
	for i := range p.members {
		slots += p.members[i].slotCount
	}
	for i := range p.members {
		m := &p.members[i]
		all, pair, change := m.passages(p)
		m.tally.note(m)
		if m.ejected() || m.unused {
			continue
		}
		if all.seconds+pair.seconds+change.seconds > 0 {
			s.forget(p.now, slots)
		}
		s.offered(m, &pair)
		if s.full {
			s.rates.done.add(pair.left, pair.seconds*m.slotCount)
			s.rates.served.add(all.left, all.seconds*m.slotCount)
			s.rates.changes.add(change.arrived-change.left, change.seconds*m.slotCount)
			change.arrived += s.rates.changes.departures()*change.seconds*m.slotCount - change.left
			s.offered(m, &change)
		}
	}
}

// forget has the rates fade by the time since something was told. While nobody tells
// anything they stand: arrivals are forgotten sooner than completions, so that a
// silence would read as a flood.
func (s *shedder) forget(now time.Time, slots float64) {
	if !s.lastReading.IsZero() && now.After(s.lastReading) {
		s.rates.fade(now.Sub(s.lastReading).Seconds(), slots, accepting(s.steps.last().drop), s.full)
	}
	s.lastReading = now
}

// offered counts what arrived together with what was refused meanwhile. A share
// is in force a push later than it was decided, more or less: who looks closely sees
// arrivals by the old one just after that, which would read as a flood.
func (s *shedder) offered(m *member, p *passage) {
	const unsure = 100 * time.Millisecond
	inForce := s.steps.last().since.Add(s.delay)
	if p.seconds > 0 && !(p.to.After(inForce) && p.to.Before(inForce.Add(unsure)) && p.to.Sub(p.from) < unsure) {
		accepted := s.steps.accepted(p.from.Add(-s.delay), p.to.Add(-s.delay))
		s.rates.sent.add(p.arrived, p.seconds*m.slotCount*accepted)
	}
}

// A passage is what came to an endpoint and left it between two readings. The zero
// passage is none.
type passage struct {
	arrived, left float64 // requests
	from, to      time.Time
	seconds       float64
}

// passages are what was told since the last step: of all completions, of arrivals
// and ends by one source, and, without such a source, of the load. A pair of one
// source misses the same requests on both sides, so their ratio is right.
func (m *member) passages(p *pool) (all, pair, change passage) {
	server, proxies := p.usable(m.server.Completions), p.usable(m.proxies.Issued) && p.usable(m.proxies.Ended)
	switch {
	case server && proxies:
		return m.tally.byServer(&m.server), m.tally.byProxies(&m.proxies), change
	case server:
		all = m.tally.byServer(&m.server)
		return all, all, change
	case proxies:
		all = m.tally.byProxies(&m.proxies)
		return all, all, change
	}
	return all, pair, m.tally.byChange(m.counts())
}

// counts is the number of requests at the endpoint as one reading.
func (m *memory) counts() Reading {
	queue, running := m.server.Queue, m.server.Running
	switch {
	case m.inFlight.Known():
		return m.inFlight
	case queue.Known() && running.Known():
		return Reading{Value: queue.Value + running.Value, At: earlier(queue.At, running.At)}
	case queue.Known():
		return queue
	}
	return running
}

// tally is what had been told of an endpoint at the last step.
type tally struct {
	server    ServerReport
	proxies   ProxyReport
	counts    Reading
	completed time.Time // of the report of the last completion
	free      time.Time // since when a slot has been free; zero while none is
}

func (t *tally) note(m *member) {
	if m.server.Completions.Value > t.server.Completions.Value {
		t.completed = m.server.Completions.At
	}
	t.server, t.proxies, t.counts = m.server, m.proxies, m.counts()
}

// idle is for how long a slot has been seen free at each step.
func (t *tally) idle(free bool, now time.Time) time.Duration {
	switch {
	case !free:
		t.free = time.Time{}
		return 0
	case t.free.IsZero():
		t.free = now
	}
	return now.Sub(t.free)
}

func (t *tally) byServer(seen *ServerReport) passage {
	left, dt := flow(t.server.Completions, seen.Completions)
	if math.IsNaN(left) || t.server.Restarts != seen.Restarts {
		return passage{}
	}
	queued, _ := slope(t.server.Queue, seen.Queue)
	ran, _ := slope(t.server.Running, seen.Running)
	arrived := left + orZero(sumKnown(queued, ran))
	return passage{arrived * dt.Seconds(), left * dt.Seconds(), t.server.Completions.At, seen.Completions.At, dt.Seconds()}
}

func (t *tally) byProxies(seen *ProxyReport) passage {
	arrived, _ := flow(t.proxies.Issued, seen.Issued)
	left, dt := flow(t.proxies.Ended, seen.Ended)
	if math.IsNaN(arrived + left) {
		return passage{}
	}
	return passage{arrived * dt.Seconds(), left * dt.Seconds(), t.proxies.Ended.At, seen.Ended.At, dt.Seconds()}
}

func (t *tally) byChange(seen Reading) passage {
	growth, dt := slope(t.counts, seen)
	if math.IsNaN(growth) {
		return passage{}
	}
	growth *= dt.Seconds()
	return passage{max(0, growth), max(0, -growth), t.counts.At, seen.At, dt.Seconds()}
}

// steady is a rate that stands on many requests, for as long as the last few do not
// contradict it: then it begins anew.
type adaptiveRate struct {
	short, long throughput
	changed     bool // at the last fading
}

func (s *adaptiveRate) add(requests, slotSeconds float64) {
	s.short.add(requests, slotSeconds)
	s.long.add(requests, slotSeconds)
}

func (s *adaptiveRate) rate() float64 { return s.long.rate() }

// fade lets the rate forget. The last few are no fewer than come in the least time
// given, in seconds.
func (s *adaptiveRate) fade(elapsed, slots, least float64) {
	const (
		few, many  = 100, 2000 // requests
		sigmas     = 4         // of a rate that stands on the few
		kept       = 10        // requests of the few that still count then
		some, most = 15, 60    // seconds
	)
	s.short.fade(keep(elapsed, s.short.rate()*slots, few, least, 5*least))
	s.long.fade(keep(elapsed, s.long.rate()*slots, many, some, most))
	off := math.Abs(math.Log(s.short.rate() / s.long.rate()))
	if s.changed = off*math.Sqrt(2*s.short.requests) > sigmas; s.changed {
		s.short.fade(min(1, kept/s.short.requests))
		s.long = s.short
	}
}

// keep is the part of sums that is left after a time, so that so many requests stand
// behind them, but no less than the least time and no more than the most.
func keep(elapsed, perSecond, requests, least, most float64) float64 {
	return math.Exp(-elapsed / min(max(requests/max(perSecond, requests/most), least), most))
}

// throughput is requests for each slot and second.
type throughput struct{ requests, slotSeconds float64 }

func (t *throughput) fade(keep float64) {
	t.requests *= keep
	t.slotSeconds *= keep
}

func (t *throughput) add(requests, slotSeconds float64) {
	t.requests += requests
	t.slotSeconds += slotSeconds
}

// rate counts one request more than there were, so that a pool in which nothing
// completes has a rate, too: one that falls with time.
func (t *throughput) rate() float64 { return (t.requests + 1) / t.slotSeconds }

// loadChanges are of the changes of loads between two readings.
type loadChanges struct{ readings, sum, falls, slotSeconds float64 }

func (m *loadChanges) fade(keep float64) {
	m.readings *= keep
	m.sum *= keep
	m.falls *= keep
	m.slotSeconds *= keep
}

func (m *loadChanges) add(change, slotSeconds float64) {
	if slotSeconds <= 0 {
		return
	}
	m.readings++
	m.sum += change
	m.falls += max(0, -change)
	m.slotSeconds += slotSeconds
}

// left is how many requests leave per second, for each slot. A fall hides what
// arrived meanwhile. With f the mean fall between two readings, f leave where they
// are few, and f + f² is right for those that are fewer than one, and too little by
// half at five.
func (m *loadChanges) departures() float64 {
	f := m.falls / max(m.readings, 1)
	return (f*(1+f)*m.readings + 1) / m.slotSeconds
}
