package modelserver

import (
	"math"
	"time"

	"steelyard/weighting"
)

// Counters turns the counters of one server into sums that never go back, the
// way Prometheus' increase() does: a series that is lower than before has begun
// again at zero, so all of its new value is growth. Each series is followed on
// its own, because a server can restart a part of them (Triton does, when a
// model is reloaded) and the fall of that part must not make the whole sum of
// the others count again.
//
// The zero Counters is ready for use. It belongs to one server and one
// goroutine.
type Counters struct {
	completions, queueSeconds, busySeconds counterSum
	restarts                               int
	reports                                uint64 // observed so far
}

// A counterSum is the sum of the series of one field.
type counterSum struct {
	sum  float64
	last map[uint64]lastSample // by seriesKey
}

// A lastSample is the value that a series had, and in which report.
type lastSample struct {
	value  float64
	report uint64
}

// Observe adds the report that was true at the given moment. What is unknown in
// it is unknown in the result; a sum goes on where it was when its field comes
// back. Restarts rises by one for a report in which any counter is lower than
// in the report before, however many are.
func (c *Counters) Observe(at time.Time, rep Report) weighting.ServerReport {
	c.reports++
	restarted := false
	cumulative := func(f Field, s *counterSum) weighting.Reading {
		n := *rep.number(f)
		if !n.Known {
			return weighting.Reading{}
		}
		if s.add(rep.samplesOf(f), c.reports) {
			restarted = true
		}
		return weighting.Reading{Value: s.sum, At: at}
	}
	out := weighting.ServerReport{
		Queue:        reading(at, rep.Queue),
		Running:      reading(at, rep.Running),
		Utilization:  reading(at, rep.Utilization),
		Completions:  cumulative(FieldCompletions, &c.completions),
		QueueSeconds: cumulative(FieldQueueSeconds, &c.queueSeconds),
		BusySeconds:  cumulative(FieldBusySeconds, &c.busySeconds),
	}
	if restarted {
		c.restarts++
	}
	out.Restarts = c.restarts
	return out
}

// reading dates a gauge.
func reading(at time.Time, n Number) weighting.Reading {
	if !n.Known {
		return weighting.Reading{}
	}
	return weighting.Reading{Value: n.Value, At: at}
}

// samplesOf lists the counter samples behind a field. A Report that no Reader
// made has none: its number is then the only series.
func (r *Report) samplesOf(f Field) []counterSample {
	first, end := -1, -1
	for i, s := range r.series {
		if s.field == f {
			if first < 0 {
				first = i
			}
			end = i + 1
		}
	}
	if first < 0 {
		return []counterSample{{field: f, value: r.number(f).Value}}
	}
	return r.series[first:end] // a Reader writes the samples of a field together
}

// add counts what the samples grew by, and reports whether one began again.
func (s *counterSum) add(samples []counterSample, report uint64) (restarted bool) {
	if s.last == nil {
		s.last = make(map[uint64]lastSample, len(samples))
	}
	for _, sample := range samples {
		growth := sample.value
		if before, ok := s.last[sample.key]; ok && sample.value >= before.value {
			growth -= before.value
		} else if ok {
			restarted = true
		}
		s.last[sample.key] = lastSample{value: sample.value, report: report}
		if grown := s.sum + growth; !math.IsInf(grown, 1) {
			s.sum = grown
		}
	}
	s.forget(report, len(samples))
	return restarted
}

// forget drops series that are gone, once there are more of them than there are
// live ones. Not at once: a series that is missing from one body and back in
// the next has not begun again.
func (s *counterSum) forget(report uint64, live int) {
	const spare = 64
	if len(s.last) <= 2*live+spare {
		return
	}
	for key, l := range s.last {
		if l.report != report {
			delete(s.last, key)
		}
	}
}
