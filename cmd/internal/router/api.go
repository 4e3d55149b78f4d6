package router

import (
	"math"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// The API, below this path.
const apiPath = "/_custom_router/"

func (r *Router) handler() http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector{r.queue})
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+apiPath+"set-backends", r.setBackends)
	mux.HandleFunc("GET "+apiPath+"health", r.health)
	mux.Handle("GET "+apiPath+"metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	return mux
}

// backendHealth is a backend in the answer of health.
type backendHealth struct {
	Addr        string   `json:"addr"`
	InFlight    int      `json:"in_flight"`
	EWMALatency *float64 `json:"ewma_latency"` // seconds; null before the first answer
}

// health is GET /_custom_router/health.
func (r *Router) health(w http.ResponseWriter, _ *http.Request) {
	s := r.queue.state()
	out := struct {
		OK         bool            `json:"ok"`
		QueueDepth int             `json:"queue_depth"`
		Backends   []backendHealth `json:"backends"`
	}{OK: true, QueueDepth: s.depth, Backends: make([]backendHealth, len(s.backends))}
	for i, b := range s.backends {
		out.Backends[i] = backendHealth{Addr: b.Address, InFlight: b.InFlight}
		if !math.IsNaN(b.Latency) {
			out.Backends[i].EWMALatency = &b.Latency
		}
	}
	answer(w, http.StatusOK, out)
}

var (
	descDepth = prometheus.NewDesc("custom_router_queue_depth", "Requests that wait for a backend.", nil, nil)
	descEWMA  = prometheus.NewDesc("custom_router_backend_ewma_latency_seconds",
		"Moving average of the time to the last byte; absent before the first answer.", []string{"addr"}, nil)
	descInFlight = prometheus.NewDesc("custom_router_backend_inflight_requests",
		"Requests at a backend.", []string{"addr"}, nil)
	descDispatched = prometheus.NewDesc("custom_router_requests_dispatched_total",
		"Requests that were sent to a backend.", nil, nil)
	descEvicted = prometheus.NewDesc("custom_router_requests_evicted_total",
		"Requests that were refused because the queue was full.", nil, nil)
	descTimeout = prometheus.NewDesc("custom_router_requests_timeout_total",
		"Requests that were refused because they had waited for too long.", nil, nil)
)

// collector is the metrics of a queue. Their names are those of the contract.
type collector struct{ queue *queue }

// Describe and Collect make it a prometheus.Collector.
func (c collector) Describe(out chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, out) }

func (c collector) Collect(out chan<- prometheus.Metric) {
	s := c.queue.state()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, v uint64) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v))
	}
	gauge(descDepth, float64(s.depth))
	for _, b := range s.backends {
		gauge(descInFlight, float64(b.InFlight), b.Address)
		if !math.IsNaN(b.Latency) {
			gauge(descEWMA, b.Latency, b.Address)
		}
	}
	counter(descDispatched, s.dispatched)
	counter(descEvicted, s.evicted)
	counter(descTimeout, s.timedOut)
}
