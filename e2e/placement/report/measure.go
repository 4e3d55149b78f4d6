package report

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"steelyard/e2e/placement/stats"
	"steelyard/e2e/rig/load"
)

// A Measurement is what one policy did with the requests of one service time.
// Slices hold one value for each request, in order of arrival; those of
// measurements that are compared belong to the same requests.
type Measurement struct {
	Policy  string // as in the JSON
	Title   string // as in tables
	Service time.Duration

	Waits    []float64 // seconds in the server's queue; NaN where there is no answer
	Added    []float64 // seconds on top of wait and service: the way there and back; NaN likewise
	Lateness []float64 // seconds that the generator was late
	Errors   int

	Cost Cost
}

// A Cost is what processes used while the requests of a measurement arrived.
type Cost struct {
	Seconds float64   // that were measured
	Envoys  []float64 // CPU seconds of each Envoy

	Control    bool    // whether there is a Steelyard
	ControlCPU float64 // its CPU seconds
	ControlRSS float64 // its largest resident memory, in bytes
	Pushes     float64
	Suppressed float64 // decisions that were not pushed
}

// Add appends another measurement of the same policy and service time. The zero
// value becomes the other.
func (m *Measurement) Add(other Measurement) {
	m.Policy, m.Title, m.Service = other.Policy, other.Title, other.Service
	m.Waits = append(m.Waits, other.Waits...)
	m.Added = append(m.Added, other.Added...)
	m.Lateness = append(m.Lateness, other.Lateness...)
	m.Errors += other.Errors
	m.Cost.add(other.Cost)
}

func (c *Cost) add(other Cost) {
	c.Seconds += other.Seconds
	if c.Envoys == nil {
		c.Envoys = make([]float64, len(other.Envoys))
	}
	for i, cpu := range other.Envoys {
		c.Envoys[i] += cpu
	}
	c.Control = c.Control || other.Control
	c.ControlCPU += other.ControlCPU
	c.ControlRSS = max(c.ControlRSS, other.ControlRSS)
	c.Pushes += other.Pushes
	c.Suppressed += other.Suppressed
}

// A Number is a float64 whose NaN, which is unknown and not zero, is null in JSON.
type Number float64

// MarshalJSON implements json.Marshaler.
func (n Number) MarshalJSON() ([]byte, error) {
	if v := float64(n); math.IsNaN(v) || math.IsInf(v, 0) {
		return []byte("null"), nil
	}
	return strconv.AppendFloat(nil, float64(n), 'g', 6, 64), nil
}

// String has three digits, or a dash where nothing was measured.
func (n Number) String() string {
	v := float64(n)
	switch {
	case math.IsNaN(v):
		return "-"
	case math.Abs(v) >= 100:
		return fmt.Sprintf("%.0f", v)
	default:
		return fmt.Sprintf("%.3g", v)
	}
}

// A CI is a 95 % confidence interval, [low, high].
type CI [2]Number

func ciOf(i stats.Interval) CI { return CI{Number(i.Low), Number(i.High)} }

// A Row is a measurement in figures.
type Row struct {
	Policy   string `json:"policy"`
	Title    string `json:"title"`
	Service  Number `json:"service"` // mean, in seconds
	Requests int    `json:"requests"`
	Errors   int    `json:"errors"`

	// Waits, in mean service times.
	WaitMean  Number `json:"wait_mean"`
	WaitP50   Number `json:"wait_p50"`
	WaitP50CI CI     `json:"wait_p50_ci"`
	WaitP90   Number `json:"wait_p90"`
	WaitP90CI CI     `json:"wait_p90_ci"`
	WaitP99   Number `json:"wait_p99"`
	WaitP99CI CI     `json:"wait_p99_ci"`

	// Latency without wait and service, in seconds.
	AddedP50 Number `json:"added_latency_p50"`
	AddedP99 Number `json:"added_latency_p99"`

	EnvoyCPU    Number `json:"envoy_cpu_cores"`     // mean over the Envoys
	EnvoyCPUMax Number `json:"envoy_cpu_cores_max"` // of the busiest

	ControlCPU Number `json:"control_cpu_cores"`
	ControlRSS Number `json:"control_rss_bytes"`
	Pushes     Number `json:"pushes_per_second"`
	Suppressed Number `json:"suppressed_pushes_per_second"`

	// How late the generator was, in seconds.
	LatenessP50 Number `json:"lateness_p50"`
	LatenessP99 Number `json:"lateness_p99"`
	LatenessMax Number `json:"lateness_max"`

	waits []float64 // ascending, in mean service times, for plots
}

