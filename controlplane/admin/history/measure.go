package history

import (
	"math"
	"slices"
	"time"

	"steelyard/controlplane/admin/conditions"
	"steelyard/internal/api"
)

// A measured holds per-second statistics of a cluster: the shares that were served, and how much of the capacity is in
// use.
type measured struct {
	addresses []string
	meters    []meter // by the index of addresses
	source    api.ServedSource
	ticks     int
	last      time.Time
	total     [minute]float64 // requests of the cluster, by the second
	hashed    [minute]float64 // of them, those whose endpoint a hash chose, and not the weights
	refused   refusedRate
	used      usedMean
	decided   []float64 // shares of the last second
}

// The windows of served shares, in ticks of a second.
const (
	minute     = 60
	tenSeconds = 10
)

// A meter is one endpoint of a cluster that is measured.
type meter struct {
	counter  float64 // the latest; NaN unknown
	byHash   float64 // the latest counter of those that a hash chose
	served   [minute]float32
	hashed   [minute]float32 // of served, those that a hash chose
	expected [minute]float32 // requests that were decided to go here
	seen     int             // ticks in the pool
	busy     busyRate
	limit    engineLimit
}

// A Measure is what the handler adds to a cluster.
type Measure struct {
	addresses []string
	Served    api.Served
	Use       api.Use
	Endpoints []EndpointMeasure

	ShadowEnvoys int // that report their requests and follow no weights
}

// An EndpointMeasure is what the handler adds to an endpoint.
type EndpointMeasure struct {
	Served10s, Served1m, Requests1m, UseWithout api.Number
}

// observe adds a second of a cluster.
func (m *measured) observe(now time.Time, c *api.Cluster, d *decided) *Measure {
	m.follow(c.Endpoints)
	elapsed := now.Sub(m.last).Seconds()
	if m.last.IsZero() || elapsed <= 0 || elapsed > minute {
		elapsed = 0
	}
	m.last = now
	slot := m.ticks % minute
	m.ticks++
	m.count(c.Endpoints, slot, elapsed)
	var order []string
	order, m.decided = d.mean(now, m.decided)
	m.expect(order, slot)
	m.refused.learn(c.DroppedRequests, elapsed)
	perRequest := tokensPerRequest(c)
	for i := range c.Endpoints {
		m.meters[i].busy.learn(&c.Endpoints[i], elapsed)
		m.meters[i].limit.learn(&c.Endpoints[i], perRequest, elapsed)
	}
	out := &Measure{addresses: m.addresses, Endpoints: make([]EndpointMeasure, len(m.meters))}
	m.shares(out)
	m.use(c, out)
	out.Use.UsedMean = m.used.of(out.Use.CapacityUsed)
	return out
}

// follow keeps the meters those of the endpoints.
func (m *measured) follow(endpoints []api.Endpoint) {
	same := len(endpoints) == len(m.addresses)
	for i := 0; same && i < len(endpoints); i++ {
		same = endpoints[i].Address == m.addresses[i]
	}
	if same {
		return
	}
	before, meters := m.addresses, m.meters
	m.addresses, m.meters = make([]string, len(endpoints)), make([]meter, len(endpoints))
	for i := range endpoints {
		address := endpoints[i].Address
		m.addresses[i], m.meters[i].counter = address, math.NaN()
		if k, found := slices.BinarySearch(before, address); found {
			m.meters[i] = meters[k]
		}
	}
}

// count notes how many requests each endpoint got in the last second.
func (m *measured) count(endpoints []api.Endpoint, slot int, elapsed float64) {
	source := servedSource(endpoints)
	if source != m.source {
		for i := range m.meters {
			m.meters[i] = meter{counter: math.NaN(), busy: m.meters[i].busy, limit: m.meters[i].limit}
		}
		m.total, m.hashed = [minute]float64{}, [minute]float64{}
		m.source = source
	}
	m.total[slot], m.hashed[slot] = 0, 0
	for i := range endpoints {
		t := &m.meters[i]
		n, hashed := t.count(&endpoints[i], source, elapsed)
		t.served[slot], t.hashed[slot] = float32(n), float32(hashed)
		t.seen++
		m.total[slot] += n
		m.hashed[slot] += hashed
	}
}

// servedSource is what counts the requests of a pool: Envoys, if they do.
func servedSource(endpoints []api.Endpoint) api.ServedSource {
	var source api.ServedSource
	for i := range endpoints {
		e := &endpoints[i]
		if _, known := e.Requests.Value(); known {
			return api.ServedBegun
		}
		_, counted := e.CompletedRequests.Value()
		if _, known := e.CompletionRate.Value(); counted || known {
			source = api.ServedCompleted
		}
	}
	return source
}

// count is how many requests the endpoint got since the last tick, and how many of them by a hash.
func (t *meter) count(e *api.Endpoint, source api.ServedSource, elapsed float64) (n, hashed float64) {
	counter := e.Requests
	if source == api.ServedCompleted {
		counter = e.CompletedRequests
	}
	now, known := counter.Value()
	if !known {
		t.counter = math.NaN()
		if source == api.ServedCompleted {
			return max(0, e.CompletionRate.Or(0)) * elapsed, 0
		}
		return 0, 0
	}
	before, beforeByHash := t.counter, t.byHash
	t.counter, t.byHash = now, e.HashedRequests.Or(0)
	if math.IsNaN(before) || now < before || elapsed == 0 {
		return 0, 0
	}
	if n = now - before; source == api.ServedBegun {
		hashed = min(n, max(0, t.byHash-beforeByHash))
	}
	return n, hashed
}

