package weighting

import (
	"math"
	"time"
)

// lows are the lowest values of a count within the last span of time and a little more, in parts of that span.
type lows struct {
	from  time.Time // the first part begins
	width time.Duration
	part  int              // the newest
	value float64          // now
	least [lowMost]float64 // by part; a ring
}

// lowParts is the number of parts of the span, and lowMost of those that are kept.
const lowParts, lowMost = 16, 24

// spanOf is the span for looking back so far: one of few, so that it rarely changes.
func spanOf(least, back time.Duration) time.Duration {
	const farthest = time.Hour
	for least > 0 && least < farthest && least*lowMost/lowParts < back+least/lowParts {
		least *= 2
	}
	return least
}

// note takes in the present value of the count. With another span it starts again from 0, and after a gap as if the
// count had long been at the lower one of the last two values.
func (l *lows) note(value float64, now time.Time, span time.Duration) {
	width := max(span/lowParts, time.Millisecond)
	if width != l.width || l.at(now) >= l.part+len(l.least) {
		low := min(l.value, value)
		if width != l.width {
			low = 0
		}
		*l = lows{from: now, width: width, part: len(l.least), value: low}
		for i := range l.least {
			l.least[i] = low
		}
	}
	for ; l.part < l.at(now); l.part++ {
		l.least[(l.part+1)%len(l.least)] = l.value
	}
	l.value = value
	slot := &l.least[l.part%len(l.least)]
	*slot = min(*slot, value)
}

// at is the part of a time, as a number from 0 on.
func (l *lows) at(t time.Time) int {
	const farthest = math.MaxInt32
	since := t.Sub(l.from) / l.width
	return int(max(0, min(since+time.Duration(len(l.least)), farthest)))
}

// since is the lowest value from that time on, as far back as it is known.
func (l *lows) since(t time.Time) float64 {
	if l.width == 0 {
		return 0
	}
	least := math.Inf(1)
	for part := max(min(l.at(t), l.part), l.part-len(l.least)+1); part <= l.part; part++ {
		least = min(least, l.least[part%len(l.least)])
	}
	return least
}
