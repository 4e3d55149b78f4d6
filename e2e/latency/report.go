package latency

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Target is the 99th percentile to be reached, for 10 Envoys and 20 endpoints.
const Target = 25 * time.Millisecond

// edges returns the upper ends of the histogram's bars in milliseconds; the last bar has none.
func edges() []float64 {
	return []float64{1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 60, 100, 250}
}

// Span returns the time from the arrival to the last ACK, never below zero: an Envoy may report a request before the
// endpoint has read it.
func (s Sample) Span() time.Duration { return max(0, s.Acked.Sub(s.Arrived)) }

// Quantile returns the q-th quantile of the values, 0..1: the smallest one that at least the share q
// of them does not exceed. It is 0 for no values.
func Quantile(values []time.Duration, q float64) time.Duration {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[max(0, int(math.Ceil(q*float64(len(sorted))))-1)]
}

// A Report summarizes samples.
type Report struct {
	All  []time.Duration // every request
	Sent []time.Duration // those whose first decision was pushed
	// The parts of Sent.
	Deciding []time.Duration // from the arrival to the push
	Acking   []time.Duration // from the push to the last ACK
}

// NewReport sums samples up.
func NewReport(samples []Sample) Report {
	var r Report
	for _, s := range samples {
		r.All = append(r.All, s.Span())
		if s.Held {
			continue
		}
		r.Sent = append(r.Sent, s.Span())
		r.Deciding = append(r.Deciding, max(0, s.Pushed.Sub(s.Arrived)))
		r.Acking = append(r.Acking, max(0, s.Acked.Sub(s.Pushed)))
	}
	return r
}

// String returns a table of quantiles and the histogram of all requests.
func (r Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-46s %6s %9s %9s %9s %9s\n", "time, ms", "n", "p50", "p90", "p99", "max")
	for _, row := range []struct {
		name   string
		values []time.Duration
	}{
		{"arrival to the last ACK, every request", r.All},
		{"of those whose first decision was pushed", r.Sent},
		{"  arrival to push", r.Deciding},
		{"  push to the last ACK", r.Acking},
	} {
		fmt.Fprintf(&b, "%-46s %6d", row.name, len(row.values))
		for _, q := range []float64{0.5, 0.9, 0.99, 1} {
			fmt.Fprintf(&b, " %9.2f", milliseconds(Quantile(row.values, q)))
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "target, p99 <= %v: %s for weights that were pushed, %s with the %.1f %% of requests that "+
		"changed too little for a push\n\n",
		Target, verdict(r.Sent), verdict(r.All), 100*(1-float64(len(r.Sent))/float64(max(1, len(r.All)))))
	b.WriteString(histogram(r.All))
	return b.String()
}

func verdict(values []time.Duration) string {
	if Quantile(values, 0.99) > Target {
		return "missed"
	}
	return "held"
}

// histogram draws a bar for each range.
func histogram(values []time.Duration) string {
	ends := edges()
	counts := make([]int, len(ends)+1)
	for _, v := range values {
		i, _ := slices.BinarySearchFunc(ends, milliseconds(v), cmp.Compare[float64])
		counts[i]++
	}
	var b strings.Builder
	const width = 50
	most, sum := max(1, slices.Max(counts)), 0
	for i, n := range counts {
		if sum == len(values) {
			break
		}
		sum += n
		label := fmt.Sprintf("> %g ms", ends[len(ends)-1])
		if i < len(ends) {
			label = fmt.Sprintf("<= %g ms", ends[i])
		}
		fmt.Fprintf(&b, "%10s %6d %6.2f %%  %s\n", label, n, 100*float64(sum)/float64(len(values)),
			strings.Repeat("#", int(math.Ceil(float64(n*width)/float64(most)))))
	}
	return b.String()
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
