package customrouter

import (
	"math"
	"net/http"
	"slices"
	"time"

	"steelyard/internal/customrouter/leastlatency"
)

// APIPath is the path below which the API is, and Paths the expression that matches its paths for clients and no
// others. DrainPath and StopPath are for the process that runs Envoy.
const (
	APIPath   = "/_custom_router/"
	Paths     = APIPath + "(set-backends|health|metrics)"
	DrainPath = APIPath + "drain"
	StopPath  = APIPath + "stop"
)

// Handler serves the API.
func (r *Router) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+APIPath+"set-backends", r.setBackends)
	mux.HandleFunc("GET "+APIPath+"health", r.health)
	mux.HandleFunc("GET "+APIPath+"metrics", r.metrics)
	mux.HandleFunc("POST "+DrainPath, r.drain)
	mux.HandleFunc("POST "+StopPath, r.stopWaiting)
	return mux
}

// Health is the answer of health.
type Health struct {
	OK         bool            `json:"ok"` // false, with the status 503, once the router drains
	QueueDepth int             `json:"queue_depth"`
	Backends   []BackendHealth `json:"backends"`
	// Removed are backends that are not set any more and still have requests, which may never end.
	Removed []BackendHealth `json:"removed,omitempty"`
	// LeftOut has the backends of the last list that cannot be used.
	LeftOut []LeftOut `json:"left_out,omitempty"`
}

// BackendHealth is a backend in it.
type BackendHealth struct {
	Addr        string                    `json:"addr"` // as it was given
	InFlight    int                       `json:"in_flight"`
	EWMALatency *float64                  `json:"ewma_latency"` // seconds; null before the first answer
	State       leastlatency.BackendState `json:"state"`        // whether it takes one more request, and why not
}

// Idle reports whether no request waits or is at a backend.
func (h *Health) Idle() bool {
	busy := func(b BackendHealth) bool { return b.InFlight > 0 }
	return h.QueueDepth == 0 && !slices.ContainsFunc(h.Backends, busy) && !slices.ContainsFunc(h.Removed, busy)
}

// drain is POST /_custom_router/drain. From now on health is not ok, so that no new requests come. Those that come are
// taken nevertheless.
func (r *Router) drain(w http.ResponseWriter, _ *http.Request) {
	r.draining.Store(true)
	w.WriteHeader(http.StatusNoContent)
}

// stopWaiting is POST /_custom_router/stop. It refuses the requests that wait, and from now on each that would have to.
func (r *Router) stopWaiting(w http.ResponseWriter, _ *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.settle(time.Now(), r.strategy.Stop())
	w.WriteHeader(http.StatusNoContent)
}

// health is GET /_custom_router/health.
func (r *Router) health(w http.ResponseWriter, _ *http.Request) {
	s := r.state()
	out := Health{OK: !r.draining.Load(), QueueDepth: s.depth, Backends: []BackendHealth{}, LeftOut: s.leftOut}
	for _, b := range s.backends {
		shown := BackendHealth{Addr: b.Address, InFlight: b.InFlight, State: b.State}
		if !math.IsNaN(b.Latency) {
			shown.EWMALatency = &b.Latency
		}
		if b.State == leastlatency.BackendRemoved {
			out.Removed = append(out.Removed, shown)
		} else {
			out.Backends = append(out.Backends, shown)
		}
	}
	status := http.StatusOK
	if !out.OK {
		status = http.StatusServiceUnavailable
	}
	answer(w, status, out)
}
