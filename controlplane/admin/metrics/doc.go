// Package metrics has the series of /metrics: counters and histograms that the loops add to, and the state of clusters,
// endpoints and Envoys, which is read when Prometheus scrapes, so that the series of what has left disappear.
package metrics
