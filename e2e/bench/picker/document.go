package main

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"steelyard/e2e/bench/placement/report"
	"steelyard/e2e/bench/placement/stats"
)

// conditions are those under which the figures hold.
type conditions struct {
	Started  time.Time `json:"started"`
	Requests int       `json:"requests"` // of each size and row
	Cores    int       `json:"cores"`
	Envoy    string    `json:"envoy"`
	Seed     uint64    `json:"seed"`
	Spread   float64   `json:"spread_limit"` // largest p99 without a choice, in its p50
}

// A document is what the bench found.
type document struct {
	Valid      bool            `json:"valid"`
	Reasons    []string        `json:"reasons,omitempty"` // why it is not valid
	Conditions conditions      `json:"conditions"`
	Rows       []row           `json:"rows"`
	Throughput []throughput    `json:"throughput"`
	Targets    []report.Target `json:"targets"`

	titles map[string]string
}

// A row is one way to choose, for bodies of one size. Times are in seconds.
type row struct {
	Policy string        `json:"policy"`
	Body   int           `json:"body_bytes"`
	P50    report.Number `json:"p50"`
	P99    report.Number `json:"p99"`
	// What is added to the row without a choice.
	AddedP50   report.Number `json:"added_p50"`
	AddedP50CI report.CI     `json:"added_p50_ci"`
	AddedP99   report.Number `json:"added_p99"`
	AddedP99CI report.CI     `json:"added_p99_ci"`

	EnvoyCPU    report.Number `json:"envoy_cpu_per_request"` // seconds
	MachineBusy report.Number `json:"machine_busy"`          // share of all cores
}

const (
	p50, p99 = 0.5, 0.99
	// resampled is how many bodies in a row the bootstrap keeps together: a tenth of a second of them and more.
	resampled = 16
)

// add makes rows and targets of a measurement.
func (d *document) add(m *measured, seed uint64) {
	q := stats.Bootstrap{Block: resampled, Resamples: 1000, Seed: seed}.Quantiles(m.seconds, p50, p99)
	base := slices.Index(m.names, weights)
	for i, name := range m.names {
		added := func(at float64) (report.Number, report.CI) {
			v := q.Difference(i, base, at)
			return report.Number(q.Value(i, at) - q.Value(base, at)), report.CI{report.Number(v.Low),
				report.Number(v.High)}
		}
		r := row{Policy: name, Body: m.size, P50: report.Number(q.Value(i, p50)), P99: report.Number(q.Value(i, p99)),
			EnvoyCPU: report.Number(m.cpu[i]), MachineBusy: report.Number(m.busy)}
		r.AddedP50, r.AddedP50CI = added(p50)
		r.AddedP99, r.AddedP99CI = added(p99)
		d.Rows = append(d.Rows, r)
		d.Targets = append(d.Targets, r.targets()...)
	}
}

// targets returns the targets of a row. At p99, three times what p50 adds is allowed.
func (r row) targets() []report.Target {
	atP99 := false
	limit := map[int]float64{200: 0.1e-3, 48 << 10: 0.2e-3, 200 << 10: 0.5e-3}[r.Body]
	switch r.Policy {
	case rowModule, rowModulePrefix:
		atP99 = true
	case rowPicker:
		limit = 1e-3
	case rowPickerPrefix:
		limit = map[int]float64{48 << 10: 3e-3}[r.Body]
	default:
		return nil
	}
	if limit == 0 {
		return nil
	}
	target := func(quantile string, v report.Number, ci report.CI, limit float64) report.Target {
		return report.Target{Text: fmt.Sprintf("%s: added at %s for %d bytes, seconds", r.Policy, quantile, r.Body),
			Measured: v, CI: ci, Limit: report.Number(limit), Holds: float64(v) <= limit}
	}
	all := []report.Target{target("p50", r.AddedP50, r.AddedP50CI, limit)}
	if atP99 {
		all = append(all, target("p99", r.AddedP99, r.AddedP99CI, 3*limit))
	}
	return all
}

// judge finds out whether the figures mean anything.
func (d *document) judge(spread float64) {
	for _, r := range d.Rows {
		if of := float64(r.P99 / r.P50); r.Policy == weights && of > spread {
			d.Reasons = append(d.Reasons, fmt.Sprintf("%d bytes: the p99 without a choice is %.1f times the p50, "+
				"limit %g", r.Body, of, spread))
		}
	}
	d.Valid = len(d.Reasons) == 0
}

// Write prints the tables.
func (d *document) Write(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "%s, %d cores, %d requests of each size; milliseconds\n\n", d.Conditions.Envoy, d.Conditions.Cores,
		d.Conditions.Requests)
	fmt.Fprint(t, "bytes\trow\tp50\tp99\tadded p50\t\tadded p99\t\tEnvoy's CPU\tmachine busy\t\n")
	const ms = 1e3
	between := func(ci report.CI) string { return fmt.Sprintf("(%.3f to %.3f)", ms*ci[0], ms*ci[1]) }
	for _, r := range d.Rows {
		fmt.Fprintf(t, "%d\t%s\t%.3f\t%.3f\t%.3f\t%s\t%.3f\t%s\t%.3f\t%.0f %%\t\n", r.Body, d.titles[r.Policy],
			ms*r.P50, ms*r.P99, ms*r.AddedP50, between(r.AddedP50CI), ms*r.AddedP99, between(r.AddedP99CI),
			ms*r.EnvoyCPU, 100*r.MachineBusy)
	}
	fmt.Fprint(t, "\nbytes\trow\trequests per second\tof that without a choice\t\t\n")
	for _, r := range d.Throughput {
		fmt.Fprintf(t, "%d\t%s\t%.0f\t%.3f\t(%.3f to %.3f)\t\n", r.Body, d.titles[r.Policy], r.PerSecond, r.Relative,
			r.RelativeCI[0], r.RelativeCI[1])
	}
	if err := t.Flush(); err != nil {
		return err
	}
	err := writeTargets(w, d.Targets)
	for _, reason := range d.Reasons {
		_, err = fmt.Fprintf(w, "not a result: %s\n", reason)
	}
	return err
}

// writeTargets prints which targets hold.
func writeTargets(w io.Writer, all []report.Target) error {
	fmt.Fprint(w, "\nTargets\n")
	held := 0
	for _, target := range all {
		mark := "MISSED"
		if target.Holds {
			mark, held = "ok", held+1
		}
		fmt.Fprintf(w, "  %-6s %s: %.6f, limit %.6f\n", mark, target.Text, target.Measured, target.Limit)
	}
	_, err := fmt.Fprintf(w, "\n%d of %d targets held\n", held, len(all))
	return err
}