// The quantiles of a row.
const (
	p50 = 0.5
	p90 = 0.9
	p99 = 0.99
)

// A Section is the rows of one service time, whose requests are the same.
type Section struct {
	Service   time.Duration
	Rows      []Row
	quantiles *stats.Quantiles // of the rows, in their order
}

// NewSection makes the rows of measurements of one service time.
func NewSection(service time.Duration, all []Measurement, b stats.Bootstrap) (Section, error) {
	s := Section{Service: service}
	series := make([][]float64, len(all))
	for i, m := range all {
		if len(m.Waits) != len(all[0].Waits) {
			return s, fmt.Errorf("comparing %s with %s: %d requests and %d, want the same ones", m.Policy, all[0].Policy, len(m.Waits), len(all[0].Waits))
		}
		series[i] = make([]float64, len(m.Waits))
		for k, w := range m.Waits {
			series[i][k] = w / service.Seconds()
		}
	}
	s.quantiles = b.Quantiles(series, p50, p90, p99)
	for i, m := range all {
		s.Rows = append(s.Rows, s.row(i, m, known(series[i])))
	}
	return s, nil
}

// row is the row of a measurement with the given waits, ascending and in mean
// service times.
func (s Section) row(i int, m Measurement, waits []float64) Row {
	added, lateness := load.Summarize(known(m.Added)), load.Summarize(known(m.Lateness))
	r := Row{
		Policy: m.Policy, Title: m.Title, Service: Number(m.Service.Seconds()),
		Requests: len(m.Waits), Errors: m.Errors,
		WaitMean: mean(waits),
		WaitP50:  Number(s.quantiles.Value(i, p50)), WaitP50CI: ciOf(s.quantiles.Interval(i, p50)),
		WaitP90: Number(s.quantiles.Value(i, p90)), WaitP90CI: ciOf(s.quantiles.Interval(i, p90)),
		WaitP99: Number(s.quantiles.Value(i, p99)), WaitP99CI: ciOf(s.quantiles.Interval(i, p99)),
		AddedP50: Number(added.P50), AddedP99: Number(added.P99),
		LatenessP50: Number(lateness.P50), LatenessP99: Number(lateness.P99), LatenessMax: Number(lateness.Max),
		EnvoyCPU: unknown, EnvoyCPUMax: unknown,
		ControlCPU: unknown, ControlRSS: unknown, Pushes: unknown, Suppressed: unknown,
		waits: waits,
	}
	r.cost(m.Cost)
	return r
}

// unknown is what was not measured.
var unknown = Number(math.NaN())

// cost fills in what there was to measure.
func (r *Row) cost(c Cost) {
	if c.Seconds <= 0 {
		return
	}
	if len(c.Envoys) > 0 {
		r.EnvoyCPU = mean(c.Envoys) / Number(c.Seconds)
		r.EnvoyCPUMax = Number(slices.Max(c.Envoys) / c.Seconds)
	}
	if c.Control {
		r.ControlCPU = Number(c.ControlCPU / c.Seconds)
		r.ControlRSS = Number(c.ControlRSS)
		r.Pushes = Number(c.Pushes / c.Seconds)
		r.Suppressed = Number(c.Suppressed / c.Seconds)
	}
}

// known are the values that are not NaN, ascending.
func known(values []float64) []float64 {
	out := slices.DeleteFunc(slices.Clone(values), math.IsNaN)
	slices.Sort(out)
	return out
}

func mean(values []float64) Number {
	if len(values) == 0 {
		return unknown
	}
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return Number(sum / float64(len(values)))
}

// find returns the index of a policy's row, or -1.
func (s Section) find(policy string) int {
	return slices.IndexFunc(s.Rows, func(r Row) bool { return r.Policy == policy })
}
