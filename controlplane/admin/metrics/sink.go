package metrics

import (
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"steelyard/controlplane/admin/conditions"
	"steelyard/internal/api"
)

// A sink takes the series of one scrape that have its labels. Each series is described where its value is read.
type sink struct {
	ch     chan<- prometheus.Metric
	descs  map[string]*prometheus.Desc // by name: most series are of many endpoints
	labels []string
	values []string
}

// with returns a sink with further labels, in pairs of label and value.
func (s sink) with(pairs ...string) sink {
	s.labels, s.values = slices.Clip(s.labels), slices.Clip(s.values)
	for i := 0; i < len(pairs); i += 2 {
		s.labels, s.values = append(s.labels, pairs[i]), append(s.values, label(pairs[i+1]))
	}
	return s
}

// set sends a series; it sends none for a number that is unknown. One whose name ends in _total is a counter.
func (s sink) set(name, help string, n api.Number) {
	v, known := n.Value()
	if !known {
		return
	}
	kind := prometheus.GaugeValue
	if strings.HasSuffix(name, "_total") {
		kind = prometheus.CounterValue
	}
	if s.descs[name] == nil {
		s.descs[name] = prometheus.NewDesc(name, help, s.labels, nil)
	}
	s.ch <- prometheus.MustNewConstMetric(s.descs[name], kind, v, s.values...)
}

// num is a count as a number.
func num[T int | uint64](n T) api.Number { return api.Num(float64(n)) }

// each sends a series of each count, by a label.
func each[K ~string, N int | uint64](s sink, label, name, help string, counts map[K]N) {
	for value, n := range counts {
		s.with(label, string(value)).set(name, help, num(n))
	}
}

// unixTime is in seconds; unknown for no time.
func unixTime(t api.Time) api.Number {
	if t.IsZero() {
		return api.Number{}
	}
	return api.Num(float64(t.UnixNano()) / 1e9)
}

func oneIf(b bool) api.Number { return api.Num(float64(conditions.BoolToInt(b))) }

// Labels and their values.
const (
	labelCluster  = "envoy_cluster_name"
	labelEndpoint = "endpoint"
	labelResult   = "result"
	labelReason   = "reason"
	labelClass    = "class"

	resultOK    = "ok"
	resultError = "error"
)

// label makes any string fit for a label: client_golang panics on one that is not UTF-8.
func label(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
