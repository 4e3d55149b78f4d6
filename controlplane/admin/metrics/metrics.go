package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"steelyard/controlplane/admin/conditions"
)

// Metrics are the process's own counters and histograms, on a registry of their own. State (weights, flags, ages,
// readiness), as opposed to events, is not set here: it is read from the Source when /metrics is scraped, so that the
// series of an endpoint that has left disappear.
//
// Every method is safe for concurrent use. The cluster label of every series is
// a configured name; call Forget when a cluster is removed.
type Metrics struct {
	registry *prometheus.Registry
	vectors  []interface {
		DeletePartialMatch(prometheus.Labels) int
	}

	scrapes, polls, kubernetes, reloads                  *prometheus.CounterVec
	decisions, flags, pushes, suppressed, acks, nacks    *prometheus.CounterVec
	queueGranted, queueReleased, queueRefused, queueLeft *prometheus.CounterVec
	scrapeDuration, scrapeBody, step, ackDelay           *prometheus.HistogramVec
	pollDuration, queueWait                              *prometheus.HistogramVec
	ignored, reloadOK, reloadSuccess                     *prometheus.GaugeVec
}

// NewMetrics returns metrics of this version of Steelyard on a registry of their own, with those of the Go runtime and
// the process.
func NewMetrics(version string) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry()}
	m.registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collectors.NewBuildInfoCollector(),
	)
	m.gauge("steelyard_build_info", "Always 1; the label is the version of Steelyard.", "version").
		WithLabelValues(label(version)).Set(1)
	m.registerInputs()
	m.registerDecisions()
	m.registerQueues()
	for _, result := range []string{resultOK, resultError} {
		m.polls.WithLabelValues(result)
		m.reloads.WithLabelValues(result)
	}
	m.pollDuration.WithLabelValues()
	m.reloadOK.WithLabelValues()
	m.reloadSuccess.WithLabelValues()
	return m
}

// Registry has these metrics.
func (m *Metrics) Registry() *prometheus.Registry { return m.registry }

// registerInputs makes the metrics of what is read: scrapes, Redis, Kubernetes and the config.
func (m *Metrics) registerInputs() {
	m.scrapes = m.counter("steelyard_scrapes_total", "Scrapes of model servers.", labelCluster, labelResult)
	m.scrapeDuration = m.histogram("steelyard_scrape_duration_seconds",
		"Time from sending a scrape to having read its body.", scrapeBuckets(), labelCluster)
	m.scrapeBody = m.histogram("steelyard_scrape_body_bytes", "Size of the metrics bodies read.",
		prometheus.ExponentialBuckets(1024, 4, 8), labelCluster)
	m.polls = m.counter("steelyard_redis_polls_total", "Reads of the in-flight counts.",
		labelResult)
	m.pollDuration = m.histogram("steelyard_redis_poll_duration_seconds", "Time of a round trip to Redis.",
		scrapeBuckets())
	m.ignored = m.gauge("steelyard_inflight_ignored_members",
		"Members of the in-flight set that are no endpoints.", labelCluster)
	m.kubernetes = m.counter("steelyard_kubernetes_requests_total", "Requests to the Kubernetes API.",
		"resource", "verb", labelResult)
	m.reloads = m.counter("steelyard_config_reloads_total", "Attempts to apply a configuration.", labelResult)
	m.reloadOK = m.gauge("steelyard_config_last_reload_successful",
		"1 if the latest configuration was applied.")
	m.reloadSuccess = m.gauge("steelyard_config_last_reload_success_timestamp_seconds",
		"Unix time of the last applied configuration.")
}

// registerDecisions makes the metrics of the loop, and of what is sent to the Envoys.
func (m *Metrics) registerDecisions() {
	m.decisions = m.counter("steelyard_decisions_total", "Steps of the weighting law.", labelCluster)
	m.step = m.histogram("steelyard_step_duration_seconds", "Time of one step of the weighting law.",
		prometheus.ExponentialBuckets(10e-6, 4, 9), labelCluster)
	m.flags = m.counter("steelyard_overload_changes_total", "Endpoints that entered or left the overload flag.",
		labelCluster, "change")
	m.pushes = m.counter("steelyard_pushes_total", "Assignments handed to the streams, by what caused them.",
		labelCluster, labelReason)
	m.suppressed = m.counter("steelyard_suppressed_pushes_total", "Decisions that were not pushed.",
		labelCluster, labelReason)
	m.ackDelay = m.histogram("steelyard_ack_delay_seconds", "Time from the push of an assignment until the ACK of an "+
		"Envoy.", prometheus.ExponentialBuckets(0.0005, 2, 14), labelCluster)
	m.acks = m.counter("steelyard_acks_total", "Assignments that Envoys accepted.", labelCluster)
	m.nacks = m.counter("steelyard_nacks_total", "Assignments that Envoys refused.", labelCluster)
}

// registerQueues makes the metrics of the queues of requests.
func (m *Metrics) registerQueues() {
	m.queueGranted = m.counter("steelyard_queue_granted_total", "Requests that the queue sent to an endpoint.",
		labelCluster, labelClass)
	m.queueReleased = m.counter("steelyard_queue_released_total",
		"Requests that follow the weights, because the queue could not choose.", labelCluster, labelClass)
	m.queueRefused = m.counter("steelyard_queue_refused_total", "Requests answered 429: full or timeout.",
		labelCluster, labelClass, labelReason)
	m.queueLeft = m.counter("steelyard_queue_left_total", "Requests whose clients gave up while they waited.",
		labelCluster, labelClass)
	m.queueWait = m.histogram("steelyard_queue_wait_seconds", "Time that these requests waited.",
		prometheus.ExponentialBuckets(0.001, 2, 18), labelCluster, labelClass)
}

