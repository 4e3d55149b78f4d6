package simulate

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"steelyard/cmd/internal/table"
	"steelyard/controlplane/config"
	"steelyard/sim"
	"steelyard/sim/trace"
)

// A run is one scenario with its results under some policies.
type run struct {
	scenario sim.Scenario
	policies []sim.Policy
	results  []sim.Result // of the same order
}

// imperceptible is the longest wait, in mean service times (of engines: in seconds), that
// users do not notice. A ratio takes shorter ones as this.
const imperceptible = 0.05

// ratio is how a p99 compares with another one.
func ratio(p99, other float64) float64 {
	return max(p99, imperceptible) / max(other, imperceptible)
}

// hasEngines reports whether the pods are engines: what counts is then the time to the first
// token, in seconds, and otherwise the wait, in mean service times.
func hasEngines(s sim.Scenario) bool { return s.Prompts != nil }

// hasContents reports whether requests share parts of their prompts, which engines may have in a prefix cache.
func hasContents(s sim.Scenario) bool { return hasEngines(s) && len(s.Prompts.Trace.Contents) > 0 }

// tail is what policies are compared by.
func (r run) tail(i int) sim.Quantiles {
	if hasEngines(r.scenario) {
		return r.results[i].FirstToken
	}
	return r.results[i].Wait
}

// reference is the p99 that others are compared with; false where none was run or
// nothing was placed.
func (r run) reference() (p99 float64, ok bool) {
	for i, p := range r.policies {
		if p.Steelyard == nil && p.Balancer == sim.LeastRequest && r.results[i].Requests > 0 {
			return r.tail(i).P99, true
		}
	}
	return 0, false
}

// A column of the table; best is true if the least of its values is marked.
type column struct {
	title string
	best  bool
	value func(r run, i int) string
}

// columns are those for pods with slots or for engines.
func columns(s sim.Scenario) []column {
	requests := column{"requests", false, func(r run, i int) string { return fmt.Sprint(r.results[i].Requests) }}
	ratio := column{"ratio", false, ratioText}
	pushes := column{"pushes/s", false, pushesText}
	dropped := column{"dropped", false, func(r run, i int) string { return fmt.Sprint(r.results[i].Dropped) }}
	if hasEngines(s) {
		columns := []column{
			requests,
			{"ttft p50", true, figure("%.2f", func(r sim.Result) float64 { return r.FirstToken.P50 })},
			{"p90", true, figure("%.2f", func(r sim.Result) float64 { return r.FirstToken.P90 })},
			{"p99", true, figure("%.2f", func(r sim.Result) float64 { return r.FirstToken.P99 })},
			{"mean", true, figure("%.3f", func(r sim.Result) float64 { return r.FirstToken.Mean })},
			ratio,
			{"tpot p99", true, figure("%.3f", func(r sim.Result) float64 { return r.PerToken.P99 })},
			{"e2e p50", true, figure("%.1f", func(r sim.Result) float64 { return r.EndToEnd.P50 })},
			{"p99", true, figure("%.1f", func(r sim.Result) float64 { return r.EndToEnd.P99 })},
		}
		if hasContents(s) {
			columns = append(columns, column{"cached", false,
				figure("%.3f", func(r sim.Result) float64 { return r.Cached })})
		}
		return append(columns, pushes, dropped)
	}
	return []column{
		requests,
		{"p50", true, figure("%.2f", func(r sim.Result) float64 { return r.Wait.P50 })},
		{"p90", true, figure("%.2f", func(r sim.Result) float64 { return r.Wait.P90 })},
		{"p99", true, figure("%.2f", func(r sim.Result) float64 { return r.Wait.P99 })},
		ratio,
		{"hunting", false, figure("%.2f", func(r sim.Result) float64 { return r.Hunting })},
		pushes, dropped,
	}
}

// figure formats a number of a result; a dash if no request was placed.
func figure(format string, pick func(sim.Result) float64) func(run, int) string {
	return func(r run, i int) string {
		if r.results[i].Requests == 0 {
			return nothing
		}
		return fmt.Sprintf(format, pick(r.results[i]))
	}
}

// nothing stands where there is no value: unknown is not zero.
const nothing = "-"

