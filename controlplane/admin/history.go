package admin

import (
	"math"
	"slices"
	"sync"
	"time"

	"steelyard/controlplane/view"
)

// The bounds of a History. One cluster of the largest size takes
// historySamples x historyEndpoints x 4 bytes = 2.4 MB.
const (
	historyStep      = time.Second
	historySamples   = 600 // ten minutes
	historyEndpoints = 1000
)

// A History keeps the shares of the last ten minutes, one sample per second, of
// at most 1000 endpoints per cluster. It is safe for concurrent use.
type History struct {
	mu       sync.Mutex
	clusters map[string]*ring
}

// NewHistory returns an empty History.
func NewHistory() *History { return &History{clusters: map[string]*ring{}} }

// Add records the shares of a cluster's endpoints; addresses and shares go
// together by index. It may be called after every step: what comes less than a
// second after the previous sample is dropped. An endpoint that is not named
// has no share in that sample.
func (h *History) Add(cluster string, at time.Time, addresses []string, shares []float64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.clusters[cluster]
	if r == nil {
		r = newRing()
		h.clusters[cluster] = r
	}
	r.add(at, addresses, shares)
}

// Forget drops a cluster that is no longer configured.
func (h *History) Forget(cluster string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.clusters, cluster)
}

// A Window is a part of a cluster's history: Shares[i] of an endpoint belongs
// to the moment At[i]. Where neighbours were averaged, At is the latest of them.
type Window struct {
	Cluster          string          `json:"cluster"`
	WindowSeconds    view.Number     `json:"window_seconds"`
	StepSeconds      view.Number     `json:"step_seconds"`
	At               []view.Time     `json:"at"` // oldest first
	Endpoints        []EndpointTrace `json:"endpoints"`
	EndpointsLeftOut int             `json:"endpoints_left_out"`
}

// An EndpointTrace is one endpoint's shares over a Window, unknown where the
// endpoint was not in the pool.
type EndpointTrace struct {
	Address string        `json:"address"`
	Shares  []view.Number `json:"shares"`
}

// A WindowQuery says which part of the history is wanted.
type WindowQuery struct {
	Since     time.Time
	Points    int      // at most so many moments; neighbours are averaged to get there. 0: all
	Addresses []string // only these endpoints; empty: all
}

// Window returns what is known of a cluster since q.Since; a cluster with no
// history has a Window without moments.
func (h *History) Window(cluster string, now time.Time, q WindowQuery) Window {
	h.mu.Lock()
	defer h.mu.Unlock()
	w := Window{Cluster: cluster, WindowSeconds: view.Seconds(now.Sub(q.Since)), At: []view.Time{},
		Endpoints: []EndpointTrace{}}
	r := h.clusters[cluster]
	if r == nil {
		w.StepSeconds = view.Seconds(historyStep)
		return w
	}
	r.window(&w, q)
	return w
}

// A ring holds the samples of one cluster. Sample n, counted from the first
// ever, is at index n % historySamples of times and of every column.
type ring struct {
	times   [historySamples]time.Time
	next    int // number of the sample to come
	columns map[string]*column
	leftOut int // endpoints of the latest sample beyond the bound
}

// A column is one endpoint's shares; NaN where it was not in the pool. They are
// float32 because seven digits are more than a line of forty pixels shows.
type column struct {
	shares [historySamples]float32
	last   int // number of the latest sample with a share
}

func newRing() *ring { return &ring{columns: map[string]*column{}} }

func (r *ring) add(at time.Time, addresses []string, shares []float64) {
	if r.next > 0 {
		since := at.Sub(r.times[(r.next-1)%historySamples])
		if since < -historyStep {
			// The clock was set back. Samples from the future would block new
			// ones until it has caught up.
			*r = *newRing()
		} else if since < historyStep {
			return
		}
	}
	i := r.next % historySamples
	r.times[i] = at
	r.forgetGone(i)
	r.leftOut = 0
	for k, address := range addresses[:min(len(addresses), len(shares))] {
		c := r.column(address)
		if c == nil {
			r.leftOut++
			continue
		}
		c.shares[i], c.last = float32(shares[k]), r.next
	}
	r.next++
}

// forgetGone clears slot i and drops the endpoints that have no share left.
func (r *ring) forgetGone(i int) {
	for address, c := range r.columns {
		c.shares[i] = float32(math.NaN())
		if r.next-c.last >= historySamples {
			delete(r.columns, address)
		}
	}
}

// column returns the column of an endpoint, a new one if need be, and nil when
// there is no room.
func (r *ring) column(address string) *column {
	c := r.columns[address]
	if c != nil || len(r.columns) >= historyEndpoints {
		return c
	}
	c = &column{}
	for i := range c.shares {
		c.shares[i] = float32(math.NaN())
	}
	r.columns[address] = c
	return c
}

func (r *ring) window(w *Window, q WindowQuery) {
	first := max(0, r.next-historySamples)
	for first < r.next && r.times[first%historySamples].Before(q.Since) {
		first++
	}
	stride := 1
	if n := r.next - first; q.Points > 0 && n > q.Points {
		stride = (n + q.Points - 1) / q.Points
		// Groups start at multiples of the stride, so that a poll a second later
		// averages the same neighbours and a drawn line does not shiver. The
		// group that this cuts at the old end is left out.
		first += (stride - first%stride) % stride
	}
	w.StepSeconds = view.Seconds(time.Duration(stride) * historyStep)
	w.EndpointsLeftOut = r.leftOut
	for n := first; n < r.next; n += stride {
		w.At = append(w.At, view.At(r.times[(min(n+stride, r.next)-1)%historySamples]))
	}
	for _, address := range r.addresses(q.Addresses) {
		w.Endpoints = append(w.Endpoints, EndpointTrace{address, r.columns[address].trace(first, r.next, stride)})
	}
}

// addresses are the endpoints wanted of those there are, sorted.
func (r *ring) addresses(wanted []string) []string {
	var out []string
	if len(wanted) == 0 {
		for address := range r.columns {
			out = append(out, address)
		}
	}
	for _, address := range wanted {
		if r.columns[address] != nil {
			out = append(out, address)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// trace averages the shares of samples [first, next) in groups of stride.
func (c *column) trace(first, next, stride int) []view.Number {
	out := make([]view.Number, 0, (next-first+stride-1)/stride)
	for n := first; n < next; n += stride {
		out = append(out, c.mean(n, min(n+stride, next)))
	}
	return out
}

// mean averages the known shares of samples [from, to), to six decimals.
func (c *column) mean(from, to int) view.Number {
	var sum float64
	var known int
	for n := from; n < to; n++ {
		if v := float64(c.shares[n%historySamples]); !math.IsNaN(v) && !math.IsInf(v, 0) {
			sum += v
			known++
		}
	}
	if known == 0 {
		return view.Number{}
	}
	return view.Num(math.Round(sum/float64(known)*1e6) / 1e6)
}