// expect notes where the requests of the last second that follow the weights were decided to go.
func (m *measured) expect(order []string, slot int) {
	next := 0
	for i, address := range m.addresses {
		for next < len(order) && order[next] < address {
			next++
		}
		share := 0.0
		if next < len(order) && order[next] == address {
			share = m.decided[next]
		}
		m.meters[i].expected[slot] = float32(share * (m.total[slot] - m.hashed[slot]))
	}
}

// shares fills in what was served.
func (m *measured) shares(out *Measure) {
	out.Served.Source = m.source
	if m.source == "" {
		return
	}
	n10, n60, hashed := m.sum(&m.total, tenSeconds), m.sum(&m.total, minute), m.sum(&m.hashed, minute)
	out.Served.Requests10s, out.Served.Requests1m, out.Served.Hashed1m = api.Num(n10), api.Num(n60),
		api.Num(hashed)
	weighted := n60 - hashed
	var gap, noise, decided float64
	for i := range m.meters {
		t := &m.meters[i]
		var served10, served60, hashed60, expected float64
		for k := range minute {
			served60 += float64(t.served[k])
			hashed60 += float64(t.hashed[k])
			expected += float64(t.expected[k])
		}
		for k := range tenSeconds {
			served10 += float64(t.served[m.slotBefore(k)])
		}
		if t.seen > 1 {
			e := &out.Endpoints[i]
			e.Served10s, e.Served1m = conditions.Part(served10, n10), conditions.Part(served60, n60)
			e.Requests1m = api.Num(served60)
		}
		decided += expected
		gap += math.Abs(served60 - hashed60 - expected)
		if weighted > 0 {
			p := min(1, expected/weighted)
			noise += math.Sqrt(2 * p * (1 - p) / (math.Pi * weighted))
		}
	}
	const fewest = 100 // requests
	// A second whose decision is not known would count as one that was not followed.
	if m.source == api.ServedBegun && weighted >= fewest && decided > 0.99*weighted {
		out.Served.VsDecided, out.Served.Noise = api.Num(gap/2/weighted), api.Num(noise/2)
	}
}

// slotBefore is the slot of k ticks ago.
func (m *measured) slotBefore(k int) int { return ((m.ticks-1-k)%minute + minute) % minute }

// sum adds up the last ticks.
func (m *measured) sum(of *[minute]float64, ticks int) (n float64) {
	for k := range ticks {
		n += of[m.slotBefore(k)]
	}
	return n
}

// median sorts the values, and returns the one in the middle; NaN of none.
func median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	slices.Sort(values)
	return values[len(values)/2]
}

// Of is what was measured of an endpoint; unknown where there is nothing.
func (m *Measure) Of(address string) EndpointMeasure {
	if m == nil {
		return EndpointMeasure{}
	}
	i, found := slices.BinarySearch(m.addresses, address)
	if !found {
		return EndpointMeasure{}
	}
	return m.Endpoints[i]
}

// latency is the mean of an endpoint's answers, NaN where the newest is older than a minute: a line that stays flat
// would show answers that there are not.
func latency(e *api.Endpoint) float64 {
	if e.LatencyAgeSeconds.Or(0) > minute {
		return math.NaN()
	}
	return e.LatencySeconds.Or(math.NaN())
}

// poolSums are the highest load per slot and the sum of the requests in flight; unknown where no endpoint has any.
func poolSums(endpoints []api.Endpoint) (fullest, flying api.Number) {
	for i := range endpoints {
		if load := conditions.LoadPerSlot(&endpoints[i]); load.Or(-1) > fullest.Or(-1) {
			fullest = load
		}
		if n, known := api.Num(conditions.InFlight(&endpoints[i])).Value(); known {
			flying = api.Num(flying.Or(0) + n)
		}
	}
	return fullest, flying
}

// fill writes what the history keeps of a cluster.
func (r *Row) fill(c *api.Cluster, m *Measure) {
	nan, states := math.NaN(), r.States()
	for i := range c.Endpoints {
		e := &c.Endpoints[i]
		r.Set(FieldShare, i, e.Share.Or(nan))
		r.Set(FieldServed, i, m.Endpoints[i].Served10s.Or(nan))
		r.Set(FieldLoad, i, conditions.LoadPerSlot(e).Or(nan))
		r.Set(FieldInFlight, i, conditions.InFlight(e))
		r.Set(FieldLatency, i, e.FirstTokenMean.Or(latency(e)))
		states[i] = StateCode(conditions.EndpointState(e))
	}
	d := &c.Decision
	fullest, flying := poolSums(c.Endpoints)
	for k, n := range [PoolFields]api.Number{d.ArrivalRate, d.MedianLoad, fullest, d.WaterLevel, flying,
		c.FirstTokenMean, c.AnswerP99Seconds, m.Use.CapacityUsed, d.DropFraction} {
		r.Pool[k] = float32(n.Or(nan))
	}
}
