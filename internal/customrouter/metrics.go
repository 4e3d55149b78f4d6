package customrouter

import (
	"fmt"
	"math"
	"net/http"
	"strings"
)

// metrics is GET /_custom_router/metrics, in the text format of Prometheus. The names are those of the contract.
func (r *Router) metrics(w http.ResponseWriter, _ *http.Request) {
	s := r.state()
	var out strings.Builder
	family := func(name, kind, help string) {
		fmt.Fprintf(&out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
	}
	single := func(name, kind, help string, value any) {
		family(name, kind, help)
		fmt.Fprintf(&out, "%s %v\n", name, value)
	}
	single("custom_router_queue_depth", "gauge", "Requests that wait for a backend.", s.depth)
	const ewma, inFlight = "custom_router_backend_ewma_latency_seconds", "custom_router_backend_inflight_requests"
	family(ewma, "gauge", "Moving average of the time to the last byte; absent before the first answer.")
	for _, b := range s.backends {
		if !math.IsNaN(b.Latency) {
			fmt.Fprintf(&out, "%s{addr=%q} %v\n", ewma, b.Address, b.Latency)
		}
	}
	family(inFlight, "gauge", "Requests at a backend.")
	for _, b := range s.backends {
		fmt.Fprintf(&out, "%s{addr=%q} %d\n", inFlight, b.Address, b.InFlight)
	}
	single("custom_router_requests_dispatched_total", "counter", "Requests that were sent to a backend.", s.dispatched)
	single("custom_router_requests_evicted_total", "counter",
		"Requests that were refused because the queue was full.", s.evicted)
	single("custom_router_requests_timeout_total", "counter",
		"Requests that were refused because they had waited for too long.", s.timedOut)
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_, _ = w.Write([]byte(out.String())) // the client may be gone
}
