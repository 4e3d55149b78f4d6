package sim

import (
	"math"

	"steelyard/sim/engine"
	"steelyard/weighting"
)

// A pod is a model server: an engine that batches continuously, or slots, and one
// queue that is served in the order of arrival. With slots its requests run on a
// clock of their own, in seconds of work done for each of them, that goes slower when
// the pod is slow or shared and stops when it is stalled.
type pod struct {
	engine       *engine.Engine // nil: slots
	slots        int
	capacity     float64 // as configured, for a Steelyard that has it
	speed        float64 // work per second of a single request
	sharing      float64 // a full set takes 1 + sharing times as long
	slowed       float64 // times slower, for now; 1
	halted       bool
	hung         bool // and its metrics look idle
	stale        bool // scrapes fail
	metrics      Metrics
	pages        ring[shown] // that are still to be shown
	stuckRunning bool        // its gauge of running requests shows 0
	stuckWaiting float64     // what its gauge of waiting requests shows; 0 for the truth
	present      bool        // an endpoint
	ejected      bool        // by the Envoys: they send it nothing, whatever its weight
	queue        ring[int32]
	running      []job
	work         float64 // the clock
	at           instant // when it was read last
	busy         float64 // slot-seconds, or seconds of an engine, within the time that counts
	held         float64 // request-seconds in the pod, within the time that counts
	completions  float64
	queueSeconds float64
	busySeconds  float64
}

// A job is a request that runs.
type job struct {
	done    float64 // on the pod's clock
	request int32
}

// shown is a page as it was until some time.
type shown struct {
	until instant
	page  weighting.ServerReport
}

// load is the requests in the pod.
func (p *pod) load() int {
	if p.engine != nil {
		return p.engine.InFlight()
	}
	return p.queue.len() + len(p.running)
}

// waiting is those of them that are not executed yet.
func (p *pod) waiting() int {
	if p.engine != nil {
		return p.engine.Queued()
	}
	return p.queue.len()
}

// level is the load for each slot, or of an engine.
func (p *pod) level() float64 {
	if p.engine != nil {
		return float64(p.load())
	}
	return float64(p.load()) / float64(p.slots)
}

// pace makes an engine as fast as the pod is now.
func (p *pod) pace(now instant) {
	switch {
	case p.engine == nil:
	case p.halted:
		p.engine.SetSpeed(now.duration(), 0)
	default:
		p.engine.SetSpeed(now.duration(), p.speed/p.slowed)
	}
}

// rate is work per second for each request that runs.
func (p *pod) rate() float64 {
	if p.halted {
		return 0
	}
	rate := p.speed / p.slowed
	if p.sharing > 0 && p.slots > 1 {
		rate /= 1 + p.sharing*float64(len(p.running)-1)/float64(p.slots-1)
	}
	return rate
}

// fullRate is the work per second of the pod with all slots taken.
func (p *pod) fullRate() float64 {
	rate := float64(p.slots) * p.speed
	if p.slots > 1 {
		rate /= 1 + p.sharing
	}
	return rate
}

// advance moves the clock on to now; to be called before anything changes.
// What is measured is within from and until.
func (p *pod) advance(now, from, until instant) {
	counts := float64(max(0, min(now, until)-max(p.at, from))) / 1e9
	p.held += counts * float64(p.load())
	if len(p.running) > 0 {
		p.work += float64(now-p.at) / 1e9 * p.rate()
	}
	if !p.halted {
		p.busy += counts * float64(p.executing())
	}
	p.at = now
}

// executing is the slots that are taken, or an engine in an iteration.
func (p *pod) executing() int {
	if p.engine != nil && p.engine.Busy() {
		return 1
	}
	return len(p.running)
}

// begin starts to execute a request that needs so many seconds of work.
func (p *pod) begin(request int32, work float64) {
	p.running = append(p.running, job{p.work + work, request})
}

// completes is when the next request is done, or the iteration of an engine, as
// things stand.
func (p *pod) completes() instant {
	if p.engine != nil {
		if next, ok := p.engine.Next(); ok {
			return at(next)
		}
		return never
	}
	rate := p.rate()
	if len(p.running) == 0 || rate == 0 {
		return never
	}
	left := max(0, p.running[p.first()].done-p.work)
	ns := math.Ceil(left / rate * 1e9)
	if ns > float64(never-p.at) {
		return never
	}
	return p.at + instant(ns)
}

// first is the index of the job that is done first; of two, the one that began
// first.
func (p *pod) first() int {
	first := 0
	for i := 1; i < len(p.running); i++ {
		if p.running[i].done < p.running[first].done {
			first = i
		}
	}
	return first
}

// finish takes out the request that is done.
func (p *pod) finish() (request int32) {
	first := p.first()
	j := p.running[first]
	p.work = max(p.work, j.done) // the clock was read a nanosecond late at most
	p.running = append(p.running[:first], p.running[first+1:]...)
	return j.request
}

// A guess is the prompts that a pod was sent, in seconds of its work, and how much of
// that is left if it did nothing else: nothing of it was read from the pod.
type guess struct {
	seconds float64
	at      instant
}

func (g *guess) left(now instant) float64 { return max(0, g.seconds-float64(now-g.at)/1e9) }
