package history

import (
	"slices"
	"sync"
	"time"
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
