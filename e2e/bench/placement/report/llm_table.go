package report

import (
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"
)

// Write prints the table and the targets.
func (d LLMDocument) Write(w io.Writer) error {
	out := &errWriter{w: w}
	banner(out, d.Valid, d.Reasons)
	for _, again := range d.Again {
		fmt.Fprintf(out, "\n%s\n", again)
	}
	d.head(out)
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "policy\tTTFT mean\tp50\tp90\tp99\t95 %\tmean of LR\tp99 of LR\t95 %\tTPOT p99\te2e p50\tp99\t"+
		"spread\tcached %\tEnvoy CPU\tper request\tsteelyard CPU\tMiB\tpushes/s\trequests\terrors\t"+
		"late p50\tp99\tmax\t")
	for _, r := range d.Rows {
		r.line(t)
	}
	t.Flush()
	for _, r := range d.Rows {
		if r.Errors > 0 {
			fmt.Fprintf(out, "\n%s: %d requests failed, the first with: %s\n", r.Policy, r.Errors, r.FirstError)
		}
	}
	d.list(out)
	return out.err
}

// settings returns the settings that differ from the usual ones.
func (c LLMConditions) settings() string {
	var b strings.Builder
	if c.Workers > 1 {
		fmt.Fprintf(&b, ", %d workers in each Envoy", c.Workers)
	}
	if c.Mixed {
		b.WriteString(", every third engine half as fast")
	}
	if c.Chunked {
		b.WriteString(", bodies without content-length")
	}
	if c.Burst > 1 {
		fmt.Fprintf(&b, ", %d requests at the same moment", c.Burst)
	}
	return b.String()
}

// head says what the table is of.
func (d LLMDocument) head(w io.Writer) {
	c := d.Conditions
	fmt.Fprintf(w, "\n%d Envoys, %d engines, load %g (%.1f requests/s)%s, machine %.0f %% busy\ntrace: %s\n",
		c.Envoys, c.Engines, c.Load, c.Rate, c.settings(), 100*float64(d.MachineBusy), c.Trace)
	if c.Source != "" {
		fmt.Fprintf(w, "source: %s\n", c.Source)
	}
	fmt.Fprintf(w, "KV cache %d tokens, at most %d sequences\n", c.KVTokens, c.Sequences)
	fmt.Fprint(w, "TTFT, end to end in seconds with 95 % intervals; time per output token (TPOT) and late in ms; "+
		"of LR: by that of LEAST_REQUEST;\n"+
		"spread: how far an engine's mean number of requests running is from that of all, at most; "+
		"CPU in % of a core, Envoys' per request in µs\n")
	if n := d.Rows[0].Requests / 100; n < fewInTail {
		fmt.Fprintf(w, "Only %d requests of a row are beyond its p99: a target held or missed may be chance\n", n)
	}
	fmt.Fprintln(w)
}

// line prints a row of the table.
func (r LLMRow) line(w io.Writer) {
	of, ok := r.Of[leastRequest]
	if !ok {
		of = LLMRatios{TTFTMean: unknown, TTFTP99: unknown, TTFTP99CI: ciOf(noInterval)}
	}
	fmt.Fprintf(w, "%s\t%.3f\t%.3f\t%.3f\t%.3f\t%s\t%s\t%s\t%s\t%.1f\t%.2f\t%.1f\t",
		r.Policy, float64(r.TTFTMean), float64(r.TTFTP50), float64(r.TTFTP90), float64(r.TTFTP99), r.TTFTP99CI,
		of.TTFTMean, of.TTFTP99, of.TTFTP99CI, 1e3*float64(r.TPOTP99), float64(r.E2EP50), float64(r.E2EP99))
	fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%d\t%s\t%s\t%s\t\n",
		r.RunningSpread, 1e2*r.CachedShare, 1e2*r.EnvoyCPU, 1e6*r.EnvoyCPUPerRequest, 1e2*r.ControlCPU,
		r.ControlRSS/(1<<20), r.Pushes, r.Requests, r.Errors, 1e3*r.LatenessP50, 1e3*r.LatenessP99, 1e3*r.LatenessMax)
}

// String returns the interval as in tables; a dash where there is none.
func (c CI) String() string {
	if math.IsNaN(float64(c[0])) || math.IsNaN(float64(c[1])) {
		return "-"
	}
	return fmt.Sprintf("%s-%s", c[0], c[1])
}

// list prints the targets.
func (d LLMDocument) list(w io.Writer) {
	fmt.Fprint(w, "\nTargets\n")
	held, measured := 0, 0
	for _, t := range d.Targets {
		fmt.Fprintf(w, "  %s\n", t)
		if t.Known() {
			measured++
		}
		if t.Holds {
			held++
		}
	}
	fmt.Fprintf(w, "\n%d of %d measured targets held\n", held, measured)
}
