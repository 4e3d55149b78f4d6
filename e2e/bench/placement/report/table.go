package report

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
)

// Write prints the tables of all sections and the list of targets.
func (d Document) Write(w io.Writer) error {
	out := &errWriter{w: w}
	banner(out, d.Valid, d.Reasons)
	for _, again := range d.Again {
		fmt.Fprintf(out, "\n%s\n", again)
	}
	for _, s := range d.Sections {
		d.table(out, s)
	}
	d.list(out)
	return out.err
}

// banner is printed above figures that are not usable.
func banner(w io.Writer, valid bool, reasons []string) {
	if valid {
		return
	}
	fmt.Fprintf(w, "\nNOT A RESULT: the machine was too busy to send the requests when they were due.\n")
	for _, reason := range reasons {
		fmt.Fprintf(w, "  %s\n", reason)
	}
}

// fewInTail is how few requests beyond the p99 make its interval so wide that a
// target held or missed is chance.
const fewInTail = 30

// table prints the rows of one service time.
func (d Document) table(w io.Writer, s Section) {
	c := d.Conditions
	fmt.Fprintf(w, "\nService %v: %d Envoys, %d servers of %d slots, load %g, %d requests a row", s.Service, c.Envoys,
		c.Servers, c.Slots, c.Load, s.Rows[0].Requests)
	if busy, ok := d.MachineBusy[s.Service.String()]; ok {
		fmt.Fprintf(w, ", machine %.0f %% busy", 100*float64(busy))
	}
	fmt.Fprint(w, "\nWaits in mean services with 95 % intervals; of LR, of bound: p99 by that of LEAST_REQUEST and "+
		"of the bound; CPU in % of a core; adds and late in ms\n")
	if n := s.Rows[0].Requests / 100; n < fewInTail {
		fmt.Fprintf(w, "Only %d requests of a row make its p99: the intervals are wide, and a target that holds or "+
			"is missed may be chance\n", n)
	}
	if n := s.Groups(); n > 1 {
		fmt.Fprintf(w, "In %d groups, one after the other with the same requests: a row is held against the "+
			"references of its own group\n", n)
	}
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(t, "policy\tgroup\tp50\tp90\tp99\t95 %\tof LR\tof bound\tadds p50\tp99\tEnvoy CPU\tover "+
		"LR\tmax\tsteelyard CPU\tMiB\tpushes/s\terrors\tlate p50\tp99\tmax\t")
	if len(d.Runs) > 1 {
		fmt.Fprint(t, "p99 of runs\t")
	}
	fmt.Fprintln(t)
	for _, r := range slices.Concat(s.Rows, s.References) {
		r.line(t)
		if len(d.Runs) > 1 {
			least, most := d.spread(r)
			fmt.Fprintf(t, "%.2f-%.2f\t", float64(least), float64(most))
		}
		fmt.Fprintln(t)
	}
	t.Flush()
	for _, r := range slices.Concat(s.Rows, s.References) {
		if r.Errors > 0 {
			fmt.Fprintf(w, "%s: %d requests failed, the first with: %s\n", r.Title, r.Errors, r.FirstError)
		}
	}
}

// line prints a row of a table.
func (r Row) line(w io.Writer) {
	fmt.Fprintf(w, "%s\t%d\t%.2f\t%.2f\t%.2f\t%.2f-%.2f\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s\t",
		r.Title, r.Group, float64(r.WaitP50), float64(r.WaitP90), float64(r.WaitP99), float64(r.WaitP99CI[0]),
		float64(r.WaitP99CI[1]),
		r.OfLeastRequest, r.OfBound, 1e3*r.AddedP50, 1e3*r.AddedP99, 1e2*r.EnvoyCPU, 1e2*r.EnvoyCPUOver,
		1e2*r.EnvoyCPUMax,
		1e2*r.ControlCPU, r.ControlRSS/(1<<20), r.Pushes, r.Errors, 1e3*r.LatenessP50, 1e3*r.LatenessP99,
		1e3*r.LatenessMax)
}

// list prints the targets: over all runs, then in each.
func (d Document) list(w io.Writer) {
	if len(d.Targets) == 0 {
		return
	}
	fmt.Fprint(w, "\nTargets\n")
	for _, target := range d.Targets {
		fmt.Fprintf(w, "  %s\n", target)
		if all := d.outcomes(target.Text); len(all) > 1 {
			fmt.Fprintf(w, "            runs: %s\n", each(all))
		}
	}
	held, measured := d.Held()
	fmt.Fprintf(w, "\n%d of %d measured targets held in %s\n", held, measured,
		map[bool]string{true: "the run", false: fmt.Sprintf("each of %d runs", len(d.Runs))}[len(d.Runs) == 1])
}

// each returns what a target came to in each run, and in how many it held.
func each(all []Target) string {
	var b strings.Builder
	held := 0
	for _, t := range all {
		if t.Holds {
			held++
			fmt.Fprintf(&b, "%s, ", t.Measured)
		} else {
			fmt.Fprintf(&b, "%s MISSED, ", t.Measured)
		}
	}
	fmt.Fprintf(&b, "held in %d of %d", held, len(all))
	return b.String()
}

// String returns the target in one line.
func (t Target) String() string {
	var b strings.Builder
	switch {
	case !t.Known():
		return fmt.Sprintf("unknown   %s: %s %s, not measured", t.Text, t.side(), t.Limit)
	case t.Holds:
		b.WriteString("holds     ")
	default:
		b.WriteString("MISSED    ")
	}
	fmt.Fprintf(&b, "%s: %s", t.Text, t.Measured)
	if low, high := float64(t.CI[0]), float64(t.CI[1]); low == low && high == high {
		fmt.Fprintf(&b, " (%.2f-%.2f)", low, high)
	}
	fmt.Fprintf(&b, ", %s %s", t.side(), t.Limit)
	if t.Limit == 0 || t.Measured == t.Limit {
		return b.String()
	}
	off := float64(t.Measured/t.Limit) - 1
	fmt.Fprintf(&b, ": %.0f %% %s", 100*math.Abs(off), map[bool]string{true: "above", false: "below"}[off > 0])
	return b.String()
}

// side returns the side of its limit on which a figure has to be.
func (t Target) side() string {
	if t.AtLeast {
		return "at least"
	}
	return "at most"
}

// An errWriter remembers the first error, so that a table is printed in one go.
type errWriter struct {
	w   io.Writer
	err error
}

// Write implements io.Writer.
func (e *errWriter) Write(p []byte) (int, error) {
	if e.err != nil {
		return 0, e.err
	}
	var n int
	n, e.err = e.w.Write(p)
	return n, e.err
}