func ratioText(r run, i int) string {
	reference, ok := r.reference()
	if !ok || r.results[i].Requests == 0 {
		return nothing
	}
	return fmt.Sprintf("%.2f", ratio(r.tail(i).P99, reference))
}

func pushesText(r run, i int) string {
	if r.policies[i].Steelyard == nil {
		return nothing
	}
	return fmt.Sprintf("%.1f", float64(r.results[i].Pushes)/r.scenario.Duration.Seconds())
}

// table is the report for people.
func (r run) table() string {
	columns := columns(r.scenario)
	head, marks := []string{"policy"}, make([][]string, len(columns))
	for k, c := range columns {
		head, marks[k] = append(head, ">"+c.title+c.room()), r.best(c)
	}
	t := table.New(head...)
	for i, p := range r.policies {
		cells := []string{p.Name}
		for k, c := range columns {
			cells = append(cells, c.value(r, i)+marks[k][i])
		}
		t.Add(cells...)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n%s of traffic, of which the first %s does not count; seed %d\n%s\n", r.scenario.Name,
		summary(r.scenario),
		config.DurationText(r.scenario.Duration), config.DurationText(r.scenario.WarmUp), r.scenario.Seed,
		aboutTrace(r.scenario))
	t.Write(&b, 0)
	b.WriteString(r.legend())
	return b.String()
}

// room is where a value that is not the best has no mark.
func (c *column) room() string {
	if c.best {
		return " "
	}
	return ""
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
		marks[i] = c.room()
		if c.best && least < most && v == least {
			marks[i] = "*"
		}
	}
	return marks
}

func (r run) legend() string {
	var b strings.Builder
	b.WriteString("\n")
	if hasEngines(r.scenario) {
		b.WriteString("in seconds; ttft: to the first token, tpot: from one token to the next, on average, e2e: to " +
			"the last token")
	} else {
		b.WriteString("p50, p90, p99: wait in mean service times")
	}
	if hasContents(r.scenario) {
		b.WriteString(",\ncached: share of the prompts' tokens that engines had in their caches")
	}
	var bounds []string
	for _, p := range r.policies {
		if isBound(p) {
			bounds = append(bounds, p.Name)
		}
	}
	if len(r.policies) > 1 {
		b.WriteString("; * is the best of its column")
	}
	switch {
	case len(bounds) == 1:
		fmt.Fprintf(&b, ", except %s:\nit sees every pod for every request, and is the bound", bounds[0])
	case len(bounds) > 1:
		fmt.Fprintf(&b, ",\nexcept %s: they see every engine for every request, and are the bounds",
			strings.Join(bounds, ", "))
	}
	if _, ok := r.reference(); ok {
		what := "p99 to the p99 of %s; waits under %g count as %g"
		if hasEngines(r.scenario) {
			what = "ttft p99 to the p99 of %s; less than %g s counts as %g s"
		}
		fmt.Fprintf(&b, "\nratio: of the "+what, sim.LeastRequest, imperceptible, imperceptible)
	}
	b.WriteString("\n")
	if !hasEngines(r.scenario) {
		b.WriteString("hunting: variance over mean of the requests that a pod gets in a mean service time;\n" +
			"1 is chance, above 1 herds hit the same pod\n")
	}
	return b.String()
}

// aboutTrace describes where the requests to engines come from, and how they were used.
func aboutTrace(s sim.Scenario) string {
	if !hasEngines(s) {
		return ""
	}
	t := s.Prompts.Trace
	perSecond := s.ArrivalRate()
	once := time.Duration(float64(len(t.Requests)) / perSecond * float64(time.Second))
	var b strings.Builder
	fmt.Fprintf(&b, "%.1f requests/s: the %d of the trace, which took %s, in %s\n",
		perSecond, len(t.Requests), config.DurationText(t.Span().Round(time.Second)),
		config.DurationText(once.Round(time.Second)))
	if s.Duration > once {
		b.WriteString("then the trace starts over\n")
	}
	if t == trace.Conversations() {
		b.WriteString("trace: synthetic, modelled on published figures of a chat service\n")
	}
	if t == trace.Azure() {
		fmt.Fprintf(&b, "trace: %s\n", trace.AzureSource)
	}
	if t.LeftOut > 0 {
		fmt.Fprintf(&b, "%d lines of the trace without a prompt or without an answer are left out\n", t.LeftOut)
	}
	switch step := t.Rounded(); {
	case step > 0 && s.Prompts.Spread:
		fmt.Fprintf(&b, "the times of the trace are rounded to %s: requests are spread over that\n",
			config.DurationText(step))
	case step > 0:
		fmt.Fprintf(&b, "the times of the trace are rounded to %s, so requests may arrive in bunches that were not "+
			"real: --spread spreads them\n", config.DurationText(step))
	}
	return b.String()
}

