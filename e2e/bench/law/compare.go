package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"text/tabwriter"
)

// A comparison is a fleet by a source: the ratios of one law to the other, of the means over the seeds that both have.
type comparison struct {
	set, fleet, source string
	seeds              int
	ratios             [columns]float64 // NaN where there is nothing to compare
}

// compare pairs the rows of two laws.
func compare(measured, base []row) []comparison {
	type key struct {
		set, fleet, source string
		seed               uint64
	}
	by := make(map[key]*row, len(base))
	for i := range base {
		r := &base[i]
		by[key{r.set, r.fleet, r.source, r.seed}] = r
	}
	var all []comparison
	var sums [][2][columns]float64
	for i := range measured {
		m := &measured[i]
		b := by[key{m.set, m.fleet, m.source, m.seed}]
		if b == nil {
			continue
		}
		at := slices.IndexFunc(all, func(c comparison) bool {
			return c.set == m.set && c.fleet == m.fleet && c.source == m.source
		})
		if at < 0 {
			at = len(all)
			all = append(all, comparison{set: m.set, fleet: m.fleet, source: m.source})
			sums = append(sums, [2][columns]float64{})
		}
		all[at].seeds++
		for c := range columns {
			sums[at][0][c] += m.figures[c]
			sums[at][1][c] += b.figures[c]
		}
	}
	for i := range all {
		for c := range columns {
			all[i].ratios[c] = ratio(sums[i][0][c], sums[i][1][c])
		}
	}
	return all
}

// A summary is the geometric mean of the ratios of the fleets of a set by a source.
type summary struct {
	set, source string
	fleets      int
	ratios      [columns]float64
}

func summarize(all []comparison) []summary {
	var out []summary
	for _, c := range all {
		if !slices.ContainsFunc(out, func(s summary) bool { return s.set == c.set && s.source == c.source }) {
			out = append(out, summarizeSet(c.set, c.source, all))
		}
	}
	return out
}

func summarizeSet(set, source string, all []comparison) summary {
	s := summary{set: set, source: source}
	var logs, counts [columns]float64
	for _, c := range all {
		if c.set != set || c.source != source {
			continue
		}
		s.fleets++
		for i, r := range c.ratios {
			if !math.IsNaN(r) {
				logs[i] += math.Log(r)
				counts[i]++
			}
		}
	}
	for i := range s.ratios {
		s.ratios[i] = math.Exp(logs[i] / counts[i]) // 0/0, NaN, where nothing could be compared
	}
	return s
}

// print writes the sets, and the fleets in which the p99 or the mean of the wait is different.
func printComparison(out io.Writer, all []comparison) error {
	const different = 0.02 // of the mean: beyond the chance of three seeds
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	line := func(name string, n int, r *[columns]float64) {
		fmt.Fprintf(t, "%s\t%d\t", name, n)
		for _, v := range r {
			fmt.Fprintf(t, "%.3f\t", v)
		}
		fmt.Fprintln(t)
	}
	heading := func(first, second string) {
		fmt.Fprintf(t, "%s\t%s\t", first, second)
		for _, n := range names {
			fmt.Fprintf(t, "%s\t", n)
		}
		fmt.Fprintln(t)
	}
	heading("set, source", "fleets")
	for _, s := range summarize(all) {
		line(s.set+", "+s.source, s.fleets, &s.ratios)
	}
	fmt.Fprintln(t)
	heading("fleet, source", "seeds")
	for _, c := range all {
		if math.Abs(c.ratios[waitMean]-1) > different || math.Abs(c.ratios[waitP99]-1) > 2.5*different {
			line(c.set+": "+c.fleet+", "+c.source, c.seeds, &c.ratios)
		}
	}
	return t.Flush()
}
