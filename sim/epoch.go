package sim

import "time"

// epoch is the moment at which a simulation's clock stands at zero: a date with a monotonic reading, as the times of a
// real loop have, because differences of such times take a third of the time. Only the clock of the machine has one.
// Nothing depends on what it is.
var epoch = func() time.Time {
	now := time.Now()
	return now.Add(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Sub(now))
}()
