package shed

import "math"

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