// scrapeBuckets runs from half a millisecond (loopback) to four seconds.
func scrapeBuckets() []float64 { return prometheus.ExponentialBuckets(0.0005, 2, 14) }

func (m *Metrics) counter(name, help string, labels ...string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	m.registry.MustRegister(c)
	m.vectors = append(m.vectors, c)
	return c
}

func (m *Metrics) histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	m.registry.MustRegister(h)
	m.vectors = append(m.vectors, h)
	return h
}

func (m *Metrics) gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	m.registry.MustRegister(g)
	m.vectors = append(m.vectors, g)
	return g
}

// ScrapeDone records one scrape. kind says how it ended: "ok" or one of a small fixed set of failures ("timeout",
// "refused", "status", ...), never an error's text. bytes below 0 means that no body was read.
func (m *Metrics) ScrapeDone(cluster, kind string, d time.Duration, bytes int64) {
	cluster = label(cluster)
	m.scrapes.WithLabelValues(cluster, label(kind)).Inc()
	m.scrapeDuration.WithLabelValues(cluster).Observe(d.Seconds())
	if bytes >= 0 {
		m.scrapeBody.WithLabelValues(cluster).Observe(float64(bytes))
	}
}

// Polled records one round trip to Redis.
func (m *Metrics) Polled(ok bool, d time.Duration) {
	m.polls.WithLabelValues(result(ok)).Inc()
	m.pollDuration.WithLabelValues().Observe(d.Seconds())
}

// KubernetesRequested records one request to the Kubernetes API; the values are of small fixed sets.
func (m *Metrics) KubernetesRequested(resource, verb, result string) {
	m.kubernetes.WithLabelValues(resource, verb, result).Inc()
}

// Ignored records how many members of a cluster's latest in-flight set are no endpoints of it.
func (m *Metrics) Ignored(cluster string, n int) {
	m.ignored.WithLabelValues(label(cluster)).Set(float64(n))
}

// Stepped records one step of the weighting law.
func (m *Metrics) Stepped(cluster string, d time.Duration) {
	cluster = label(cluster)
	m.decisions.WithLabelValues(cluster).Inc()
	m.step.WithLabelValues(cluster).Observe(d.Seconds())
}

// OverloadChanged records that one endpoint entered or left the overload flag.
func (m *Metrics) OverloadChanged(cluster string, entered bool) {
	change := "left"
	if entered {
		change = "entered"
	}
	m.flags.WithLabelValues(label(cluster), change).Inc()
}

// Pushed records that an assignment was handed to the streams. reason is one of a small fixed set.
func (m *Metrics) Pushed(cluster, reason string) {
	m.pushes.WithLabelValues(label(cluster), label(reason)).Inc()
}

// Suppressed records that a decision was not pushed. reason is one of a small fixed set.
func (m *Metrics) Suppressed(cluster, reason string) {
	m.suppressed.WithLabelValues(label(cluster), label(reason)).Inc()
}

// Acked records an ACK and how long after the push it came.
func (m *Metrics) Acked(cluster string, d time.Duration) {
	cluster = label(cluster)
	m.acks.WithLabelValues(cluster).Inc()
	m.ackDelay.WithLabelValues(cluster).Observe(d.Seconds())
}

// Nacked records a NACK.
func (m *Metrics) Nacked(cluster string) { m.nacks.WithLabelValues(label(cluster)).Inc() }

// The results of waiting in a queue that are not refusals.
const (
	waitGranted  = "granted"
	waitReleased = "released"
)

// Waited records how the waiting of a request ended: granted, released, or why it was refused. Class and result are of
// small fixed sets.
func (m *Metrics) Waited(cluster, class, result string, d time.Duration) {
	cluster, class = label(cluster), label(class)
	switch result {
	case waitGranted:
		m.queueGranted.WithLabelValues(cluster, class).Inc()
		m.queueWait.WithLabelValues(cluster, class).Observe(d.Seconds())
	case waitReleased:
		m.queueReleased.WithLabelValues(cluster, class).Inc()
	default:
		m.queueRefused.WithLabelValues(cluster, class, result).Inc()
	}
}

// Left records that the client of a waiting request gave up.
func (m *Metrics) Left(cluster, class string) {
	m.queueLeft.WithLabelValues(label(cluster), label(class)).Inc()
}

// Reloaded records an attempt to apply a config.
func (m *Metrics) Reloaded(ok bool) {
	m.reloads.WithLabelValues(result(ok)).Inc()
	m.reloadOK.WithLabelValues().Set(float64(conditions.BoolToInt(ok)))
	if ok {
		m.reloadSuccess.WithLabelValues().SetToCurrentTime()
	}
}

// Forget drops all series of a cluster that is no longer configured.
func (m *Metrics) Forget(cluster string) {
	for _, v := range m.vectors {
		v.DeletePartialMatch(prometheus.Labels{labelCluster: label(cluster)})
	}
}

func result(ok bool) string {
	if ok {
		return resultOK
	}
	return resultError
}
