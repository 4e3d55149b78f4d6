package modelserver

import (
	"math"
	"slices"
	"strconv"
	"sync"
	"time"

	"steelyard/internal/api"
)

// FirstTokens follows the histogram of the time to the first token of one server. Requests count less the older they
// are, with a time constant of 60 s. It is for display only: a fault in it does not fail the scrape. It belongs to one
// goroutine.
type FirstTokens struct {
	series  *firstTokenSeries
	at      time.Time
	bounds  []float64
	before  []float64 // counts, cumulative over the buckets
	sum     float64   // seconds
	counts  []float64 // of the last minute, by bucket
	seconds float64
}

const (
	firstTokenTau  = 60 * time.Second
	mostBuckets    = 64
	fewestRequests = 0.5 // below that, the histogram is unknown
)

// firstTokenSeries has the series of one engine's histogram. All servers of an engine share it, and the memory of one
// reading is reused by the next, of any server.
type firstTokenSeries struct {
	picker  picker
	scratch sync.Pool // of *samples
}

func newFirstTokenSeries(e Engine, name string) *firstTokenSeries {
	f := &firstTokenSeries{picker: newPicker([]string{name + "_bucket", name + "_sum"})}
	f.scratch.New = func() any { return newSamples(f.picker.names, e) }
	return f
}

// firstTokenSeriesOf has the engines with such a histogram.
var firstTokenSeriesOf = map[Engine]*firstTokenSeries{
	EngineVLLM:        newFirstTokenSeries(EngineVLLM, "vllm:time_to_first_token_seconds"),
	EngineSGLang:      newFirstTokenSeries(EngineSGLang, "sglang:time_to_first_token_seconds"),
	EngineTensorRTLLM: newFirstTokenSeries(EngineTensorRTLLM, "trtllm_time_to_first_token_seconds"),
}

// NewFirstTokens returns nil for an engine that has no such histogram.
func NewFirstTokens(e Engine) *FirstTokens {
	series := firstTokenSeriesOf[e]
	if series == nil {
		return nil
	}
	return &FirstTokens{series: series}
}

// Observe adds a metrics body that was true at the given moment, and returns the histogram; nil while it is unknown.
func (f *FirstTokens) Observe(at time.Time, body []byte) *api.Histogram {
	bounds, counts, sum, ok := f.series.read(body)
	if !ok || !whole(body) {
		return nil
	}
	elapsed := at.Sub(f.at)
	restart := f.at.IsZero() || !slices.Equal(bounds, f.bounds) || elapsed <= 0
	f.at = at
	if restart {
		f.bounds, f.before, f.sum = slices.Clone(bounds), slices.Clone(counts), sum
		f.counts, f.seconds = make([]float64, len(bounds)), 0
		return nil
	}
	f.add(counts, sum, math.Exp(-elapsed.Seconds()/firstTokenTau.Seconds()))
	var all float64
	for _, n := range f.counts {
		all += n
	}
	if all < fewestRequests {
		return nil
	}
	return &api.Histogram{Bounds: f.bounds, Counts: slices.Clone(f.counts), Sum: f.seconds}
}

// add adds what came since the last time. Where counters are lower than before, some have begun again, and which of the
// requests are new is not known: none counts.
func (f *FirstTokens) add(counts []float64, sum, keep float64) {
	last := len(counts) - 1
	if counts[last] < f.before[last] || sum < f.sum {
		copy(f.before, counts)
		f.sum = sum
	}
	var below float64
	for i := range counts {
		grown := max(0, counts[i]-f.before[i])
		f.counts[i] = f.counts[i]*keep + max(0, grown-below)
		below = max(below, grown)
	}
	f.seconds = f.seconds*keep + sum - f.sum
	copy(f.before, counts)
	f.sum = sum
}

// read adds up the histograms of all models: requests up to each bound, and their seconds.
func (f *firstTokenSeries) read(body []byte) (bounds, counts []float64, sum float64, ok bool) {
	found := f.scratch.Get().(*samples)
	defer f.scratch.Put(found)
	found.read(&f.picker, body)
	if found.faults[0] != nil || found.faults[1] != nil || len(found.byName[0]) == 0 || len(found.byName[1]) == 0 {
		return nil, nil, 0, false
	}
	for _, s := range found.byName[0] {
		le, err := strconv.ParseFloat(s.label("le"), 64)
		if err != nil || math.IsNaN(le) || !plausible(s.value) {
			return nil, nil, 0, false
		}
		i, found := slices.BinarySearch(bounds, le)
		if !found {
			if len(bounds) == mostBuckets {
				return nil, nil, 0, false
			}
			bounds, counts = slices.Insert(bounds, i, le), slices.Insert(counts, i, 0)
		}
		counts[i] += s.value
	}
	for _, s := range found.byName[1] {
		if !plausible(s.value) {
			return nil, nil, 0, false
		}
		sum += s.value
	}
	return bounds, counts, sum, true
}
