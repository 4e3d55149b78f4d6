package loadstats

import (
	"testing"
	"time"
)

func TestInterval(t *testing.T) {
	const mib = 1 << 20
	cases := []struct {
		name   string
		envoys int
		beside bool
		least  time.Duration
		budget float64
		want   time.Duration
	}{
		{"ten beside the access log", 10, true, 0, 2 * mib, time.Second},
		{"ten alone, paid for", 10, false, 0, 10 * mib, 100 * time.Millisecond},
		{"ten alone, on a small budget", 10, false, 0, 2 * mib, 290870666 * time.Nanosecond},
		{"a hundred alone", 100, false, 0, 2 * mib, 2908706665 * time.Nanosecond},
		{"a thousand beside the access log", 1000, true, 0, 2 * mib, 29087066650 * time.Nanosecond},
		{"more than the budget is for", 100_000, true, 0, 2 * mib, time.Minute},
		{"a least of one's own", 10, true, 50 * time.Millisecond, 100 * mib, 50 * time.Millisecond},
		{"a long least", 10, false, 2 * time.Minute, 100 * mib, 2 * time.Minute},
		{"no budget", 1000, false, 0, 0, 100 * time.Millisecond},
		{"nobody", 0, true, 0, 2 * mib, time.Second},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got := Interval(c.envoys, c.beside, c.least, c.budget)
			if diff := got - c.want; diff < -time.Microsecond || diff > time.Microsecond {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}
}
