package history

import (
	"maps"
	"math"
	"slices"
	"time"

	"steelyard/internal/api"
)

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
