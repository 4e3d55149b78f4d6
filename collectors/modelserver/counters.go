package modelserver

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"steelyard/weighting"
)

// Counters turns the counters of one server into sums that never decrease, the way Prometheus' increase() does: a
// series that is lower than before has restarted at zero, so all of its new value is growth. Each series is followed
// separately, because a server can restart a part of them (Triton does, when a model is reloaded), and the fall of that
// part must not make the whole sum of the others count again.
//
// By Prometheus and OpenMetrics a counter only rises, or begins again at zero when its process does, and then all
// counters of that process begin again. Some parts of a server do so by themselves: a model that a Triton loads again,
// an engine of data parallelism. So a part has begun again when more than half of its series that can fall do, at least
// two of them, and one to less than half of what it was; and it is a restart when all parts have. Where a part comes
// back to what it had before, within patience, it is one, too: there are several servers. A counter that falls by
// itself, or rises by more than any server can have counted since (weighting.Possible), is wrong for reasons of its
// own: its number is unknown, and all others stand, until it goes on from where it was. After patience it goes on from
// where it is.
//
// The zero Counters is ready for use. It belongs to one server and one
// goroutine.
type Counters struct {
	sums            [8]counterSum // of the fields that are counters, in their order
	restarts, leaps int
	at              time.Time // of the report before; zero for none
	units           []unit    // of the latest report
}

// A unit is a part of the server whose counters begin again together.
type unit struct {
	able, fallen, back int  // series: with a value before, lower now, and as they were before they began again
	deep               bool // one is less than half of what it was
	begins             bool // by itself
}

// Describe names the series of a body that are wrong, and what is.
func (r *Reader) Describe(body []byte, wrong []Wrong) string {
	sources, _ := r.Explain(body)
	var out []string
	for _, w := range wrong {
		i := slices.IndexFunc(sources, func(f FieldSource) bool { return f.Field == w.Field })
		what := "fell, and the server has not restarted"
		if w.Leaps {
			what = "rose by more than any server can count"
		}
		if i >= 0 {
			out = append(out, strings.Join(sources[i].Series, " + ")+" "+what)
		}
	}
	return strings.Join(out, "; ")
}

// patience is how long a counter that is wrong is unknown.
const patience = 10 * time.Second

// A counterSum is the sum of the series of one field.
type counterSum struct {
	sum  float64
	at   time.Time    // when it was last known
	last []lastSample // sorted by key: for a few series a map would take ten times the memory
}

// A lastSample is the value that a series had, and when.
type lastSample struct {
	key   string // name and labels
	value float64
	at    time.Time
	wrong time.Time // since when the series has shown what cannot follow from that; zero where it does not

	was   float64 // before its part of the server began again by itself
	began time.Time
}

// A Wrong is a counter of a report that cannot be right by itself.
type Wrong struct {
	Field Field
	Leaps bool // it rose by more than any server can count; otherwise it fell, and that was no restart
}

// Observe adds a report that was true at the given moment. What is unknown in it is unknown in the result, and so is
// what is wrong, which is returned; a sum continues where it was when its field comes back. Restarts rises by one for a
// report of another process, Implausible by one for a report in which a counter begins to be too high.
func (c *Counters) Observe(at time.Time, rep Report) (weighting.ServerReport, []Wrong) {
	restarted := c.begin(at, &rep)
	if restarted {
		c.restarts++
	}
	var wrong []Wrong
	leaps := false
	for i, f := range counters {
		if !rep.number(f).Known {
			continue
		}
		s := &c.sums[i]
		fell, leaped, begins := s.add(rep.samplesOf(f), c.at, at, c.units, restarted)
		if fell || leaped {
			wrong, leaps = append(wrong, Wrong{f, leaped}), leaps || leaped && begins
		} else {
			s.at = at
		}
	}
	if leaps {
		c.leaps++
	}
	c.at = at
	return weighting.ServerReport{
		Queue:        reading(at, rep.Queue),
		Running:      reading(at, rep.Running),
		Utilization:  reading(at, rep.Utilization),
		BlockTokens:  reading(at, rep.BlockTokens),
		Awake:        reading(at, rep.Awake),
		Completions:  c.reading(FieldCompletions),
		QueueSeconds: c.reading(FieldQueueSeconds),
		BusySeconds:  c.reading(FieldBusySeconds),
		Tokens:       c.tokens(),
		Restarts:     c.restarts, Implausible: c.leaps,
	}, wrong
}

// counters lists the fields that are cumulative.
var counters = slices.DeleteFunc(slices.Clone(fields), func(f Field) bool { return !f.counter() })

func (c *Counters) of(f Field) *counterSum { return &c.sums[slices.Index(counters, f)] }

