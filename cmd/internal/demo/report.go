package demo

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"steelyard/e2e/rig/load"
)

// A report is the outcome of a demo.
type report struct {
	phases    []phase
	endpoints []endpoint
}

// lateLimit is the lateness of the generator, in seconds, above which its
// machine had too much to do for the figures to mean much.
const lateLimit = 0.05

// text is the report for people.
func (r report) text() string {
	var b strings.Builder
	r.writePhases(&b)
	r.writeRatio(&b)
	r.writeEndpoints(&b)
	for _, p := range r.phases {
		if late := p.result.Lateness.P99; late > lateLimit {
			fmt.Fprintf(&b, "\nThis machine was too busy: under %s one request in a hundred left %s late or "+
				"more.\nThe waits say little then; give it fewer endpoints or Envoys.\n", p.policy.title, span(late))
		}
	}
	return b.String()
}

// rows are the lines of the table of phases.
var rows = []struct {
	title string
	value func(load.Result) string
}{
	{"requests", func(r load.Result) string { return fmt.Sprint(r.Requests) }},
	{"errors", func(r load.Result) string { return fmt.Sprint(r.Errors) }},
	{"  of them 5xx", func(r load.Result) string { return fmt.Sprint(r.ServerErrors()) }},
	{"wait p50", func(r load.Result) string { return span(r.Wait.P50) }},
	{"wait p90", func(r load.Result) string { return span(r.Wait.P90) }},
	{"wait p99", func(r load.Result) string { return span(r.Wait.P99) }},
	{"wait mean", func(r load.Result) string { return span(r.Wait.Mean) }},
}

func (r report) writePhases(b *strings.Builder) {
	fmt.Fprintf(b, "%-14s", "")
	for _, p := range r.phases {
		fmt.Fprintf(b, " %14s", p.policy.title)
	}
	fmt.Fprintln(b)
	for _, row := range rows {
		fmt.Fprintf(b, "%-14s", row.title)
		for _, p := range r.phases {
			fmt.Fprintf(b, " %14s", row.value(p.result))
		}
		fmt.Fprintln(b)
	}
}

// writeRatio writes one line about the effect of the weights on the tail.
func (r report) writeRatio(b *strings.Builder) {
	if len(r.phases) < 2 {
		return
	}
	first, last := r.phases[0], r.phases[len(r.phases)-1]
	before, after := first.result.Wait.P99, last.result.Wait.P99
	if after == 0 {
		fmt.Fprintf(b, "\np99 of the wait: %s under %s, none under %s\n", span(before), first.policy.title,
			last.policy.title)
		return
	}
	fmt.Fprintf(b, "\np99 of the wait: %s under %s, %s under %s: %.2g times\n",
		span(before), first.policy.title, span(after), last.policy.title, before/after)
}

func (r report) writeEndpoints(b *strings.Builder) {
	fmt.Fprintf(b, "\n%-31s", "")
	for _, p := range r.phases {
		fmt.Fprintf(b, "  %21s", p.policy.title)
	}
	fmt.Fprintf(b, "\n%-17s %-7s %5s", "endpoint", "engine", "speed")
	for range r.phases {
		fmt.Fprintf(b, "  %7s %13s", "served", "queue (max)")
	}
	fmt.Fprintf(b, "  %14s\n", "weight (last)")
	for i, e := range r.endpoints {
		fmt.Fprintf(b, "%-17s %-7s %4gx", e.address, e.engine, e.speed)
		for _, p := range r.phases {
			fmt.Fprintf(b, "  %7d %13s", p.served[i], fmt.Sprintf("%.1f (%d)", p.queues[i].mean(), p.queues[i].max))
		}
		fmt.Fprintf(b, "  %14s\n", r.weight(e.address))
	}
}

// weight is the mean and the last weight of an endpoint in the last phase.
func (r report) weight(address string) string {
	w, ok := r.phases[len(r.phases)-1].weights[address]
	if !ok {
		return ""
	}
	return fmt.Sprintf("%.0f%% (%.0f%%)", 100*w.mean(), 100*w.last)
}

// writeJSON writes the report for machines.
func (r report) writeJSON(path string) error {
	type figures struct {
		Policy   string  `json:"policy"`
		Requests int     `json:"requests"`
		Errors   int     `json:"errors"`
		WaitP50  float64 `json:"wait_p50_seconds"`
		WaitP90  float64 `json:"wait_p90_seconds"`
		WaitP99  float64 `json:"wait_p99_seconds"`
	}
	var out struct {
		Phases []figures `json:"phases"`
	}
	for _, p := range r.phases {
		w := p.result.Wait
		out.Phases = append(out.Phases, figures{p.policy.name, p.result.Requests, p.result.Errors, w.P50, w.P90, w.P99})
	}
	text, err := json.MarshalIndent(out, "", "  ")
	if err != nil {
		return fmt.Errorf("writing the figures: %w", err)
	}
	if err := os.WriteFile(path, append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("writing the figures: %w", err)
	}
	return nil
}
