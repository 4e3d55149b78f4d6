package history

import (
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"steelyard/internal/api"
)

// The bounds of a History. A row of a second takes 11 bytes for each endpoint, one of several seconds 13. Where the
// seconds of all clusters together take more than their bound, the oldest go: with 1,000 endpoints six minutes of them
// stay, with 5,000 one. The last hour stays whatever the number of endpoints: a coarse row is of ten seconds, or of as
// many tens as an hour of all clusters has room for, with 5,000 endpoints 40 seconds.
const (
	fineStep    = time.Second
	fineRows    = 900 // 15 minutes
	coarseStep  = 10 * time.Second
	HistoryFor  = time.Hour
	fineBytes   = 4 << 20
	coarseBytes = 6 << 20

	// windowEndpoints bounds the endpoints of an answer that names none, windowNumbers the numbers of any answer.
	windowEndpoints = 1000
	WindowNumbers   = 2_000_000
)

// A History keeps what was seen of the clusters and their endpoints: each second of up to 15 minutes, and means of ten
// seconds or more of the last hour. It is safe for concurrent use.
type History struct {
	fineLimit, coarseLimit int // bytes

	mu       sync.Mutex
	clusters map[string]*past
	fine     int // bytes of the rows of all clusters
	coarse   int
	orders   uint64
}

// A past is the rows of one cluster.
type past struct {
	order        *order
	fine, coarse ring
	step         time.Duration // of the latest coarse row
}

// A ring has rows, oldest first. first counts those that are gone, so that a row keeps its number.
type ring struct {
	rows  []*Row
	first int
}

// NewHistory returns an empty History.
func NewHistory() *History {
	return &History{clusters: map[string]*past{}, fineLimit: fineBytes, coarseLimit: coarseBytes}
}

// Add records a cluster. It is called once a second; what comes less than half a second after the previous sample is
// dropped. The addresses are sorted; an endpoint that is not named has no sample. fill writes the numbers.
func (h *History) Add(cluster string, at time.Time, addresses []string, fill func(*Row)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.clusters[cluster]
	if p == nil {
		p = &past{step: coarseStep}
		h.clusters[cluster] = p
	}
	if n := len(p.fine.rows); n > 0 {
		since := at.Sub(p.fine.rows[n-1].at)
		if since < -fineStep { // the clock was set back: rows from the future would block new ones
			h.drop(p)
			*p = past{order: p.order, step: p.step}
		} else if since < fineStep/2 {
			return
		}
	}
	if p.order == nil || !slices.Equal(p.order.addresses, addresses) {
		h.orders++
		p.order = &order{id: h.orders, addresses: slices.Clone(addresses)}
	}
	r := newRow(at, p.order, FineFields)
	fill(r)
	p.fine.rows = append(p.fine.rows, r)
	h.fine += r.bytes()
	if every := int(p.step / fineStep); p.fine.next()%every == 0 {
		c := coarseRow(p.fine.rows[max(0, len(p.fine.rows)-every):])
		p.coarse.rows = append(p.coarse.rows, c)
		h.coarse += c.bytes()
		p.step = h.coarseStep()
	}
	h.trim(p)
}

// coarseStep is the time between two coarse rows with which those of an hour of all clusters have room.
func (h *History) coarseStep() time.Duration {
	each := 0 // bytes of a row of each cluster
	for _, p := range h.clusters {
		if p.order != nil {
			each += rowBytes(len(p.order.addresses), coarseFields)
		}
	}
	tens := (each*int(HistoryFor/coarseStep) + h.coarseLimit - 1) / h.coarseLimit
	return coarseStep * time.Duration(min(max(1, tens), int(HistoryFor/coarseStep)))
}

// trim keeps the bounds.
func (h *History) trim(p *past) {
	for len(p.fine.rows) > fineRows {
		h.fine -= p.fine.shift()
	}
	for latest := p.fine.rows[len(p.fine.rows)-1].at; len(p.coarse.rows) > 0 &&
		latest.Sub(p.coarse.rows[0].at) >= HistoryFor; {
		h.coarse -= p.coarse.shift()
	}
	for h.fine > h.fineLimit {
		h.fine -= h.oldest(func(p *past) *ring { return &p.fine }).shift()
	}
	for h.coarse > h.coarseLimit {
		h.coarse -= h.oldest(func(p *past) *ring { return &p.coarse }).shift()
	}
}

// oldest is the ring with the oldest row of all clusters.
func (h *History) oldest(of func(*past) *ring) *ring {
	var oldest *ring
	for _, p := range h.clusters {
		if r := of(p); len(r.rows) > 0 && (oldest == nil || r.rows[0].at.Before(oldest.rows[0].at)) {
			oldest = r
		}
	}
	return oldest
}

// next is the number of the row to come.
func (r *ring) next() int { return r.first + len(r.rows) }

// shift drops the oldest row and returns its bytes.
func (r *ring) shift() int {
	n := r.rows[0].bytes()
	r.rows[0] = nil
	r.rows = r.rows[1:]
	r.first++
	return n
}

