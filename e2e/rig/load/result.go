package load

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// A Sample is what became of one request.
type Sample struct {
	Arrival
	Status  int           // 0 without an answer
	Err     error         // why there is no answer
	Wait    float64       // seconds in the server's queue; NaN if not in the response
	Service float64       // seconds that the server executed it; NaN if not in the response
	Latency time.Duration // from when the request was due to the end of the answer
	// FirstByte is from when the request was due to the first byte of the response's body,
	// which of a stream is the first token. It means nothing without a response.
	FirstByte time.Duration
	Lateness  time.Duration // from when the request was due to when it was sent
	Server    string        // from the response
	Dropped   bool          // Envoy refused it by drop_overloads, according to a header
}

// Failed reports whether the request counts as an error.
func (s Sample) Failed() bool { return s.Err != nil || s.Status < 200 || s.Status > 299 }

// Failure says how a request failed, and when it was due.
func (s Sample) Failure() string {
	if s.Err != nil {
		return fmt.Sprintf("%v (due at %s)", s.Err, s.At)
	}
	return fmt.Sprintf("status %d (due at %s)", s.Status, s.At)
}

// A Summary describes a set of numbers by exact quantiles. Of no numbers at all
// it is zero, with N zero.
type Summary struct {
	N                        int
	Mean, P50, P90, P99, Max float64
}

// A Result is the outcome of a run.
type Result struct {
	Samples []Sample  // in order of arrival
	Start   time.Time // what the times of arrival count from
	Elapsed time.Duration

	Requests   int
	Errors     int            // no answer, or a status other than 2xx
	Unanswered int            // of the errors, those without an answer
	Unfinished int            // of the unanswered, those given up at the end
	Codes      map[int]int    // answers by status
	Servers    map[string]int // answers by server

	Wait     Summary // seconds, of the responses that report it
	Latency  Summary // seconds, of the answers
	Lateness Summary // seconds, of all
}

// FirstBytes returns the times to the first byte, in seconds, of the answers.
func (r Result) FirstBytes() Summary {
	var all []float64
	for _, s := range r.Samples {
		if !s.Failed() {
			all = append(all, s.FirstByte.Seconds())
		}
	}
	return Summarize(all)
}

// ServerErrors returns the number of answers with a status of 500 or more.
func (r Result) ServerErrors() int {
	n := 0
	for code, count := range r.Codes {
		if code >= 500 {
			n += count
		}
	}
	return n
}

func newResult(samples []Sample, elapsed time.Duration) Result {
	r := Result{
		Samples: samples, Elapsed: elapsed, Requests: len(samples),
		Codes: make(map[int]int), Servers: make(map[string]int),
	}
	var waits, latencies, lateness []float64
	for _, s := range samples {
		r.count(s)
		lateness = append(lateness, s.Lateness.Seconds())
		if s.Err == nil {
			latencies = append(latencies, s.Latency.Seconds())
		}
		if !math.IsNaN(s.Wait) {
			waits = append(waits, s.Wait)
		}
	}
	r.Wait, r.Latency, r.Lateness = Summarize(waits), Summarize(latencies), Summarize(lateness)
	return r
}

func (r *Result) count(s Sample) {
	if s.Failed() {
		r.Errors++
	}
	if s.Err != nil {
		r.Unanswered++
		return
	}
	r.Codes[s.Status]++
	if s.Server != "" {
		r.Servers[s.Server]++
	}
}

// Summarize sorts the numbers, which must not be NaN, and describes them.
func Summarize(numbers []float64) Summary {
	n := len(numbers)
	if n == 0 {
		return Summary{}
	}
	slices.Sort(numbers)
	sum := 0.0
	for _, v := range numbers {
		sum += v
	}
	return Summary{
		N: n, Mean: sum / float64(n), Max: numbers[n-1],
		P50: Quantile(numbers, 0.5), P90: Quantile(numbers, 0.9), P99: Quantile(numbers, 0.99),
	}
}

// Quantile returns the nearest-rank quantile, q in 0..1, of ascending numbers: the
// smallest one that at least a share q of all does not exceed. NaN of none.
func Quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	// The product is exact in the reals and not in floating point: 0.9*10 must
	// not round up to the eleventh.
	rank := int(math.Ceil(q*float64(len(sorted)) - 1e-9))
	return sorted[min(max(rank, 1), len(sorted))-1]
}
