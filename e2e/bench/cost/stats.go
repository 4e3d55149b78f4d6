package main

import (
	"math"
	"slices"
	"time"
)

// Quantiles are of a set of times, in seconds. Without any, all are 0, and so is N.
type Quantiles struct {
	N   int     `json:"n"`
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// quantiles sorts the times. A quantile is the smallest time that this share of them does not exceed.
func quantiles(times []time.Duration) Quantiles {
	q := Quantiles{N: len(times)}
	if q.N == 0 {
		return q
	}
	slices.Sort(times)
	at := func(share float64) float64 {
		return times[max(0, int(math.Ceil(share*float64(q.N)))-1)].Seconds()
	}
	q.P50, q.P99, q.Max = at(0.5), at(0.99), at(1)
	return q
}

// A point is a value at a time in seconds.
type point struct{ at, value float64 }

// slope returns the least-squares growth per second; 0 with fewer than two points.
func slope(points []point) float64 {
	var n, t, v float64
	for _, p := range points {
		n, t, v = n+1, t+p.at, v+p.value
	}
	if n < 2 {
		return 0
	}
	t, v = t/n, v/n
	var tv, tt float64
	for _, p := range points {
		tv += (p.at - t) * (p.value - v)
		tt += (p.at - t) * (p.at - t)
	}
	if tt == 0 {
		return 0
	}
	return tv / tt
}

// median of some numbers; 0 of none.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}
