package weighting

// What happened at an endpoint since the step before
//
// Sources report gauges and sums, and what is learned from them follows from how they changed. That is determined here,
// once for each step. A sum that went back starts again, and one that rose by more than is possible is no reading.

import (
	"time"

	"steelyard/weighting/shed"
)

// A delta is the change of a number from one reading to the next. Without a new reading, or a sound one, it is zero but
// for before.
type delta struct {
	by     float64
	dt     time.Duration // between the two
	at     time.Time     // of the new one
	before float64       // the number then; 0 unknown
}

// perSecond is how fast the number changed; NaN where that is not known.
func (d *delta) perSecond() float64 { return d.by / d.dt.Seconds() }

// from is when it was read before.
func (d *delta) from() time.Time { return d.at.Add(-d.dt) }

// gauge is the change of a gauge, and sum that of a cumulative field.
func gauge(old, seen Reading) delta {
	d := delta{before: old.Value}
	if old.Known() && seen.At.After(old.At) {
		d.by, d.dt, d.at = seen.Value-old.Value, seen.At.Sub(old.At), seen.At
	}
	return d
}

func sum(old, seen Reading) delta {
	d := gauge(old, seen)
	if d.by < 0 || !Possible(d.by, d.dt) {
		return delta{before: d.before}
	}
	return d
}

// passed is what happened since the step before, by each source.
type passed struct {
	server   served
	proxies  proxied
	inFlight delta
}

// served is what a server did, by its report.
type served struct {
	changed   bool // more than its times
	restarted bool
	recounted bool // there is a new count of tokens, though it may be the first

	queue, running, utilization delta
	completions, waited, busy   delta       // requests, and request-seconds
	tokens                      tokenGrowth // zero where no two counts can be compared
}

// since is what a server did from one report to a later one.
func (r *ServerReport) since(old *ServerReport) served {
	d := served{
		changed:   r.withoutTimes() != old.withoutTimes(),
		restarted: r.Restarts != old.Restarts,
		recounted: r.Tokens.At.After(old.Tokens.At),
		queue:     gauge(old.Queue, r.Queue), running: gauge(old.Running, r.Running),
		utilization: gauge(old.Utilization, r.Utilization),
		completions: sum(old.Completions, r.Completions),
		waited:      sum(old.QueueSeconds, r.QueueSeconds), busy: sum(old.BusySeconds, r.BusySeconds),
	}
	if !d.restarted && !old.Tokens.At.IsZero() {
		d.tokens, _ = r.Tokens.growth(&old.Tokens)
	}
	return d
}

// grown is the change of queue + running.
func (d *served) grown() delta {
	return delta{by: d.queue.by + d.running.by, dt: max(d.queue.dt, d.running.dt)}
}

// standsStill reports whether an engine with requests shows nothing new in a later report: its gauges are those of the
// iteration that began last, so what arrived since is not known yet. Were it taken for none, all that arrives while the
// engines of a pool stand still would be sent to the one with the least work.
func (d *served) standsStill() bool {
	running := d.running.before + d.running.by
	return d.tokens.seconds > 0 && d.tokens.generated+d.tokens.first == 0 && running > 0 && d.running.by == 0 &&
		d.queue.by == 0 && d.completions.by == 0
}

// flow is the requests that came to the server and left it.
func (d *served) flow() shed.Flow {
	c := &d.completions
	if c.dt == 0 || d.restarted {
		return shed.Flow{}
	}
	return shed.Flow{Arrived: c.by + d.queue.by + d.running.by, Left: c.by, From: c.from(), To: c.at}
}

// proxied is what proxies did, by their report.
type proxied struct {
	issued, hashed, ended, failed, errors, succeeded, answered delta // requests
	latency                                                    delta // seconds
	sent, refused                                              batch // those issued, and those that were refused
	logged                                                     bool  // all of it by access logs
}

// since is what proxies did from one report to a later one.
func (r *ProxyReport) since(old *ProxyReport) proxied {
	d := proxied{
		issued: sum(old.Issued, r.Issued), hashed: sum(old.Hashed, r.Hashed), ended: sum(old.Ended, r.Ended),
		failed: sum(old.Failed, r.Failed), errors: sum(old.Errors, r.Errors),
		succeeded: sum(old.Succeeded, r.Succeeded), answered: sum(old.Answered, r.Answered),
		latency: sum(old.LatencySeconds, r.LatencySeconds),
		logged:  old.withAccessLog() && r.withAccessLog(),
	}
	sized, refused := sum(old.Sized, r.Sized), sum(old.Refused, r.Refused)
	d.sent = batch{d.issued.by, sized.by, risenBytes(old.SizedBytes, r.SizedBytes)}
	d.refused = batch{refused.by, refused.by, risenBytes(old.RefusedBytes, r.RefusedBytes)}
	return d
}

// risenBytes is by how much a sum of sizes rose: a request may have any.
func risenBytes(old, seen Reading) float64 {
	d := gauge(old, seen)
	return max(0, d.by)
}

// flow is the requests that came to the endpoint and left it.
func (d *proxied) flow() shed.Flow {
	if d.issued.dt == 0 || d.ended.dt == 0 {
		return shed.Flow{}
	}
	return shed.Flow{Arrived: d.issued.by, Left: d.ended.by, From: d.ended.from(), To: d.ended.at}
}

// tokenGrowth is what an engine did from one reading to another.
type tokenGrowth struct {
	seconds                                        float64
	computed, cached, first, generated, iterations float64
}

func (d *tokenGrowth) add(o *tokenGrowth) {
	d.seconds += o.seconds
	d.computed += o.computed
	d.cached += o.cached
	d.first += o.first
	d.generated += o.generated
	d.iterations += o.iterations
}

// growth is what was counted between two readings; false where a count went back or rose by more than it can.
func (t *TokenCounts) growth(old *TokenCounts) (d tokenGrowth, ok bool) {
	d = tokenGrowth{
		seconds: t.At.Sub(old.At).Seconds(), computed: t.Prompt - t.Cached - (old.Prompt - old.Cached),
		cached: t.Cached - old.Cached, first: t.First - old.First, generated: t.Generated - old.Generated,
		iterations: t.Iterations - old.Iterations,
	}
	for _, n := range []float64{d.computed, d.cached, d.first, d.generated, d.iterations} {
		const tokens = 100 // a second, for each of the requests that can be; a bound
		if !(n >= 0) || !Possible(n/tokens, t.At.Sub(old.At)) {
			return tokenGrowth{}, false
		}
	}
	return d, d.seconds > 0
}

// A batch is requests that began.
type batch struct {
	requests float64
	sized    float64 // those whose size is known
	bytes    float64 // of these
}

// computed adds the requests that began, but for those that were refused, of which no prompt is computed, to a sum of
// such batches, and returns it.
func (d *proxied) computed(sum *batch) batch {
	sum.requests += d.sent.requests - d.refused.requests
	sum.sized += d.sent.sized - d.refused.sized
	sum.bytes += d.sent.bytes - d.refused.bytes
	return batch{max(0, sum.requests), max(0, sum.sized), max(0, sum.bytes)}
}

// showsProgress reports whether a server's report shows work that was done since the one before: requests that
// completed, or a KV cache that changes while no request goes, and none comes but to wait.
func (d *served) showsProgress(seen *ServerReport) bool {
	if d.waited.by > 0 || d.busy.by > 0 || d.tokens.generated+d.tokens.first+d.tokens.iterations > 0 {
		return true
	}
	return d.running.by == 0 && seen.Running.Value > 0 && d.queue.by >= 0 && d.utilization.by != 0
}
