package demo

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
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
	b.WriteString(phaseTable.text(r.phases))
	r.writeRatio(&b)
	r.writeEndpoints(&b)
	for _, p := range r.phases {
		if late := p.result.Lateness.P99; late > lateLimit {
			fmt.Fprintf(&b, "\nThis machine was too busy: under %s one request in a hundred left %s late or "+
				"more.\nThe waits mean little then: use fewer endpoints or Envoys.\n", p.policy.title, span(late))
		}
	}
	return b.String()
}

var phaseTable = table[phase]{first: 14, other: 14}.
	with("", func(p phase) string { return p.policy.title }).
	with("requests", func(p phase) string { return fmt.Sprint(p.result.Requests) }).
	with("errors", func(p phase) string { return fmt.Sprint(p.result.Errors) }).
	with("  5xx", func(p phase) string { return fmt.Sprint(p.result.ServerErrors()) }).
	with("wait p50", func(p phase) string { return span(p.result.Wait.P50) }).
	with("wait p90", func(p phase) string { return span(p.result.Wait.P90) }).
	with("wait p99", func(p phase) string { return span(p.result.Wait.P99) }).
	with("wait mean", func(p phase) string { return span(p.result.Wait.Mean) })

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
	fmt.Fprintln(b)
	for i, e := range r.endpoints {
		fmt.Fprintf(b, "%-17s %-7s %4gx", e.address, e.engine, e.speed)
		for _, p := range r.phases {
			fmt.Fprintf(b, "  %7d %13s", p.served[i], fmt.Sprintf("%.1f (%.0f)", p.queues[i].mean(), p.queues[i].max))
		}
		fmt.Fprintln(b)
	}
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
