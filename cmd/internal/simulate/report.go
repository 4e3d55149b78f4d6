package simulate

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"

	"steelyard/weighting/sim"
)

// A run is one scenario with what became of it under some policies.
type run struct {
	scenario sim.Scenario
	policies []sim.Policy
	results  []sim.Result // of the same order
}

// imperceptible is the wait, in mean service times, that nobody feels: ratios of
// less are not told apart.
const imperceptible = 0.05

// ratio is how a p99 compares with another one, in mean service times.
func ratio(p99, other float64) float64 {
	return max(p99, imperceptible) / max(other, imperceptible)
}

// reference is the p99 that others are compared with; false where none was run or
// nothing was placed.
func (r run) reference() (p99 float64, ok bool) {
	for i, p := range r.policies {
		if p.Steelyard == nil && p.Balancer == sim.LeastRequest && r.results[i].Requests > 0 {
			return r.results[i].Wait.P99, true
		}
	}
	return 0, false
}

// A column of the table; best says whether the least of its values is marked.
type column struct {
	title string
	width int
	best  bool
	value func(r run, i int) string
}

func columns() []column {
	figure := func(pick func(sim.Result) float64) func(run, int) string {
		return func(r run, i int) string {
			if r.results[i].Requests == 0 {
				return nothing
			}
			return fmt.Sprintf("%.2f", pick(r.results[i]))
		}
	}
	return []column{
		{"requests", 9, false, func(r run, i int) string { return fmt.Sprint(r.results[i].Requests) }},
		{"p50", 8, true, figure(func(r sim.Result) float64 { return r.Wait.P50 })},
		{"p90", 8, true, figure(func(r sim.Result) float64 { return r.Wait.P90 })},
		{"p99", 8, true, figure(func(r sim.Result) float64 { return r.Wait.P99 })},
		{"ratio", 7, false, ratioText},
		{"hunting", 8, false, figure(func(r sim.Result) float64 { return r.Hunting })},
		{"pushes/s", 8, false, pushesText},
		{"dropped", 8, false, func(r run, i int) string { return fmt.Sprint(r.results[i].Dropped) }},
	}
}

// nothing stands where there is no value: unknown is not zero.
const nothing = "-"

func ratioText(r run, i int) string {
	reference, ok := r.reference()
	if !ok || r.results[i].Requests == 0 {
		return nothing
	}
	return fmt.Sprintf("%.2f", ratio(r.results[i].Wait.P99, reference))
}

func pushesText(r run, i int) string {
	if r.policies[i].Steelyard == nil {
		return nothing
	}
	return fmt.Sprintf("%.1f", float64(r.results[i].Pushes)/r.scenario.Duration.Seconds())
}

// table is the report for people.
func (r run) table() string {
	columns := columns()
	widths := []int{len("policy")}
	title := []string{"policy"}
	lines := make([][]string, len(r.policies))
	for i, p := range r.policies {
		widths[0] = max(widths[0], len([]rune(p.Name)))
		lines[i] = []string{p.Name}
	}
	for _, c := range columns {
		widths = append(widths, c.width+1)
		title = append(title, c.title+" ")
		marks := r.best(c)
		for i := range lines {
			lines[i] = append(lines[i], c.value(r, i)+marks[i])
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n%s of traffic, of which the first %s does not count; seed %d\n\n", r.scenario.Name, summary(r.scenario),
		span(r.scenario.Duration), span(r.scenario.WarmUp), r.scenario.Seed)
	for _, cells := range append([][]string{title}, lines...) {
		b.WriteString(aligned(widths, cells))
	}
	b.WriteString(r.legend())
	return b.String()
}

// aligned is a line of cells: the first to the left, the others to the right.
func aligned(widths []int, cells []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-*s", widths[0], cells[0])
	for i, cell := range cells[1:] {
		fmt.Fprintf(&b, " %*s", widths[i+1], cell)
	}
	return strings.TrimRight(b.String(), " ") + "\n"
}

// best marks the least values of a column as they are shown; none where all are
// alike, and never the bound.
func (r run) best(c column) []string {
	least, most := math.Inf(1), math.Inf(-1)
	values := make([]float64, len(r.policies))
	for i, p := range r.policies {
		var err error
		if values[i], err = strconv.ParseFloat(c.value(r, i), 64); err != nil || isBound(p) {
			values[i] = math.NaN()
			continue
		}
		least, most = min(least, values[i]), max(most, values[i])
	}
	marks := make([]string, len(r.policies))
	for i, v := range values {
		marks[i] = " "
		if c.best && least < most && v == least {
			marks[i] = "*"
		}
	}
	return marks
}

func (r run) legend() string {
	var b strings.Builder
	b.WriteString("\np50, p90, p99: wait in mean service times")
	bound := false
	for _, p := range r.policies {
		bound = bound || isBound(p)
	}
	if len(r.policies) > 1 {
		b.WriteString("; * is the best of its column")
	}
	if bound {
		fmt.Fprintf(&b, ", %s aside:\nit sees every pod for every request, and is the bound", sim.ShortestQueue)
	}
	if _, ok := r.reference(); ok {
		fmt.Fprintf(&b, "\nratio: of the p99 to that of %s, where waits under %g count as %g", sim.LeastRequest, imperceptible, imperceptible)
	}
	b.WriteString("\nhunting: variance of the requests that a pod gets in a mean service time, over their mean; 1 is chance,\nmore is herds that all go to the same pod\n")
	return b.String()
}

// A header says what rows are of.
type header struct {
	Scenario        string  `json:"scenario"`
	Summary         string  `json:"summary"`
	Seed            uint64  `json:"seed"`
	DurationSeconds float64 `json:"duration_seconds"`
	WarmUpSeconds   float64 `json:"warm_up_seconds"`
	ServiceSeconds  float64 `json:"service_seconds"` // the mean, which waits are in
}

// A row is one policy for machines. Waits are in mean service times, and null
// where no request was placed.
type row struct {
	Policy   string   `json:"policy"`
	Requests int      `json:"requests"`
	P50      *float64 `json:"wait_p50"`
	P90      *float64 `json:"wait_p90"`
	P99      *float64 `json:"wait_p99"`
}

// A document is a run for machines.
type document struct {
	Header header `json:"header"`
	Rows   []row  `json:"rows"`
}

func (r run) document() document {
	s := r.scenario
	d := document{Header: header{
		Scenario: s.Name, Summary: summary(s), Seed: s.Seed,
		DurationSeconds: s.Duration.Seconds(), WarmUpSeconds: s.WarmUp.Seconds(), ServiceSeconds: s.Service.Mean.Seconds(),
	}}
	for i, p := range r.policies {
		result := r.results[i]
		row := row{Policy: p.Name, Requests: result.Requests}
		if result.Requests > 0 {
			row.P50, row.P90, row.P99 = &result.Wait.P50, &result.Wait.P90, &result.Wait.P99
		}
		d.Rows = append(d.Rows, row)
	}
	return d
}

// writeJSON writes a value to a file, or to out where the path is "-".
func writeJSON(path string, out io.Writer, value any) error {
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return fmt.Errorf("writing the rows: %w", err)
	}
	text = append(text, '\n')
	if path == "-" {
		_, err = out.Write(text)
	} else {
		err = os.WriteFile(path, text, 0o644)
	}
	if err != nil {
		return fmt.Errorf("writing the rows: %w", err)
	}
	return nil
}
