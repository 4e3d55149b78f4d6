package report

import (
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"
)

// Write prints the tables of all sections and the list of targets.
func (d Document) Write(w io.Writer) error {
	out := &errWriter{w: w}
	banner(out, d.Valid, d.Reasons)
	for _, s := range d.Sections {
		d.table(out, s)
	}
	d.list(out)
	return out.err
}

// banner stands above figures that are worth nothing.
func banner(w io.Writer, valid bool, reasons []string) {
	if valid {
		return
	}
	fmt.Fprintf(w, "\nNOT A RESULT: the machine was too busy to send the requests when they were due.\n")
	for _, reason := range reasons {
		fmt.Fprintf(w, "  %s\n", reason)
	}
}

// table prints the rows of one service time.
func (d Document) table(w io.Writer, s Section) {
	c := d.Conditions
	fmt.Fprintf(w, "\nService %v: %d Envoys, %d servers of %d slots, load %g, %d requests a row", s.Service, c.Envoys, c.Servers, c.Slots, c.Load, s.Rows[0].Requests)
	if busy, ok := d.MachineBusy[s.Service.String()]; ok {
		fmt.Fprintf(w, ", machine %.0f %% busy", 100*float64(busy))
	}
	fmt.Fprint(w, "\nWaits in mean services with 95 % intervals; CPU in cores; adds and late in ms\n\n")
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(t, "policy\tp50\tp90\tp99\t95 %\tadds p50\tp99\tEnvoy CPU\tmax\tsteelyard CPU\tMiB\tpushes/s\terrors\tlate p50\tp99\tmax\t")
	if len(d.Runs) > 1 {
		fmt.Fprint(t, "p99 of runs\t")
	}
	fmt.Fprintln(t)
	for _, r := range s.Rows {
		fmt.Fprintf(t, "%s\t%.2f\t%.2f\t%.2f\t%.2f-%.2f\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s\t",
			r.Title, float64(r.WaitP50), float64(r.WaitP90), float64(r.WaitP99), float64(r.WaitP99CI[0]), float64(r.WaitP99CI[1]),
			1e3*r.AddedP50, 1e3*r.AddedP99, r.EnvoyCPU, r.EnvoyCPUMax, r.ControlCPU, r.ControlRSS/(1<<20), r.Pushes, r.Errors,
			1e3*r.LatenessP50, 1e3*r.LatenessP99, 1e3*r.LatenessMax)
		if len(d.Runs) > 1 {
			least, most := d.spread(r.Policy, r.Service)
			fmt.Fprintf(t, "%.2f-%.2f\t", float64(least), float64(most))
		}
		fmt.Fprintln(t)
	}
	t.Flush()
}

// list prints the targets.
func (d Document) list(w io.Writer) {
	if len(d.Targets) == 0 {
		return
	}
	fmt.Fprint(w, "\nTargets\n")
	for _, target := range d.Targets {
		fmt.Fprintf(w, "  %s\n", target)
		if held, measured := d.Held(target.Text); measured > 1 {
			fmt.Fprintf(w, "            held in %d of %d runs\n", held, measured)
		}
	}
}

// String is the target in one line.
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

// side says on which side of its limit a figure has to be.
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