// keepOnly drops the clusters that are no longer configured.
func (h *History) keepOnly(configured func(cluster string) bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for name, p := range h.clusters {
		if !configured(name) {
			h.drop(p)
			delete(h.clusters, name)
		}
	}
}

// drop takes the rows of a cluster out of the sums.
func (h *History) drop(p *past) {
	for _, r := range p.fine.rows {
		h.fine -= r.bytes()
	}
	for _, r := range p.coarse.rows {
		h.coarse -= r.bytes()
	}
}

// Columns are the numbers of the endpoints at one moment: two bytes of each for each field, then a byte for the state.
type Columns struct {
	Order     uint64   // changes with the set of endpoints; 0: there is nothing
	Addresses []string // sorted
	Data      []byte
}

// Latest is the latest second of a cluster.
func (h *History) Latest(cluster string) Columns {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p := h.clusters[cluster]; p != nil && len(p.fine.rows) > 0 {
		r := p.fine.rows[len(p.fine.rows)-1]
		return Columns{r.order.id, r.order.addresses, r.data}
	}
	return Columns{}
}

// A WindowQuery selects a part of the history.
type WindowQuery struct {
	Since     time.Time
	Points    int      // most moments; neighbours are averaged to get there. 0: all
	Addresses []string // only these endpoints; empty: all
	Fields    []string // of endpoints; nil: the shares. An empty list: no endpoint
}

// Window returns what is known of a cluster since q.Since; a cluster with no history has a Window without moments.
func (h *History) Window(cluster string, now time.Time, q WindowQuery) api.Window {
	if q.Fields == nil {
		q.Fields = []string{api.FieldShares}
	}
	w := api.Window{Cluster: cluster, WindowSeconds: api.Seconds(now.Sub(q.Since)), At: []api.Time{}, Fields: q.Fields,
		Endpoints: []api.EndpointTrace{}, StepSeconds: api.Seconds(fineStep), KeptSeconds: api.Num(0),
		FineSeconds: api.Num(0)}
	c := h.spanOf(cluster, q.Since)
	if c.last != nil {
		w.FineSeconds = api.Seconds(max(0, now.Sub(c.fineSince)))
		w.KeptSeconds = api.Seconds(max(0, now.Sub(c.since)))
	}
	groups, stride := c.groups(q.Points)
	w.StepSeconds = api.Seconds(time.Duration(stride) * c.step)
	for _, g := range groups {
		w.At = append(w.At, api.At(g[len(g)-1].at))
	}
	w.Pool = poolTrace(groups)
	if len(q.Fields) == 0 {
		return w
	}
	var addresses []string
	addresses, w.EndpointsLeftOut = c.addresses(q.Addresses)
	for _, address := range addresses {
		w.Endpoints = append(w.Endpoints, trace(address, groups, q.Fields))
	}
	return w
}

// Numbers is how many an answer would have, about.
func (h *History) Numbers(cluster string, q WindowQuery) int {
	c := h.spanOf(cluster, q.Since)
	moments, endpoints, fields := len(c.rows), len(q.Addresses), max(1, len(q.Fields))
	if q.Points > 0 {
		moments = min(moments, q.Points)
	}
	if endpoints == 0 && c.last != nil {
		endpoints = min(len(c.last.order.addresses), windowEndpoints)
	}
	return moments * endpoints * fields
}

// A span is the rows of a cluster since some time, read without the lock: rows do not change.
type span struct {
	rows      []*Row
	first     int // number of the first of rows
	step      time.Duration
	last      *Row // of all; nil where there is none
	since     time.Time
	fineSince time.Time
}

// spanOf takes the rows of each second if they go back that far, and otherwise the coarse ones, and the seconds since
// the last of these.
func (h *History) spanOf(cluster string, since time.Time) span {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.clusters[cluster]
	if p == nil || len(p.fine.rows) == 0 {
		return span{step: fineStep}
	}
	c := span{step: fineStep, last: p.fine.rows[len(p.fine.rows)-1], fineSince: p.fine.rows[0].at}
	c.since = c.fineSince
	from := &p.fine
	if coarse := p.coarse.rows; len(coarse) > 0 {
		if began := coarse[0].at.Add(-p.step); began.Before(c.since) {
			c.since = began
		}
		if c.since.Before(c.fineSince) && since.Before(c.fineSince.Add(-coarseStep)) {
			from, c.step = &p.coarse, p.step
		}
	}
	first := 0
	for first < len(from.rows) && from.rows[first].at.Before(since) {
		first++
	}
	c.rows, c.first = slices.Clone(from.rows[first:]), from.first+first
	if from == &p.coarse {
		c.rows = append(c.rows, p.fine.newest(int(p.step/fineStep))...)
	}
	return c
}

// newest is one row of the seconds since the last coarse row, or none.
func (r *ring) newest(every int) []*Row {
	n := r.next() % every
	if n == 0 || n > len(r.rows) {
		return nil
	}
	return []*Row{coarseRow(r.rows[len(r.rows)-n:])}
}

