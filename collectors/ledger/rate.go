package ledger

import (
	"math"
	"time"
)

// rateTau is the time constant of an Envoy's request rate.
const rateTau = 2 * time.Second

// A rate is a number of requests per second, averaged over the last seconds.
type rate struct {
	perSecond float64
	at        time.Time
}

// observe adds what came since the last call.
func (r *rate) observe(now time.Time, n float64) {
	dt := now.Sub(r.at)
	if r.at.IsZero() {
		dt = rateTau // the time before is unknown
	}
	r.over(now, dt, n)
}

// over adds n requests of the last dt: over a short time they raise the rate by n/τ, over
// a long one it becomes n/dt.
func (r *rate) over(now time.Time, dt time.Duration, n float64) {
	x := max(0, dt.Seconds()) / rateTau.Seconds()
	share := 1.0 // (1 − e^−x)/x
	if x > 1e-9 {
		share = -math.Expm1(-x) / x
	}
	r.perSecond = r.perSecond*math.Exp(-x) + share*n/rateTau.Seconds()
	if now.After(r.at) {
		r.at = now
	}
}

// now returns the rate if nothing came since the last note.
func (r *rate) now(now time.Time) float64 {
	if !now.After(r.at) { // the usual case: a message has just been noted
		return r.perSecond
	}
	return r.perSecond * math.Exp(-max(0, now.Sub(r.at).Seconds())/rateTau.Seconds())
}
