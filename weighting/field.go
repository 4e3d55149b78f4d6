package weighting

import (
	"math"
	"slices"
	"time"
)

// largest is the largest number taken seriously: sums over a pool stay finite,
// and below it a float64 still counts in ones.
const largest = 1e15

// usable returns the reading, or the unknown one where its value cannot be a
// count or a share: an exporter's NaN is no load.
func usable(r Reading) Reading {
	if !r.Known() || math.IsNaN(r.Value) || math.IsInf(r.Value, 0) || r.Value < 0 {
		return Reading{}
	}
	r.Value = min(r.Value, largest)
	return r
}

// newest keeps the last known value of a field that a report leaves out, so
// that it ages by its own clock.
func newest(old, seen Reading) Reading {
	if seen = usable(seen); seen.Known() && !seen.At.Before(old.At) {
		return seen
	}
	return old
}

// merge is the newest of every field of two reports.
func merge(old, seen ServerReport) ServerReport {
	return ServerReport{
		Queue:        newest(old.Queue, seen.Queue),
		Running:      newest(old.Running, seen.Running),
		Utilization:  newest(old.Utilization, seen.Utilization),
		Completions:  newest(old.Completions, seen.Completions),
		QueueSeconds: newest(old.QueueSeconds, seen.QueueSeconds),
		BusySeconds:  newest(old.BusySeconds, seen.BusySeconds),
		Restarts:     max(old.Restarts, seen.Restarts),
	}
}

// state is what the age of a field means.
func (p *Params) state(r Reading, now time.Time) FieldState {
	switch age := r.Age(now); {
	case !r.Known():
		return StateUnknown
	case age <= p.Fresh:
		return StateFresh
	case age <= p.Hold:
		return StateHold
	case age <= p.Decay:
		return StateDecay
	default:
		return StateNeutral
	}
}

// believed reports whether a field in this state is used as it is.
func believed(s FieldState) bool { return s == StateFresh || s == StateHold }

// fade is how much of a field has turned into the pool's median, 0..1.
func (p *Params) fade(r Reading, now time.Time) float64 {
	age := r.Age(now)
	if age <= p.Hold {
		return 0
	}
	if age >= p.Decay {
		return 1
	}
	return float64(age-p.Hold) / float64(p.Decay-p.Hold)
}

// blend is the value of a field at this age: itself, faded into what a median
// endpoint of this one's size would report. Without a median a stale field
// tells nothing, and ok is false once nothing of its own is left.
func (p *Params) blend(r Reading, now time.Time, median float64) (value float64, ok bool) {
	fade := p.fade(r, now)
	switch {
	case !r.Known():
		return 0, false
	case fade == 0:
		return r.Value, true
	case math.IsNaN(median):
		return r.Value, fade < 1
	}
	return r.Value*(1-fade) + median*fade, true
}

// median of the values; NaN for none. It sorts its argument.
func median(values []float64) float64 {
	n := len(values)
	if n == 0 {
		return math.NaN()
	}
	slices.Sort(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}