// reading is a sum of the latest report.
func (c *Counters) reading(f Field) weighting.Reading {
	if s := c.of(f); s.at.Equal(c.at) {
		return weighting.Reading{Value: s.sum, At: s.at}
	}
	return weighting.Reading{}
}

// tokens returns the sums of an engine that counts prompt tokens and generated tokens. They are of one moment: where
// one is missing that there was just before, all are unknown.
func (c *Counters) tokens() weighting.TokenCounts {
	prompt, cached, generated := c.of(FieldPromptTokens), c.of(FieldCachedTokens), c.of(FieldGeneratedTokens)
	first, iterations := c.of(FieldFirstTokens), c.of(FieldIterations)
	t := weighting.TokenCounts{
		Prompt: prompt.sum, Cached: cached.sum, Generated: generated.sum, First: first.sum, Iterations: iterations.sum,
	}
	missing := func(s *counterSum) bool { return !s.at.Equal(c.at) && c.at.Sub(s.at) <= patience }
	if prompt.at.Equal(c.at) && generated.at.Equal(c.at) && first.at.Equal(c.at) &&
		!missing(cached) && !missing(iterations) {
		t.At = c.at
	}
	t.Live = iterations.at.Equal(c.at) || slices.ContainsFunc(generated.last, func(s lastSample) bool {
		return strings.HasPrefix(s.key, sglangTokens)
	})
	return t
}

// begin finds out which parts of the server have begun again, and reports whether the report is of another process than
// the one before.
func (c *Counters) begin(at time.Time, rep *Report) (restarted bool) {
	c.units = c.units[:0]
	for i, f := range counters {
		if !rep.number(f).Known {
			continue
		}
		for _, sample := range rep.samplesOf(f) {
			for len(c.units) <= sample.unit {
				c.units = append(c.units, unit{})
			}
			if k, found := find(c.sums[i].last, sample.key); found {
				c.units[sample.unit].compare(&c.sums[i].last[k], sample.value, at)
			}
		}
	}
	able, standing, deep, back := false, false, false, false
	for i := range c.units {
		u := &c.units[i]
		fell := 2*u.fallen > u.able
		u.begins = fell && u.deep && u.fallen > 1
		able, standing = able || u.able > 0, standing || u.able > 0 && !fell
		deep, back = deep || u.deep, back || u.back > 0 && 2*u.back > u.able
	}
	return able && !standing && deep || back
}

// compare takes in the value of a series.
func (u *unit) compare(last *lastSample, value float64, at time.Time) {
	if last.value <= 0 {
		return
	}
	u.able++
	if value < last.value {
		u.fallen++
	}
	u.deep = u.deep || value < last.value/2
	if last.was > 0 && value >= last.was && at.Sub(last.began) < patience {
		u.back++
	}
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

// add adds what the samples grew by since the report before; a new series adds its whole value. It reports whether one
// has fallen or leaped, and whether it has just begun to.
func (s *counterSum) add(samples []counterSample, before, at time.Time, units []unit, restarted bool) (
	fell, leaped, begins bool) {
	known := s.last
	for _, sample := range samples {
		last := s.of(known, sample.key, before)
		growth := sample.value - last.value
		if again := restarted || units[sample.unit].begins; again && growth < 0 {
			if growth = sample.value; !restarted {
				last.was, last.began = last.value, at
			}
		}
		falls := growth < 0
		leaps := sample.value > countable || !before.IsZero() && !weighting.Possible(growth, at.Sub(last.at))
		switch {
		case !falls && !leaps:
			s.sum += growth
		case last.wrong.IsZero():
			last.wrong, begins = at, true
			fallthrough
		case at.Sub(last.wrong) < patience:
			fell, leaped = fell || falls, leaped || leaps
			continue
		}
		last.value, last.at, last.wrong = sample.value, at, time.Time{}
	}
	if len(s.last) > len(known) {
		slices.SortFunc(s.last, func(a, b lastSample) int { return cmp.Compare(a.key, b.key) })
	}
	s.forget(at, len(samples))
	return fell, leaped, begins
}

// find returns where the last sample of a series is.
func find(known []lastSample, key string) (int, bool) {
	return slices.BinarySearchFunc(known, key,
		func(l lastSample, key string) int { return cmp.Compare(l.key, key) })
}

// of returns the last sample of a series: a known one, or a new one at the end, whose value was zero before.
func (s *counterSum) of(known []lastSample, key string, before time.Time) *lastSample {
	i, found := find(known, key)
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
	s.last = slices.DeleteFunc(s.last, func(l lastSample) bool {
		return l.at != at && at.Sub(l.wrong) >= patience
	})
}
