package health

import "time"

// trial is when an endpoint was given a request, and is given the next to see what it does.
type trial struct {
	at    time.Time     // of the last step
	on    bool          // it is tried
	since time.Time     // the trial began; or else, the last request was given
	delay time.Duration // from then to the next trial
	given float64       // requests since then, by the decisions
	part  float64       // the same, by its part of the capacity
}

// within is the time in which a trial gives a request.
const within = 5 * time.Second

// begins reports whether a trial begins in this step.
func (t *trial) begins(now time.Time) bool { return t.on && t.since.Equal(now) }

// observe takes in what came since the last step. Where requests are not counted, half of its part for the first delay
// counts as one.
func (t *trial) observe(now time.Time, in *Sample, traffic *Traffic, first, most, unobserved time.Duration) {
	passed := max(0, now.Sub(t.at))
	arrivals := traffic.PerSecond * passed.Seconds()
	given, lasts := in.Share*arrivals, first
	if !traffic.Counted {
		given, lasts = max(given, 2*in.Share/in.Part*passed.Seconds()/first.Seconds()), within
	}
	t.given, t.part = t.given+given, t.part+in.Part*arrivals
	waited := now.Sub(t.since)
	switch {
	case t.since.IsZero() || !t.on && t.given >= 1:
		*t = trial{since: now, delay: first}
	case in.Kept || in.Asleep || !t.on && in.Any || passed > unobserved:
		*t = trial{since: now, delay: t.delay}
	case t.on && (in.Any || t.given >= 1 || waited >= lasts):
		t.on, t.given, t.part = false, 0, 0
	case !t.on && (t.part >= 1 || !traffic.Counted) && waited >= t.delay:
		*t = trial{on: true, since: now, delay: min(2*t.delay, most)}
	}
	t.at = now
}

// doubt is whether a report stands still.
type doubt struct {
	since, until time.Time // of the first and the last report that show the same
	claimed      bool      // requests
	longest      float64   // seconds for which reports that claimed requests showed the same, fading
	on, refuted  bool
}

// observe follows the reports. The doubt ends with the next one that shows something new.
func (d *doubt) observe(in *Sample, starved bool, decay time.Duration) {
	const twice = 2
	still := in.ReadAt.Sub(d.since)
	switch {
	case d.since.IsZero() || in.Changed:
		longest := fade(d.longest, still, memory)
		if d.claimed && !d.since.IsZero() {
			longest = max(longest, still.Seconds())
		}
		*d = doubt{since: in.ReadAt, until: in.ReadAt, longest: longest}
	case in.ReadAt.After(d.until):
		d.until = in.ReadAt
	}
	d.claimed = in.Claims
	still = d.until.Sub(d.since)
	if in.Claims && starved && still >= decay && still.Seconds() >= twice*d.longest && !in.Present {
		d.on = true
	}
	d.refuted = d.refuted || d.on && in.Logged && in.Ended.Answered > rounding
}