// groups joins neighbours so that there are at most that many moments.
func (c *span) groups(points int) (groups [][]*Row, stride int) {
	stride = 1
	rows, first := c.rows, c.first
	if n := len(rows); points > 0 && n > points {
		stride = (n + points - 1) / points
		// Groups start at multiples of the stride, so that a poll a second later averages the same neighbours and a
		// drawn line does not shiver. The group that this cuts at the old end is left out.
		skip := (stride - first%stride) % stride
		rows = rows[min(skip, n):]
	}
	for len(rows) > 0 {
		n := min(stride, len(rows))
		groups = append(groups, rows[:n])
		rows = rows[n:]
	}
	return groups, stride
}

// addresses are the endpoints wanted of those there are, sorted, and how many there is no room for.
func (c *span) addresses(wanted []string) (out []string, leftOut int) {
	seen := map[*order]bool{}
	exists := map[string]bool{}
	for _, r := range c.rows {
		if seen[r.order] {
			continue
		}
		seen[r.order] = true
		for _, a := range r.order.addresses {
			exists[a] = true
		}
	}
	if len(wanted) == 0 {
		out = slices.Sorted(maps.Keys(exists))
		return api.Limit(out, windowEndpoints), max(0, len(out)-windowEndpoints)
	}
	out = slices.DeleteFunc(slices.Clone(wanted), func(a string) bool { return !exists[a] })
	slices.Sort(out)
	return slices.Compact(out), 0
}

// trace is the past of one endpoint.
func trace(address string, groups [][]*Row, fields []string) api.EndpointTrace {
	t := api.EndpointTrace{Address: address, Shares: []api.Number{}, Served: []api.Number{}, Loads: []api.Number{},
		MaxLoads: []api.Number{}, InFlight: []api.Number{}, Latency: []api.Number{}, States: []api.EndpointState{}}
	f := finder{address: address}
	for _, field := range fields {
		switch field {
		case api.FieldShares:
			t.Shares = f.means(groups, FieldShare)
		case api.FieldServed:
			t.Served = f.means(groups, FieldServed)
		case api.FieldLoads:
			t.Loads, t.MaxLoads = f.means(groups, FieldLoad), f.highest(groups)
		case api.FieldInFlight:
			t.InFlight = f.means(groups, FieldInFlight)
		case api.FieldLatency:
			t.Latency = f.means(groups, FieldLatency)
		case api.FieldStates:
			t.States = f.states(groups)
		}
	}
	return t
}

// A finder finds an endpoint in rows, fast in those of one set of endpoints.
type finder struct {
	address string
	order   *order
	index   int
}

func (f *finder) in(r *Row) int {
	if f.order != r.order {
		f.order, f.index = r.order, r.order.of(f.address)
	}
	return f.index
}

func (f *finder) means(groups [][]*Row, field int) []api.Number {
	out := make([]api.Number, 0, len(groups))
	for _, g := range groups {
		var m mean
		for _, r := range g {
			if i := f.in(r); i >= 0 {
				m.add(decodeTable()[r.code(field, i)])
			}
		}
		out = append(out, kept(m.value()))
	}
	return out
}

func (f *finder) highest(groups [][]*Row) []api.Number {
	out := make([]api.Number, 0, len(groups))
	for _, g := range groups {
		highest := math.NaN()
		for _, r := range g {
			field := FieldLoad
			if r.fields == coarseFields {
				field = fieldMaxLoad
			}
			if i := f.in(r); i >= 0 {
				if v := float64(decodeTable()[r.code(field, i)]); !math.IsNaN(v) && !(v <= highest) {
					highest = v
				}
			}
		}
		out = append(out, kept(highest))
	}
	return out
}

func (f *finder) states(groups [][]*Row) []api.EndpointState {
	out := make([]api.EndpointState, 0, len(groups))
	for _, g := range groups {
		var worst byte
		for _, r := range g {
			if i := f.in(r); i >= 0 {
				worst = max(worst, r.States()[i])
			}
		}
		out = append(out, stateOf(worst))
	}
	return out
}

func poolTrace(groups [][]*Row) api.PoolTrace {
	var lists [PoolFields][]api.Number
	for k := range lists {
		lists[k] = make([]api.Number, 0, len(groups))
		for _, g := range groups {
			var m mean
			for _, r := range g {
				m.add(r.Pool[k])
			}
			lists[k] = append(lists[k], kept(m.value()))
		}
	}
	return api.PoolTrace{ArrivalRate: lists[0], MedianLoad: lists[1], FullestLoad: lists[2], WaterLevel: lists[3],
		InFlight: lists[4], FirstToken: lists[5], AnswerP99: lists[6], CapacityUsed: lists[7], DropFraction: lists[8]}
}

// kept rounds to the digits that are kept: four.
func kept(v float64) api.Number {
	if v == 0 || math.IsNaN(v) || math.IsInf(v, 0) {
		return api.Num(v)
	}
	scale := math.Pow(10, 3-math.Floor(math.Log10(math.Abs(v))))
	return api.Num(math.Round(v*scale) / scale)
}
