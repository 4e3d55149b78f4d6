package weighting

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Against all values of the past, one by one.
func TestLowsAreTheLowestOfASpan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type reading struct {
			at    time.Time
			value float64
		}
		const span = 1600 * time.Millisecond
		const width = span / lowParts
		var l lows
		past := []reading{{epoch.Add(-time.Hour), 0}}
		now := epoch
		for range rapid.IntRange(1, 200).Draw(t, "readings") {
			now = now.Add(time.Duration(rapid.IntRange(0, 300).Draw(t, "ms")) * time.Millisecond)
			value := float64(rapid.IntRange(0, 9).Draw(t, "value"))
			l.note(value, now, span)
			past = append(past, reading{now, value})
			got := l.since(now.Add(-span))
			// A part at the edge counts as a whole.
			least := func(since time.Time) float64 {
				low := value
				for i := len(past) - 1; i > 0 && past[i].at.After(since); i-- {
					low = min(low, past[i].value, past[i-1].value)
				}
				return low
			}
			if high, low := least(now.Add(-span)), least(now.Add(-span-width)); got > high || got < low {
				t.Fatalf("%v, of the span %v, and of it and a part %v", got, high, low)
			}
		}
	})
}

func TestLowsWorkWithAnyClock(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l lows
		for range 20 {
			at := time.Unix(rapid.Int64Range(-1<<40, 1<<40).Draw(t, "s"), 0)
			l.note(3, at, time.Duration(rapid.Int64().Draw(t, "span")))
			if low := l.since(time.Unix(rapid.Int64Range(-1<<40, 1<<40).Draw(t, "since"), 0)); low != 3 && low != 0 {
				t.Fatalf("%v", low)
			}
		}
	})
}
