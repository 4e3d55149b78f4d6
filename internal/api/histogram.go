package api

import (
	"math"
	"slices"
)

// p99 is the part of the requests that FirstTokenP99 is for.
const p99 = 0.99

// Latencies returns the mean, and the p99 with the bounds of its bucket, in which it is interpolated. All of it is
// unknown without a request, or for nil.
func Latencies(h *Histogram) FirstToken {
	if h == nil {
		return FirstToken{}
	}
	var all float64
	for _, n := range h.Counts {
		all += n
	}
	if all <= 0 {
		return FirstToken{}
	}
	f := FirstToken{FirstTokenMean: Num(h.Sum / all)}
	rank, low := p99*all, 0.0
	for i, n := range h.Counts {
		if rank > n && i < len(h.Counts)-1 {
			rank -= n
			low = h.Bounds[i]
			continue
		}
		high := h.Bounds[i]
		if i == 0 && math.IsInf(high, 1) {
			break // a histogram with this bucket only shows nothing but the mean
		}
		f.FirstTokenP99Low, f.FirstTokenP99High = Num(low), Num(high) // unknown where it is infinite
		if f.FirstTokenP99 = Num(low); !math.IsInf(high, 1) && n > 0 {
			f.FirstTokenP99 = Num(low + (high-low)*min(1, rank/n))
		}
		break
	}
	return f
}

// Merge adds up histograms, bucket by bucket. Those of other bounds than the first are left out: they are of another
// version of the engine.
func Merge(all []*Histogram) *Histogram {
	var sum *Histogram
	for _, h := range all {
		switch {
		case h == nil:
		case sum == nil:
			sum = &Histogram{Bounds: h.Bounds, Counts: slices.Clone(h.Counts), Sum: h.Sum}
		case slices.Equal(sum.Bounds, h.Bounds):
			for i, n := range h.Counts {
				sum.Counts[i] += n
			}
			sum.Sum += h.Sum
		}
	}
	return sum
}
