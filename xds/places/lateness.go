package places

import "time"

const (
	// mostLate bounds what is taken off the arrival times of a message, and so what a sender gains that lies.
	mostLate = time.Second
	// drift is the part by which the clocks of two machines may run apart: the most by which NTP slews one.
	drift = 500e-6
)

// A fastest is the message of a stream that took the least time; the others are late by what they took longer. The
// order of arrival needs that: a proxy reports how long a request had waited when the message was sent, and on a busy
// machine messages wait for a CPU.
//
// The two clocks have nothing in common, so a time between sent and received means nothing by itself, and two of them
// are compared. That of the fastest message rises by [drift], so that a sender's clock that is slow does not make all
// messages late. A message that is late by more than [mostLate] is the fastest from then on: either the sender's clock
// has jumped, or a faster one follows.
type fastest struct {
	sent     uint64 // in microseconds of the sender's clock; 0 before the first message
	received time.Time
}

// late returns how late a message is, 0 to [mostLate]; 0 where the sender does not say when it was sent.
func (f *fastest) late(sent uint64, received time.Time) time.Duration {
	if sent == 0 {
		return 0
	}
	if f.sent == 0 {
		*f = fastest{sent, received}
		return 0
	}
	passed := received.Sub(f.received)
	passedThere := time.Duration(int64(sent-f.sent)) * time.Microsecond // negative where the clock has jumped
	late := passed - passedThere - time.Duration(drift*float64(passed))
	if late < 0 || late > mostLate {
		*f = fastest{sent, received}
	}
	return min(max(0, late), mostLate)
}
