package weighting

// The rates that shedding uses: requests offered, λ, and served, μ, per slot
//
// A rate that should be steady needs many requests, and one that should follow a crowd needs few. So λ and μ are made
// of 2,000 requests (within 15 s to 60 s), until the last hundred (λ: 1 s to 5 s, μ: 4 s to 20 s of saturation) are off
// by four standard deviations, 0.28 of the logarithm; then they start again from the last ten.
//
// λ and μ come from one source in each step, the proxies or otherwise the servers, so that traffic that one of them
// does not see is missing on both sides. Where neither counts requests, what leaves is estimated from the falls of the
// loads between two readings.

import (
	"math"
	"time"
)

// flows are the rates of a pool that shedding uses, each per slot.
type flows struct {
	served  adaptiveRate // completions of full slots, by the source that sees all of them
	done    adaptiveRate // the same, by the source of sent
	sent    adaptiveRate // arrivals, over the accepted part of the time
	changes loadChanges  // of loads that are reported without counters
}

// capacity is completions per second of a slot that is never free.
func (f *flows) capacity() float64 {
	if f.served.long.slotSeconds == 0 && f.changes.slotSeconds > 0 {
		return f.changes.departures()
	}
	return f.served.rate()
}

// excess is the logarithm of what is offered over what is served; 0 while that is not known.
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

// relearnOffered learns again what is offered, from the last few requests. Where no source counts requests it is known
// of a full pool only, and then learned from nothing.
func (f *flows) relearnOffered() {
	f.sent.long = f.sent.short
	if f.done.long.requests == 0 {
		f.sent = adaptiveRate{}
	}
}

// changed reports whether what is offered or what is served is no longer what it was.
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

// count takes in what came and went at the pool since the last step. Completions show the capacity only while hardly a
// slot is free.
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

// forget fades the rates by the time since the last reading. While there is no reading they stay: arrivals are
// forgotten sooner than completions, so a silence would look like a flood.
func (s *shedder) forget(now time.Time, slots float64) {
	if !s.lastReading.IsZero() && now.After(s.lastReading) {
		s.rates.fade(now.Sub(s.lastReading).Seconds(), slots, accepting(s.steps.last().drop), s.full)
	}
	s.lastReading = now
}

// offered counts what arrived together with what was refused meanwhile. A drop fraction takes effect about a push later
// than it was decided: fine-grained readings right after that still reflect the old drop fraction, and would look like
// a flood.
func (s *shedder) offered(m *member, p *passage) {
	const unsure = 100 * time.Millisecond
	inEffect := s.steps.last().since.Add(s.delay)
	if p.seconds > 0 && !(p.to.After(inEffect) && p.to.Before(inEffect.Add(unsure)) && p.to.Sub(p.from) < unsure) {
		accepted := s.steps.accepted(p.from.Add(-s.delay), p.to.Add(-s.delay))
		s.rates.sent.add(p.arrived, p.seconds*m.slotCount*accepted)
	}
}

// A passage is what came to an endpoint and left it between two readings. The zero passage is none.
type passage struct {
	arrived, left float64 // requests
	from, to      time.Time
	seconds       float64
}

// passages are what was reported since the last step: all completions; arrivals and ends by one source; and, without
// such a source, changes of the load. A pair of one source misses the same requests on both sides, so their ratio is
// right.
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

// tally is what had been reported of an endpoint at the last step.
type tally struct {
	server    ServerReport
	proxies   ProxyReport
	counts    Reading
	completed time.Time // when the last completion was reported
	free      time.Time // since when a slot has been free; zero while none is
}

func (t *tally) note(m *member) {
	if m.server.Completions.Value > t.server.Completions.Value {
		t.completed = m.server.Completions.At
	}
	t.server, t.proxies, t.counts = m.server, m.proxies, m.counts()
}

// idle is how long a slot has been free at each step.
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
	return passage{
		arrived * dt.Seconds(), left * dt.Seconds(), t.server.Completions.At, seen.Completions.At, dt.Seconds(),
	}
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

// adaptiveRate is a rate of many requests, for as long as the last few do not contradict it: then it starts again from
// those.
type adaptiveRate struct {
	short, long throughput
	changed     bool // at the last fading
}

func (s *adaptiveRate) add(requests, slotSeconds float64) {
	s.short.add(requests, slotSeconds)
	s.long.add(requests, slotSeconds)
}

func (s *adaptiveRate) rate() float64 { return s.long.rate() }

// fade lets the rate forget. The last few are no fewer than come in the least time given, in seconds.
func (s *adaptiveRate) fade(elapsed, slots, least float64) {
	const (
		few, many  = 100, 2000 // requests
		sigmas     = 4         // of a rate of the few
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

// keep is the part of a sum that is left after some time, so that it stands for so many requests, but no less than the
// least time and no more than the most, in seconds.
func keep(elapsed, perSecond, requests, least, most float64) float64 {
	return math.Exp(-elapsed / min(max(requests/max(perSecond, requests/most), least), most))
}

// throughput is requests per slot and second.
type throughput struct{ requests, slotSeconds float64 }

func (t *throughput) fade(keep float64) {
	t.requests *= keep
	t.slotSeconds *= keep
}

func (t *throughput) add(requests, slotSeconds float64) {
	t.requests += requests
	t.slotSeconds += slotSeconds
}

// rate counts one request more than there were, so that a pool in which nothing completes has a rate, too: one that
// falls with time.
func (t *throughput) rate() float64 { return (t.requests + 1) / t.slotSeconds }

// loadChanges are sums over the changes of loads between two readings.
type loadChanges struct{ readings, falls, slotSeconds float64 }

func (m *loadChanges) fade(keep float64) {
	m.readings *= keep
	m.falls *= keep
	m.slotSeconds *= keep
}

func (m *loadChanges) add(change, slotSeconds float64) {
	if slotSeconds <= 0 {
		return
	}
	m.readings++
	m.falls += max(0, -change)
	m.slotSeconds += slotSeconds
}

// departures is how many requests leave per second and slot. A fall hides what arrived meanwhile. With f the mean fall
// between two readings, f leave where they are few, and f + f² is right for those that are fewer than one, and too
// little by half at five.
func (m *loadChanges) departures() float64 {
	f := m.falls / max(m.readings, 1)
	return (f*(1+f)*m.readings + 1) / m.slotSeconds
}
