package push

import "time"

// A Rhythm is when to step next: as soon as something is new, but not before the pause after the last step is over;
// where nothing is new, MaxIdle after it.
type Rhythm struct {
	rested   time.Time     // when Pause.Rest is over
	idleRest time.Duration // Pause.IdleRest
	poked    bool          // something is new since the last step began
	active   bool          // proxies reported requests since
}

// NewRhythm starts the rhythm of a loop that has not stepped yet, as if a pause were over now.
func NewRhythm(now time.Time) Rhythm { return Rhythm{rested: now} }

// Poked records that something is new. It returns whether the next step is sooner for it.
func (r *Rhythm) Poked() (sooner bool) {
	sooner = !r.poked
	r.poked = true
	return sooner
}

// ProxyActive records that proxies reported requests, which is also new.
func (r *Rhythm) ProxyActive() (sooner bool) {
	sooner = !r.active
	r.active = true
	return r.Poked() || sooner
}

// Begin starts a step, which decides on everything that is known by now.
func (r *Rhythm) Begin() { r.poked, r.active = false, false }

// Finished ends the step. What was recorded since it began is for the next one.
func (r *Rhythm) Finished(now time.Time, p Pause) { r.rested, r.idleRest = now.Add(p.Rest), p.IdleRest }

// Wait returns how long to wait for the next step as things stand; 0 is not at all.
func (r *Rhythm) Wait(now time.Time) time.Duration {
	next := r.rested
	if !r.active {
		next = next.Add(r.idleRest)
	}
	if !r.poked {
		next = next.Add(MaxIdle)
	}
	return max(0, next.Sub(now))
}
