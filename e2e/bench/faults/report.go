package main

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"steelyard/e2e/bench/placement/fleet"
	"steelyard/e2e/bench/placement/report"
	"steelyard/e2e/rig/load"
)

const (
	// A request is a try, not traffic, unless more than a third of the fair share came in the window that ends with it.
	window = time.Second
	// A server has been left if no traffic went there in the last time of the fault.
	settled = 5 * time.Second
)

// A cell is what one fault did to one row.
type cell struct {
	Until    report.Number `json:"until_seconds"` // until no traffic goes there, only tries; null: until the end
	Lost     int           `json:"lost"`          // requests
	Requests int           `json:"requests"`      // that were sent after the fault began
	Share    float64       `json:"share"`         // of the fair share; 1 is fair
	Latency  float64       `json:"latency_p99"`   // seconds, of the answered requests after the fault began
}

// judge evaluates a run of which the fault began at that time.
func (o options) judge(r load.Result, seen []time.Time, began time.Time) cell {
	c := cell{Until: report.Number(o.until(seen, began))}
	end := began.Add(o.length)
	from, _ := slices.BinarySearchFunc(seen, began, time.Time.Compare)
	to, _ := slices.BinarySearchFunc(seen, end, time.Time.Compare)
	c.Share = float64(to-from) / (o.fair() * o.length.Seconds())
	var latencies []float64
	for _, s := range r.Samples {
		if r.Start.Add(s.At).Before(began) {
			continue
		}
		c.Requests++
		if s.Failed() {
			c.Lost++
		} else {
			latencies = append(latencies, s.Latency.Seconds())
		}
	}
	c.Latency = load.Summarize(latencies).P99
	return c
}

// fair returns how many requests a server gets in a second, of a healthy pool.
func (o options) fair() float64 { return o.size(nil).Rate() / float64(o.servers) }

// until returns the seconds from the fault to the last request that was traffic; NaN if there was some at the end, too.
func (o options) until(seen []time.Time, began time.Time) float64 {
	from, _ := slices.BinarySearchFunc(seen, began, time.Time.Compare)
	to, _ := slices.BinarySearchFunc(seen, began.Add(o.length), time.Time.Compare)
	seen = seen[from:to]
	until, oldest := 0.0, 0
	for i, at := range seen {
		for !seen[oldest].After(at.Add(-window)) {
			oldest++
		}
		if float64(i-oldest+1) > o.fair()/3*window.Seconds() {
			until = at.Sub(began).Seconds()
		}
	}
	if until > (o.length - settled).Seconds() {
		return math.NaN()
	}
	return until
}

// A document is the result of the bench.
type document struct {
	Started time.Time `json:"started"`
	Envoys  int       `json:"envoys"`
	Servers int       `json:"servers"`
	Slots   int       `json:"slots"`
	Service float64   `json:"service_seconds"`
	Load    float64   `json:"load"`
	Length  float64   `json:"length_seconds"`
	Faults  []result  `json:"faults"`
}

// A result has the cells of a fault, by row.
type result struct {
	Fault  string `json:"fault"`
	Title  string `json:"title"`
	Serves bool   `json:"serves"` // the fault is one of the metrics page
	Rows   []row  `json:"rows"`
}

type row struct {
	Policy string `json:"policy"`
	Title  string `json:"title"`
	Runs   []cell `json:"runs"`
}

// add adds a run of a fault.
func (d *document) add(f fault, rows []fleet.Policy, cells []cell) {
	if len(d.Faults) == 0 || d.Faults[len(d.Faults)-1].Fault != f.name {
		r := result{Fault: f.name, Title: f.title, Serves: f.serves}
		for _, p := range rows {
			r.Rows = append(r.Rows, row{Policy: p.Name, Title: p.Title})
		}
		d.Faults = append(d.Faults, r)
	}
	last := d.Faults[len(d.Faults)-1].Rows
	for i := range last {
		last[i].Runs = append(last[i].Runs, cells[i])
	}
}

// Write prints the table in Markdown: the median of the runs, and the least and the most where they differ.
func (d document) Write(w io.Writer) error {
	var b strings.Builder
	for i, f := range d.Faults {
		if i == 0 {
			b.WriteString("| one server of " + fmt.Sprint(d.Servers))
			for _, r := range f.Rows {
				b.WriteString(" | " + r.Title)
			}
			b.WriteString(" |\n|---" + strings.Repeat("|---", len(f.Rows)) + "|\n")
		}
		b.WriteString("| " + f.Title)
		for _, r := range f.Rows {
			b.WriteString(" | " + f.text(r.Runs))
		}
		b.WriteString(" |\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// text describes the runs of a cell.
func (f result) text(runs []cell) string {
	lost := spread(runs, "%.0f", func(c cell) float64 { return float64(c.Lost) }) + " lost"
	if f.Serves {
		return "keeps " + spread(runs, "%.2f", func(c cell) float64 { return c.Share }) + " of its share, " + lost
	}
	until := spread(runs, "%.1f s", func(c cell) float64 {
		if math.IsNaN(float64(c.Until)) {
			return math.Inf(1)
		}
		return float64(c.Until)
	})
	return strings.ReplaceAll(until, "+Inf s", "never") + ", " + lost
}

// spread formats the median, and in parentheses the least and the most.
func spread(runs []cell, format string, of func(cell) float64) string {
	values := make([]float64, len(runs))
	for i, c := range runs {
		values[i] = of(c)
	}
	slices.SortFunc(values, cmp.Compare)
	text := fmt.Sprintf(format, values[len(values)/2])
	low, high := fmt.Sprintf(format, values[0]), fmt.Sprintf(format, values[len(values)-1])
	if low != high {
		text += " (" + low + " to " + high + ")"
	}
	return text
}
