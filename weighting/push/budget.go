package push

import "time"

// A Budget bounds how often one cluster may be pushed.
type Budget struct {
	// MinInterval is the shortest time between two pushes. Default 5 ms.
	MinInterval time.Duration
	// BytesPerSecond is what the pushes may send to all proxies together; 0 is no bound.
	// Default 10 MiB/s.
	BytesPerSecond float64
	// ProxyCPU is the share of a core that pushes may cost each proxy, over all clusters that
	// it subscribes to and about a second; 0 is no bound. Default 0.02.
	ProxyCPU float64
	// Cost is what a push costs.
	Cost Cost
}

// A Cost is what one push costs a proxy and the network.
type Cost struct {
	CPU            time.Duration // of the proxy, for each push
	CPUPerEndpoint time.Duration // of the proxy, on top of it
	EndpointBytes  float64       // size of one endpoint in an assignment on the wire
}

// Of returns the CPU time of a proxy for one push of a cluster with so many endpoints.
func (c Cost) Of(endpoints int) time.Duration {
	return c.CPU + time.Duration(endpoints)*c.CPUPerEndpoint
}

// What sets the time between two pushes.
const (
	LimitFloor = "floor" // Budget.MinInterval
	LimitBytes = "bytes" // Budget.BytesPerSecond
	LimitCPU   = "cpu"   // Budget.ProxyCPU
)

// Subscribers are the proxies that subscribe to a cluster.
type Subscribers struct {
	Proxies int // how many they are
	// Clusters is how many clusters the median proxy subscribes to, this one included, and BusyClusters how many of
	// those have traffic. Widest and WidestBusy are the largest of these numbers of any proxy: they bound how rarely
	// one gets a push (Allowance).
	Clusters, BusyClusters, Widest, WidestBusy int
	Idle                                       bool // this cluster is known to have no traffic
}

// terms are a budget applied to the proxies of a cluster.
type terms struct {
	floor    time.Duration
	bytes    time.Duration // between pushes that use up the budget of bytes; 0 without one
	cpu      time.Duration // the same of the proxies' CPU, an hour at most
	proxyCPU float64       // this cluster's part of the budget; 0 is no bound
	rarest   time.Duration // cpu of the widest proxy
	each     time.Duration // a push, as a part of the budget of a proxy for all its clusters
	idle     bool
}

// terms of a cluster with so many endpoints. Half of a proxy's budget is shared by all its clusters
// and half by those with traffic.
func (b Budget) terms(s Subscribers, endpoints int) terms {
	t := terms{floor: b.MinInterval, idle: s.Idle}
	if b.BytesPerSecond > 0 {
		bytes := float64(s.Proxies) * float64(endpoints) * b.Cost.EndpointBytes
		t.bytes = time.Duration(bytes / b.BytesPerSecond * float64(time.Second))
	}
	t.proxyCPU, t.cpu = b.cpu(s.Clusters, s.BusyClusters, s.Idle, endpoints)
	_, t.each = b.cpu(1, 1, false, endpoints)
	_, t.rarest = b.cpu(max(s.Clusters, s.Widest), max(s.BusyClusters, s.WidestBusy), s.Idle, endpoints)
	return t
}

// cpu returns a cluster's part of the CPU budget of a proxy with so many clusters, and the time between pushes that use
// it up.
func (b Budget) cpu(clusters, busy int, idle bool, endpoints int) (part float64, between time.Duration) {
	part = 0.5 / float64(max(1, clusters))
	if !idle {
		part += 0.5 / float64(max(1, busy))
	}
	if part *= b.ProxyCPU; part <= 0 {
		return part, 0
	}
	cost := b.Cost.Of(endpoints)
	return part, time.Duration(min(float64(cost)/part, float64(time.Hour)))
}

// sustained is the time from one push to the next when every decision is pushed.
func (t terms) sustained() time.Duration { return max(t.floor, t.bytes, t.cpu) }

// Stretch makes a heartbeat, and the time after which an assignment goes stale, as long as the budget
// needs for a cluster of so many endpoints. If an assignment went stale before the next one may go out,
// all proxies would leave the weights between the two. 0 is none of either, and stays so.
func (b Budget) Stretch(
	s Subscribers, endpoints int, heartbeat, staleAfter time.Duration,
) (time.Duration, time.Duration) {
	return b.terms(s, endpoints).stretch(heartbeat, staleAfter)
}

func (t terms) stretch(heartbeat, staleAfter time.Duration) (time.Duration, time.Duration) {
	const pushes = 3 // two may be late
	if heartbeat > 0 {
		heartbeat = max(heartbeat, t.sustained())
	}
	if least := pushes * max(t.sustained(), t.rarest); staleAfter > 0 && staleAfter < least {
		staleAfter = (least + time.Second - 1).Truncate(time.Second) // each change of it is a push
	}
	return heartbeat, staleAfter
}

// A bucket is the CPU budget of one cluster at its median proxy. What was spent is kept as the time until it is paid
// for, and not as CPU time: that of a large budget would take hours to pay off with a small one.
type bucket struct {
	Allowance
	last terms // when it was looked at last
}

// bucketSize is how long an empty bucket takes to be full again.
const bucketSize = time.Second

// pushed records a push.
func (b *bucket) pushed(now time.Time, t terms) {
	spent := min(b.spent(now, t), bucketSize)
	b.paid = now.Add(spent + t.cpu)
}

// spent is the time until the bucket is full again. With the first request of an idle cluster the budget grows, and
// what was spent shrinks in proportion. No other change of the budget reduces what was spent: it changes whenever any
// cluster of a proxy becomes idle or busy, and little by little all would be forgotten.
func (b *bucket) spent(now time.Time, t terms) time.Duration {
	if b.last.idle && !t.idle && t.proxyCPU > b.last.proxyCPU {
		b.paid = now.Add(time.Duration(float64(b.unpaid(now)) * b.last.proxyCPU / t.proxyCPU))
	}
	b.last = t
	return b.unpaid(now)
}

// used is how much of the bucket is spent, 0..1.
func (b *bucket) used(now time.Time, t terms) float64 {
	return min(1, float64(b.spent(now, t))/float64(bucketSize))
}

// leastGain is what a push has to gain at present (package comment); +Inf with an empty bucket.
func (b *bucket) leastGain(now time.Time, t terms) float64 {
	// The least gain at three quarters. The level at which a busy bucket comes to rest depends
	// on it, and little else does.
	const usual = 0.1
	if t.proxyCPU <= 0 {
		return 0
	}
	used := b.used(now, t)
	return usual / 2 * max(0, 2*used-1) / (1 - used)
}

// interval is the time from one push to the next that the budgets sustain at present, and what sets it.
func (b *bucket) interval(now time.Time, t terms) (interval time.Duration, limit string) {
	interval, limit = t.floor, LimitFloor
	if t.bytes > interval {
		interval, limit = t.bytes, LimitBytes
	}
	if t.proxyCPU > 0 {
		if cpu := time.Duration(float64(t.cpu) * b.used(now, t)); cpu > interval {
			interval, limit = cpu, LimitCPU
		}
	}
	return interval, limit
}

// rest is how long no push may follow one, whatever it gains. For the proxies' CPU it is a second
// at most: where the budget sustains less, flags, lost endpoints and drops take precedence.
func (b *bucket) rest(now time.Time, t terms) time.Duration {
	const longest = time.Second
	least := max(t.floor, t.bytes)
	if b.used(now, t) < 1 {
		return least
	}
	return max(least, min(t.cpu, longest))
}
