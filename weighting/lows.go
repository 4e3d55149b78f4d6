package weighting

import (
	"math"
	"time"
)

// lows are the lowest values of a count within the last span of time and a little more, in
// parts of that span.
type lows struct {
	width time.Duration // of a part
	part  int64         // the newest, in widths since the epoch
	value float64       // now
	least [24]float64   // by part; a ring
}

// lowParts is in how many parts the span is looked at.
const lowParts = 16

// note takes in the value of the count as of now.
func (l *lows) note(value float64, now time.Time, span time.Duration) {
	width := max(span/lowParts, time.Millisecond)
	part := now.UnixNano() / int64(width)
	if width != l.width || part-l.part > int64(len(l.least)) {
		for i := range l.least { // it stood as it was for the whole span, or nobody knows
			l.least[i] = min(l.value, value)
		}
		l.width, l.part = width, part
	}
	for ; l.part < part; l.part++ {
		l.least[(l.part+1)%int64(len(l.least))] = l.value
	}
	l.value = value
	slot := &l.least[part%int64(len(l.least))]
	*slot = min(*slot, value)
}

// since is the lowest value from that time on, as far back as it is known.
func (l *lows) since(at time.Time) float64 {
	if l.width == 0 {
		return 0
	}
	least := math.Inf(1)
	first := max(at.UnixNano()/int64(l.width), l.part-int64(len(l.least))+1)
	for part := first; part <= l.part; part++ {
		least = min(least, l.least[part%int64(len(l.least))])
	}
	return least
}
