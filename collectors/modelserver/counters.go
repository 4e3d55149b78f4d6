package modelserver

import (
	"cmp"
	"math"
	"slices"
	"time"

	"steelyard/weighting"
)

// Counters turns the counters of one server into sums that never decrease, the way Prometheus' increase() does: a
// series that is lower than before has restarted at zero, so all of its new value is growth. Each series is followed
// separately, because a server can restart a part of them (Triton does, when a model is reloaded), and the fall of that
// part must not make the whole sum of the others count again.
//
// A series that rose by more than any server can have counted since (weighting.Possible) was misread or miswritten, or
// belongs to another server at the same address. Its rise shows nothing: the sum stays, and continues from the new
// value.
//
// The zero Counters is ready for use. It belongs to one server and one
// goroutine.
type Counters struct {
	completions, queueSeconds, busySeconds       counterSum
	prompt, cached, generated, first, iterations counterSum
	restarts, leaps                              int
	at                                           time.Time // of the report before; zero for none
}

// A counterSum is the sum of the series of one field.
type counterSum struct {
	sum  float64
	last []lastSample // sorted by key: for a few series a map would take ten times the memory
}

// A lastSample is the value that a series had, and when.
type lastSample struct {
	key    string // name and labels
	value  float64
	at     time.Time
	leaped bool // the step to this value was a leap, so a fall from it is not a restart
}

// An observation says whether a counter of a report restarted or leaped.
type observation struct{ restarted, leaped bool }

// Observe adds a report that was true at the given moment. What is unknown in it is unknown in the result; a sum
// continues where it was when its field comes back. Restarts rises by one for a report with any counter that fell or
// rose implausibly, Implausible by one for a report with any that rose implausibly.
func (c *Counters) Observe(at time.Time, rep Report) weighting.ServerReport {
	var seen observation
	cumulative := func(f Field, s *counterSum) weighting.Reading {
		n := *rep.number(f)
		if !n.Known {
			return weighting.Reading{}
		}
		s.add(rep.samplesOf(f), c.at, at, &seen)
		return weighting.Reading{Value: s.sum, At: at}
	}
	out := weighting.ServerReport{
		Queue:        reading(at, rep.Queue),
		Running:      reading(at, rep.Running),
		Utilization:  reading(at, rep.Utilization),
		BlockTokens:  reading(at, rep.BlockTokens),
		Awake:        reading(at, rep.Awake),
		Completions:  cumulative(FieldCompletions, &c.completions),
		QueueSeconds: cumulative(FieldQueueSeconds, &c.queueSeconds),
		BusySeconds:  cumulative(FieldBusySeconds, &c.busySeconds),
	}
	out.Tokens = c.tokens(at, &rep, cumulative)
	if seen.leaped {
		c.leaps++
	}
	if seen.leaped || seen.restarted {
		c.restarts++
	}
	c.at = at
	out.Restarts, out.Implausible = c.restarts, c.leaps
	return out
}

// tokens returns the sums of an engine that counts prompt tokens and generated tokens.
func (c *Counters) tokens(
	at time.Time, rep *Report, sum func(Field, *counterSum) weighting.Reading,
) weighting.TokenCounts {
	sum(FieldPromptTokens, &c.prompt)
	sum(FieldCachedTokens, &c.cached)
	sum(FieldGeneratedTokens, &c.generated)
	sum(FieldFirstTokens, &c.first)
	sum(FieldIterations, &c.iterations)
	t := weighting.TokenCounts{
		Prompt: c.prompt.sum, Cached: c.cached.sum, Generated: c.generated.sum,
		First: c.first.sum, Iterations: c.iterations.sum,
	}
	if rep.PromptTokens.Known && rep.GeneratedTokens.Known && rep.FirstTokens.Known {
		t.At = at
	}
	return t
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

// countable is more than any server counts in years; up to it a float64 holds every whole number.
const countable = 1e15

// add adds what the samples grew by since the report before; a new series adds its whole value.
func (s *counterSum) add(samples []counterSample, before, at time.Time, seen *observation) {
	if s.last == nil {
		s.last = make([]lastSample, 0, len(samples))
	}
	known := s.last
	for _, sample := range samples {
		last := s.of(known, sample.key, before)
		growth := sample.value - last.value
		fell := growth < 0
		if fell {
			growth = sample.value
		}
		leaped := sample.value > countable || !before.IsZero() && !weighting.Possible(growth, at.Sub(last.at))
		seen.leaped, seen.restarted = seen.leaped || leaped, seen.restarted || fell
		if grown := s.sum + growth; !leaped && !(fell && last.leaped) && !math.IsInf(grown, 1) {
			s.sum = grown
		}
		last.value, last.at, last.leaped = sample.value, at, leaped
	}
	if len(s.last) > len(known) {
		slices.SortFunc(s.last, func(a, b lastSample) int { return cmp.Compare(a.key, b.key) })
	}
	s.forget(at, len(samples))
}

// of returns the last sample of a series: a known one, or a new one at the end, whose value was zero before.
func (s *counterSum) of(known []lastSample, key string, before time.Time) *lastSample {
	i, found := slices.BinarySearchFunc(known, key,
		func(l lastSample, key string) int { return cmp.Compare(l.key, key) })
	if !found {
		i = len(s.last)
		s.last = append(s.last, lastSample{key: key, at: before})
	}
	return &s.last[i]
}

// forget drops series that are gone, once there are more of them than live ones. It does not drop them at once, because
// a series that is missing from one body and back in the next has not restarted.
func (s *counterSum) forget(at time.Time, live int) {
	const spare = 64
	if len(s.last) <= 2*live+spare {
		return
	}
	s.last = slices.DeleteFunc(s.last, func(l lastSample) bool { return l.at != at })
}
