package weighting

import "time"

// A Pace says how often one cluster may be pushed.
type Pace struct {
	// Floor is the shortest time between two pushes. Default 5 ms.
	Floor time.Duration
	// BytesPerSecond is what pushes to all proxies together may send; 0 is no
	// bound. Default 10 MiB/s.
	BytesPerSecond float64
	// ProxyCPU is the share of a core that the pushes of the cluster may cost each
	// proxy, over about a second; 0 is no bound. Default 0.02.
	ProxyCPU float64
	// Idle says that the cluster has no requests, and so a small ProxyCPU.
	Idle bool
}

// A Fleet is what a push costs by.
type Fleet struct {
	Proxies   int // that are pushed to
	Endpoints int // of the cluster
}

// bytes is the size of a push to all proxies.
func (f Fleet) bytes() float64 { return float64(f.Proxies) * float64(f.Endpoints) * EndpointBytes }

// What sets the time between two pushes.
const (
	PaceFloor = "floor" // the configured least
	PaceBytes = "bytes" // the byte budget
	PaceCPU   = "cpu"   // the proxies' CPU budget
)

// EndpointBytes is the size of one endpoint in an assignment on the wire.
const EndpointBytes = 30

// PushCost is the CPU time that a push costs a proxy: its workers rebuild their
// schedules. Measured on Envoy 1.40 with one worker, idle but for the pushes, in a virtual
// machine (docs/placement.md); each further worker costs some 60 µs more, with hundreds of
// endpoints 150, and a machine of one's own less.
func PushCost(endpoints int) time.Duration {
	const push, endpoint = 500 * time.Microsecond, 3 * time.Microsecond
	return push + time.Duration(endpoints)*endpoint
}

// A Pacer keeps pushes within their budgets. Its CPU budget is a bucket of one
// second: pushes in a burst are as close as Floor, and the emptier the bucket the
// further apart they are, up to what the budget sustains.
type Pacer struct {
	// spent is how long it takes until the bucket is full again. In CPU time, what was
	// spent of a large budget would be the debt of hours where a small one takes its place.
	spent time.Duration
	at    time.Time // when spent was right
	last  Pace      // of that moment
}

// bucket is how long an empty one takes to be full again.
const bucket = time.Second

// Interval is the time from one push to the next as of now, and what sets it: the
// budgets sustain a push as often. A push that gains much comes sooner (Worth), down to
// what Rest says.
func (p *Pacer) Interval(now time.Time, pace Pace, f Fleet) (interval time.Duration, reason string) {
	interval, reason = pace.Floor, PaceFloor
	if bytes := pace.byBytes(f); bytes > interval {
		interval, reason = bytes, PaceBytes
	}
	if pace.ProxyCPU > 0 {
		p.refill(now, pace)
		if cpu := time.Duration(float64(pace.byCPU(f)) * p.used()); cpu > interval {
			interval, reason = cpu, PaceCPU
		}
	}
	return interval, reason
}

// Worth is what a push has to gain as of now, in mean services of waiting for each request
// until the next (Decision.Gain). With half of the bucket left any push is worth it. Beyond
// that a proxy's CPU goes to the pushes that gain most: the emptier the bucket, the more it
// has to be. So they come when they matter, instead of at a beat, and as many of them leave
// less of the wait (docs/placement.md has by how much).
func (p *Pacer) Worth(now time.Time, pace Pace) float64 {
	// At three quarters; the level at which a busy bucket comes to rest depends on it, and
	// little else.
	const usual = 0.1
	if pace.ProxyCPU <= 0 {
		return 0
	}
	p.refill(now, pace)
	used := p.used()
	return usual / 2 * max(0, 2*used-1) / (1 - used)
}

// Rest is how long no push may come after one, whatever it gains. For the proxies' CPU it is a
// second at most: where they have so many clusters that the budget sustains less, a flag, a
// member that is gone and a share to refuse go before it, and nothing else does (Worth).
func (p *Pacer) Rest(now time.Time, pace Pace, f Fleet) time.Duration {
	const longest = time.Second
	rest := max(pace.Floor, pace.byBytes(f))
	if p.refill(now, pace); p.used() < 1 {
		return rest
	}
	return max(rest, min(pace.byCPU(f), longest))
}

// Sustained is the time from one push to the next when every decision is one.
func (p Pace) Sustained(f Fleet) time.Duration { return max(p.Floor, p.byBytes(f), p.byCPU(f)) }

// Stretch makes a heartbeat, and the time after which an assignment goes stale, as long as the
// budgets need: heartbeats are pushes as well, and where an assignment goes stale before the next
// one may go out, all proxies leave the weights between the two. 0 is none of either, and stays so.
func (p Pace) Stretch(f Fleet, heartbeat, staleAfter time.Duration) (time.Duration, time.Duration) {
	const pushes = 3 // two may be late
	sustained := p.Sustained(f)
	if heartbeat > 0 {
		heartbeat = max(heartbeat, sustained)
	}
	if least := pushes * sustained; staleAfter > 0 && staleAfter < least {
		staleAfter = (least + time.Second - 1).Truncate(time.Second) // each change of it is a push
	}
	return heartbeat, staleAfter
}

// byBytes is how far apart pushes are that use up the budget of bytes; 0 without one.
func (p Pace) byBytes(f Fleet) time.Duration {
	if p.BytesPerSecond <= 0 {
		return 0
	}
	return time.Duration(f.bytes() / p.BytesPerSecond * float64(time.Second))
}

// byCPU is how far apart pushes are that use up the proxies' budget, an hour at most; 0
// without one.
func (p Pace) byCPU(f Fleet) time.Duration {
	if p.ProxyCPU <= 0 {
		return 0
	}
	return time.Duration(min(float64(PushCost(f.Endpoints))/p.ProxyCPU, float64(time.Hour)))
}

// Pushed takes note of a push.
func (p *Pacer) Pushed(now time.Time, pace Pace, f Fleet) {
	p.refill(now, pace)
	p.spent = min(p.spent, bucket) + pace.byCPU(f)
}

// used is how much of the bucket is spent, at most all of it.
func (p *Pacer) used() float64 { return min(1, float64(p.spent)/float64(bucket)) }

// refill takes note of the time and of the budget. What an idle cluster has spent is a small
// part of what it has from its first request on. No other change of the budget forgives
// anything: it changes with each turn of any cluster, and by turns all would be forgiven.
func (p *Pacer) refill(now time.Time, pace Pace) {
	if !p.at.IsZero() {
		p.spent = max(0, p.spent-now.Sub(p.at))
	}
	if p.last.Idle && !pace.Idle && pace.ProxyCPU > p.last.ProxyCPU {
		p.spent = time.Duration(float64(p.spent) * p.last.ProxyCPU / pace.ProxyCPU)
	}
	p.at, p.last = now, pace
}

// Gather is how long to wait for more readings before the next step where the load is
// known by scrapes alone, at that interval for each endpoint. Of many endpoints there is
// always a new one, and each by itself changes little. (In the simulator, the wait at the
// 99th percentile with 100 endpoints is 0.4 % ± 2 % longer.) What else is new waits no
// longer than it would for a step without a reading.
func Gather(interval time.Duration, endpoints int) time.Duration {
	const (
		part    = 20 // of the endpoints, and of the interval in which all of them are read
		longest = 250 * time.Millisecond
	)
	if endpoints <= part {
		return 0
	}
	return min(interval/part, longest)
}
