package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"steelyard/e2e/bench/placement/stats"
	"steelyard/e2e/rig/load"
)

// A Measurement is what one policy did with the requests of one service time.
// Slices hold one value for each request, in order of arrival; those of
// measurements of one group belong to the same requests.
type Measurement struct {
	Policy  string // as in the JSON
	Title   string // as in tables
	Service time.Duration
	Group   int // from 1; those of one group were measured together and are compared

	// Waits are seconds in the server's queue, or, of requests that wait in their Envoys, all but the service; NaN
	// where there is no answer.
	Waits    []float64
	Added    []float64 // seconds on top of wait and service: the way there and back; NaN if the wait has them, too
	Lateness []float64 // seconds that the generator was late
	Errors   int
	// FirstError is how the first of them failed; empty without one.
	FirstError string

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
	m.Policy, m.Title, m.Service, m.Group = other.Policy, other.Title, other.Service, other.Group
	m.Waits = append(m.Waits, other.Waits...)
	m.Added = append(m.Added, other.Added...)
	m.Lateness = append(m.Lateness, other.Lateness...)
	m.Errors += other.Errors
	m.FirstError = cmp.Or(m.FirstError, other.FirstError)
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

// String returns three digits, or a dash if nothing was measured.
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
	Group    int    `json:"group"`   // from 1; rows of one group ran together
	Requests int    `json:"requests"`
	Errors   int    `json:"errors"`
	// FirstError is how the first of them failed.
	FirstError string `json:"first_error,omitempty"`

	// Waits, in mean service times.
	WaitMean  Number `json:"wait_mean"`
	WaitP50   Number `json:"wait_p50"`
	WaitP50CI CI     `json:"wait_p50_ci"`
	WaitP90   Number `json:"wait_p90"`
	WaitP90CI CI     `json:"wait_p90_ci"`
	WaitP99   Number `json:"wait_p99"`
	WaitP99CI CI     `json:"wait_p99_ci"`

	// The p99 as a multiple of those of the references in the same group.
	OfLeastRequest   Number `json:"wait_p99_of_least_request"`
	OfLeastRequestCI CI     `json:"wait_p99_of_least_request_ci"`
	OfBound          Number `json:"wait_p99_of_shortest_queue"`
	OfBoundCI        CI     `json:"wait_p99_of_shortest_queue_ci"`

	// Latency without wait and service, in seconds; Over is above LEAST_REQUEST of
	// the same group.
	AddedP50     Number `json:"added_latency_p50"`
	AddedP99     Number `json:"added_latency_p99"`
	AddedP50Over Number `json:"added_latency_p50_over_least_request"`

	// Over is above the mean over the Envoys of LEAST_REQUEST in the same group.
	EnvoyCPU        Number `json:"envoy_cpu_cores"` // mean over the Envoys
	EnvoyCPUOver    Number `json:"envoy_cpu_cores_over_least_request"`
	EnvoyCPUMax     Number `json:"envoy_cpu_cores_max"` // of the busiest
	EnvoyCPUMaxOver Number `json:"envoy_cpu_cores_max_over_least_request"`

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

// The rows that others are held against.
const (
	leastRequest = "least_request"
	bound        = "shortest_queue"
)

// A Section is the rows of one service time. What the machine cannot carry at once
// is measured in groups, one after the other, with the same requests: each group has
// references of its own, and rows are held against those of their group.
type Section struct {
	Service    time.Duration
	Rows       []Row // one for each policy: of the first group that has it
	References []Row // of policies that further groups have again
}

// NewSection makes the rows of measurements of one service time, in their order.
func NewSection(service time.Duration, all []Measurement, b stats.Bootstrap) (Section, error) {
	groups := make(map[int]group)
	for _, m := range all {
		groups[m.Group] = append(groups[m.Group], m)
	}
	rows := make(map[int][]Row, len(groups))
	for number, g := range groups {
		var err error
		if rows[number], err = g.rows(b); err != nil {
			return Section{}, err
		}
	}
	s := Section{Service: service}
	for _, m := range all {
		row := rows[m.Group][0]
		rows[m.Group] = rows[m.Group][1:]
		if s.find(m.Policy) < 0 {
			s.Rows = append(s.Rows, row)
		} else {
			s.References = append(s.References, row)
		}
	}
	return s, nil
}

// Groups returns the number of groups in which the rows were measured.
func (s Section) Groups() int {
	n := 0
	for _, r := range s.Rows {
		n = max(n, r.Group)
	}
	return n
}

// latest returns the row of a group whose requests left latest; one of which nothing is
// known comes before all.
func (s Section) latest(group int) Row {
	var worst Row
	for _, r := range slices.Concat(s.Rows, s.References) {
		if r.Group == group && (worst.Group == 0 || !(r.LatenessP99 <= worst.LatenessP99)) {
			worst = r
		}
	}
	return worst
}

// A group is what was measured together.
type group []Measurement

// find returns the index of a policy's measurement, or -1.
func (g group) find(policy string) int {
	return slices.IndexFunc(g, func(m Measurement) bool { return m.Policy == policy })
}

// rows returns the figures of a group, in its order.
func (g group) rows(b stats.Bootstrap) ([]Row, error) {
	series := make([][]float64, len(g))
	for i, m := range g {
		if len(m.Waits) != len(g[0].Waits) {
			return nil, fmt.Errorf("comparing %s with %s: %d requests and %d, want the same ones", m.Policy,
				g[0].Policy, len(m.Waits), len(g[0].Waits))
		}
		series[i] = make([]float64, len(m.Waits))
		for k, w := range m.Waits {
			series[i][k] = w / m.Service.Seconds()
		}
	}
	q := b.Quantiles(series, p50, p90, p99)
	rows := make([]Row, len(g))
	for i, m := range g {
		rows[i] = newRow(m, known(series[i]))
		rows[i].quantiles(q, i)
	}
	for i := range rows {
		rows[i].against(q, i, rows, g.find(leastRequest), g.find(bound))
	}
	return rows, nil
}

// newRow returns the figures of one measurement; waits are ascending and in mean
// service times.
func newRow(m Measurement, waits []float64) Row {
	added, lateness := known(m.Added), load.Summarize(known(m.Lateness))
	u := m.Cost.usage()
	return Row{
		Policy: m.Policy, Title: m.Title, Service: Number(m.Service.Seconds()), Group: m.Group,
		Requests: len(m.Waits), Errors: m.Errors, FirstError: m.FirstError, WaitMean: mean(waits),
		OfLeastRequest: unknown, OfLeastRequestCI: ciOf(noInterval), OfBound: unknown, OfBoundCI: ciOf(noInterval),
		AddedP50: Number(load.Quantile(added, p50)), AddedP99: Number(load.Quantile(added, p99)), AddedP50Over: unknown,
		LatenessP50: Number(lateness.P50), LatenessP99: Number(lateness.P99), LatenessMax: Number(lateness.Max),
		EnvoyCPU: u.envoyCPU, EnvoyCPUOver: unknown, EnvoyCPUMax: u.envoyCPUMax, EnvoyCPUMaxOver: unknown,
		ControlCPU: u.controlCPU, ControlRSS: u.controlRSS, Pushes: u.pushes, Suppressed: u.suppressed,
		waits: waits,
	}
}

// quantiles fills in those of the waits; the row is series i of its group.
func (r *Row) quantiles(q *stats.Quantiles, i int) {
	r.WaitP50, r.WaitP50CI = Number(q.Value(i, p50)), ciOf(q.Interval(i, p50))
	r.WaitP90, r.WaitP90CI = Number(q.Value(i, p90)), ciOf(q.Interval(i, p90))
	r.WaitP99, r.WaitP99CI = Number(q.Value(i, p99)), ciOf(q.Interval(i, p99))
}

// against holds row i against the references of its group, -1 where it has none.
func (r *Row) against(q *stats.Quantiles, i int, rows []Row, least, queue int) {
	if queue >= 0 {
		r.OfBound, r.OfBoundCI = r.WaitP99/rows[queue].WaitP99, ciOf(q.Ratio(i, queue, p99))
	}
	if least < 0 {
		return
	}
	reference := rows[least]
	r.OfLeastRequest, r.OfLeastRequestCI = r.WaitP99/reference.WaitP99, ciOf(q.Ratio(i, least, p99))
	r.AddedP50Over = r.AddedP50 - reference.AddedP50
	r.EnvoyCPUOver, r.EnvoyCPUMaxOver = r.EnvoyCPU-reference.EnvoyCPU, r.EnvoyCPUMax-reference.EnvoyCPU
}

// unknown is what was not measured.
var unknown = Number(math.NaN())

// A usage is a cost per second, in cores or a number, except for the memory, in bytes.
// What there was not is unknown.
type usage struct {
	envoyCPU    Number // mean over the Envoys
	envoyCPUMax Number // of the busiest

	controlCPU, controlRSS, pushes, suppressed Number
}

func (c Cost) usage() usage {
	u := usage{unknown, unknown, unknown, unknown, unknown, unknown}
	if c.Seconds <= 0 {
		return u
	}
	if len(c.Envoys) > 0 {
		u.envoyCPU = mean(c.Envoys) / Number(c.Seconds)
		u.envoyCPUMax = Number(slices.Max(c.Envoys) / c.Seconds)
	}
	if c.Control {
		u.controlCPU = Number(c.ControlCPU / c.Seconds)
		u.controlRSS = Number(c.ControlRSS)
		u.pushes = Number(c.Pushes / c.Seconds)
		u.suppressed = Number(c.Suppressed / c.Seconds)
	}
	return u
}

// known returns the values that are not NaN, ascending.
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
