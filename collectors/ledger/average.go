package ledger

import (
	"time"

	"steelyard/weighting/flight"
)

// defaultAlpha is the weight of an end in the averages of a cluster without one of its own.
const defaultAlpha = 0.3

// An average is a moving average over ends, not over time: each end has the weight alpha, and the first one the weight
// 1.
type average struct {
	value float64
	at    time.Time // of the newest end; zero: there was none
}

func (m *average) add(now time.Time, alpha, value float64) {
	if m.at.IsZero() {
		alpha = 1
	}
	m.value += alpha * (value - m.value)
	m.at = now
}

// average adds an end, which adds d to the sums, to the averages. received are the bytes before the beginning. A
// request that was neither answered nor failed, because the client or Envoy ended it, shows nothing about the endpoint.
func (s *member) average(now time.Time, o *Outcome, d *flight.Sums, received uint64) {
	alpha := s.cluster.alpha
	if d.Answered > 0 {
		s.bytes.add(now, alpha, float64(o.Bytes-min(received, o.Bytes)))
	}
	if d.Answered+d.Failed > 0 {
		s.failed.add(now, alpha, float64(d.Failed))
	}
}