// A header describes a run.
type header struct {
	Scenario        string  `json:"scenario"`
	Summary         string  `json:"summary"`
	Seed            uint64  `json:"seed"`
	DurationSeconds float64 `json:"duration_seconds"`
	WarmUpSeconds   float64 `json:"warm_up_seconds"`
	ServiceSeconds  float64 `json:"service_seconds,omitempty"` // the mean, which waits are in
	*TraceHeader
}

// A TraceHeader describes the requests to engines.
type TraceHeader struct {
	Trace          string  `json:"trace"`
	Source         string  `json:"source,omitempty"` // and licence, of the built-in trace
	Rate           float64 `json:"requests_per_second"`
	RoundedSeconds float64 `json:"times_rounded_to_seconds,omitempty"`
	Spread         bool    `json:"spread,omitempty"`
}

// A row is one policy for machines. A time is null where no request was placed.
type row struct {
	Policy   string `json:"policy"`
	Requests int    `json:"requests"`
	*Waits
	*Tokens
}

// Waits has the waits at pods with slots, in mean service times.
type Waits struct {
	P50 *float64 `json:"wait_p50"`
	P90 *float64 `json:"wait_p90"`
	P99 *float64 `json:"wait_p99"`
}

// Tokens are times of engines, in seconds.
type Tokens struct {
	FirstP50    *float64 `json:"ttft_p50"`
	FirstP90    *float64 `json:"ttft_p90"`
	FirstP99    *float64 `json:"ttft_p99"`
	FirstMean   *float64 `json:"ttft_mean"`
	PerTokenP99 *float64 `json:"tpot_p99"`
	EndToEndP50 *float64 `json:"e2e_p50"`
	EndToEndP99 *float64 `json:"e2e_p99"`
	CachedShare *float64 `json:"cached_share,omitempty"` // of the prompts' tokens; only where requests share parts
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
		DurationSeconds: s.Duration.Seconds(), WarmUpSeconds: s.WarmUp.Seconds(),
		ServiceSeconds: s.Service.Mean.Seconds(),
	}}
	if hasEngines(s) {
		t := s.Prompts.Trace
		d.Header.TraceHeader = &TraceHeader{
			Trace: t.Name, Rate: s.ArrivalRate(), RoundedSeconds: t.Rounded().Seconds(), Spread: s.Prompts.Spread,
		}
		if t == trace.Azure() {
			d.Header.Source = trace.AzureSource
		}
	}
	for i, p := range r.policies {
		row := row{Policy: p.Name, Requests: r.results[i].Requests}
		if hasEngines(s) {
			row.Tokens = tokens(&r.results[i])
			if hasContents(s) && r.results[i].Requests > 0 {
				row.CachedShare = &r.results[i].Cached
			}
		} else {
			row.Waits = waits(&r.results[i])
		}
		d.Rows = append(d.Rows, row)
	}
	return d
}

func waits(r *sim.Result) *Waits {
	if r.Requests == 0 {
		return &Waits{}
	}
	return &Waits{P50: &r.Wait.P50, P90: &r.Wait.P90, P99: &r.Wait.P99}
}

func tokens(r *sim.Result) *Tokens {
	if r.Requests == 0 {
		return &Tokens{}
	}
	f, e := &r.FirstToken, &r.EndToEnd
	return &Tokens{
		FirstP50: &f.P50, FirstP90: &f.P90, FirstP99: &f.P99, FirstMean: &f.Mean,
		PerTokenP99: &r.PerToken.P99, EndToEndP50: &e.P50, EndToEndP99: &e.P99,
	}
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
