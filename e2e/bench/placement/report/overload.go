package report

import (
	"fmt"
	"io"
	"math"
	"slices"
	"text/tabwriter"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"steelyard/e2e/rig/load"
)

// An Outcome is what became of one request of an overload run. Times are in
// seconds; At counts from the beginning of the overload.
type Outcome struct {
	At       float64
	OK       bool    // served
	Wait     float64 // in the server's queue, of those served
	Service  float64 // executed, likewise
	Latency  float64
	Lateness float64
	Refused  bool // answered 503
	Dropped  bool // of the refused, with Envoy's header
}

// end returns when the answer was there.
func (o Outcome) end() float64 { return o.At + o.Latency }

// A DropSample is the drop fraction, the share of the requests that Steelyard makes the Envoys refuse, at one moment,
// and the number of requests in the servers' queues then.
type DropSample struct{ At, Drop, Queue float64 }

// An Overloaded is one row of an overload run.
type Overloaded struct {
	Policy, Title string
	Outcomes      []Outcome // of all phases
	DropSamples   []DropSample
	Capacity      float64 // seconds of work that the servers do in a second
	Seconds       float64 // that the overload lasts, from 0
	TargetWait    float64 // seconds; 0 without shedding
}

// An OverloadRow is such a row in figures. All are of the requests that arrive
// while the overload lasts, except for the last two. Times are in seconds.
type OverloadRow struct {
	Policy   string `json:"policy"`
	Title    string `json:"title"`
	Requests int    `json:"requests"`
	Accepted int    `json:"accepted"`
	Dropped  int    `json:"dropped"`
	Errors   int    `json:"errors"` // neither served nor dropped

	TargetWait Number `json:"target_wait"`
	WaitP50    Number `json:"wait_p50"` // of the accepted
	WaitP90    Number `json:"wait_p90"`
	WaitP99    Number `json:"wait_p99"`
	SettledP99 Number `json:"settled_wait_p99"` // of those after the first quarter
	Goodput    Number `json:"goodput"`          // executed work that was answered, as a share of the capacity
	DropShare  Number `json:"drop_share"`       // of the requests
	DropP50    Number `json:"drop_latency_p50"`
	DropP99    Number `json:"drop_latency_p99"`
	Headed     Number `json:"drops_with_header"` // share of the 503s that carry Envoy's header
	// how often the drop fraction went from rising to falling, by more than a tenth
	Turns int `json:"drop_turns"`

	DropsBefore int    `json:"drops_before"` // of requests that came before the overload
	Released    Number `json:"released"`     // seconds from its end until the last drop

	Lateness Number   `json:"lateness_p99"`
	Timeline []Second `json:"timeline"`
}

// A Second is one second of the timeline, by the arrival of the requests.
type Second struct {
	At           int    `json:"at"` // seconds from the beginning of the overload
	Dropped      Number `json:"dropped"`
	DropFraction Number `json:"told"` // the mean over the second
	WaitP50      Number `json:"wait_p50"`
	WaitMax      Number `json:"wait_max"`
	Queue        Number `json:"queue"` // requests that wait in all servers, mean
}

// Figures reduces the row.
func (o Overloaded) Figures() OverloadRow {
	r := OverloadRow{
		Policy: o.Policy, Title: o.Title, TargetWait: Number(o.TargetWait),
		Goodput: Number(o.goodput()), Timeline: o.timeline(), Turns: turns(o.DropSamples),
		Released: Number(o.released()),
	}
	if o.TargetWait == 0 {
		r.TargetWait = unknown
	}
	var waits, settled, drops, lateness []float64
	refused := 0
	for _, x := range o.Outcomes {
		lateness = append(lateness, x.Lateness)
		if x.At < 0 && x.Dropped {
			r.DropsBefore++
		}
		if x.At < 0 || x.At >= o.Seconds {
			continue
		}
		r.Requests++
		if x.Refused {
			refused++
		}
		switch {
		case x.OK:
			r.Accepted++
			waits = append(waits, x.Wait)
			if x.At >= o.Seconds/4 {
				settled = append(settled, x.Wait)
			}
		case x.Dropped:
			r.Dropped++
			drops = append(drops, x.Latency)
		default:
			r.Errors++
		}
	}
	r.WaitP50, r.WaitP90, r.WaitP99 = quantile(waits, p50), quantile(waits, p90), quantile(waits, p99)
	r.SettledP99 = quantile(settled, p99)
	r.DropP50, r.DropP99 = quantile(drops, p50), quantile(drops, p99)
	r.DropShare, r.Headed = ratio(r.Dropped, r.Requests), ratio(r.Dropped, refused)
	r.Lateness = quantile(lateness, p99)
	return r
}

// quantile returns NaN for no values.
func quantile(values []float64, q float64) Number { return Number(load.Quantile(known(values), q)) }

// ratio is unknown of nothing.
func ratio(part, whole int) Number {
	if whole == 0 {
		return unknown
	}
	return Number(float64(part) / float64(whole))
}

// goodput returns how much of what the servers could execute during the overload was
// executed for requests that got their answer.
func (o Overloaded) goodput() float64 {
	busy := 0.0
	for _, x := range o.Outcomes {
		if x.OK {
			busy += max(0, min(o.Seconds, x.end())-max(0, x.end()-x.Service))
		}
	}
	return busy / (o.Capacity * o.Seconds)
}

// released returns how long after the overload the last request was dropped; NaN where
// none was at all.
func (o Overloaded) released() float64 {
	last := math.NaN()
	for _, x := range o.Outcomes {
		if x.Dropped {
			last = max(0, x.At-o.Seconds) // in order of arrival
		}
	}
	return last
}

// turns counts how often a share went up and down again by more than a tenth.
func turns(samples []DropSample) int {
	const least = 0.1
	n, high, low, rising := 0, 0.0, 0.0, false
	for _, t := range samples {
		switch {
		case rising && t.Drop > high:
			high = t.Drop
		case rising && t.Drop < high-least:
			n, low, rising = n+1, t.Drop, false
		case !rising && t.Drop < low:
			low = t.Drop
		case !rising && t.Drop > low+least:
			high, rising = t.Drop, true
		}
	}
	return n
}

// timeline groups the requests and the samples of the drop fraction by second.
func (o Overloaded) timeline() []Second {
	type bin struct {
		requests, dropped int
		waits             []float64
		drops, queue      []float64
	}
	bins := make(map[int]*bin)
	at := func(t float64) *bin {
		k := int(math.Floor(t))
		if bins[k] == nil {
			bins[k] = new(bin)
		}
		return bins[k]
	}
	last := 0.0 // request; the drop fraction while the queues drain is not shown
	for _, x := range o.Outcomes {
		last = max(last, x.At)
		b := at(x.At)
		b.requests++
		if x.Dropped {
			b.dropped++
		}
		if x.OK {
			b.waits = append(b.waits, x.Wait)
		}
	}
	for _, t := range o.DropSamples {
		if t.At > last {
			break
		}
		b := at(t.At)
		b.drops, b.queue = append(b.drops, t.Drop), append(b.queue, t.Queue)
	}
	var out []Second
	for k, b := range bins {
		s := Second{
			At: k, Dropped: ratio(b.dropped, b.requests), DropFraction: mean(b.drops), Queue: mean(b.queue),
			WaitP50: quantile(b.waits, p50), WaitMax: quantile(b.waits, 1),
		}
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b Second) int { return a.At - b.At })
	return out
}

// An OverloadDocument is what an overload bench found.
type OverloadDocument struct {
	Valid      bool          `json:"valid"`
	Reasons    []string      `json:"reasons,omitempty"`
	Conditions Conditions    `json:"conditions"`
	Service    Number        `json:"service"` // mean, in seconds
	Overload   Number        `json:"overload"`
	Seconds    Number        `json:"seconds"`
	Rows       []OverloadRow `json:"rows"`
	Targets    []Target      `json:"targets"`
}

// NewOverloadDocument judges the rows.
func NewOverloadDocument(c Conditions, service, overload, seconds float64, rows []OverloadRow) OverloadDocument {
	d := OverloadDocument{Conditions: c, Service: Number(service), Overload: Number(overload), Seconds: Number(seconds),
		Rows: rows}
	for _, r := range rows {
		if share := float64(r.Lateness) / service; !(share <= c.Lateness) {
			d.Reasons = append(d.Reasons, fmt.Sprintf("%s: the load generator was %.1f ms late at p99, %.1f %% of "+
				"the mean service, limit %.1f %%",
				r.Policy, 1e3*float64(r.Lateness), 100*share, 100*c.Lateness))
		}
		if !math.IsNaN(float64(r.TargetWait)) {
			d.Targets = append(d.Targets, r.targets()...)
		}
	}
	d.Valid = len(d.Reasons) == 0
	return d
}

// fastDrop is how long a refusal may take at p99, in seconds: next to nothing for
// a client, and a lot for an Envoy on a busy machine.
const fastDrop = 0.05

// targets returns the targets of a row with shedding.
func (r OverloadRow) targets() []Target {
	of := func(text string, measured, limit Number, atLeast bool) Target {
		t := Target{Text: r.Policy + ": " + text, Limit: limit, AtLeast: atLeast, CI: ciOf(noInterval)}
		t.measure(measured, ciOf(noInterval))
		return t
	}
	return []Target{
		of("p99 of the wait of accepted requests, by the target wait", r.WaitP99/r.TargetWait, 2, false),
		of("goodput, as a share of the capacity", r.Goodput, 0.95, true),
		of("503s with Envoy's header, as a share of all 503s", r.Headed, 1, true),
		of("p99 of the latency of a drop, in seconds", r.DropP99, fastDrop, false),
		of("drops before the overload", Number(r.DropsBefore), 0, false),
	}
}

// Write prints the rows and the targets.
func (d OverloadDocument) Write(w io.Writer) error {
	out := &errWriter{w: w}
	banner(out, d.Valid, d.Reasons)
	c := d.Conditions
	fmt.Fprintf(out, "\nOverload %gx for %g s: %d Envoys, %d servers of %d slots, %g s service. Waits in s, drops in "+
		"ms\n\n",
		float64(d.Overload), float64(d.Seconds), c.Envoys, c.Servers, c.Slots, float64(d.Service))
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "row\trequests\taccepted\tdropped\terrors\ttarget wait\twait p50\tp90\tp99\tsettled "+
		"p99\tgoodput\tdrop p50\tp99\twith header\tturns\treleased after\tlate p99\t")
	for _, r := range d.Rows {
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s\t\n",
			r.Title, r.Requests, r.Accepted, r.Dropped, r.Errors, r.TargetWait, r.WaitP50, r.WaitP90, r.WaitP99,
			r.SettledP99, r.Goodput,
			1e3*r.DropP50, 1e3*r.DropP99, r.Headed, r.Turns, r.Released, 1e3*r.Lateness)
	}
	t.Flush()
	fmt.Fprint(out, "\nTargets\n")
	for _, target := range d.Targets {
		fmt.Fprintf(out, "  %s\n", target)
	}
	return out.err
}

// WritePlot draws what was dropped, how long was waited, and what was queued,
// over time, into an SVG and a PNG.
func (d OverloadDocument) WritePlot(file string) error {
	drops := newPanel("Share of the requests refused", "seconds of overload", "share")
	waits := newPanel("Wait of the accepted, median and longest of each second", "seconds of overload", "seconds")
	for i, r := range d.Rows {
		lines := []struct {
			panel  *plot.Plot
			name   string
			value  func(Second) Number
			dashed bool
		}{
			{drops, r.Title + ": refused", func(s Second) Number { return s.Dropped }, false},
			{drops, r.Title + ": drop fraction", func(s Second) Number { return s.DropFraction }, true},
			{waits, r.Title + ": median", func(s Second) Number { return s.WaitP50 }, false},
			{waits, r.Title + ": longest", func(s Second) Number { return s.WaitMax }, true},
		}
		for _, l := range lines {
			if err := addLine(l.panel, l.name, r.Timeline, l.value, 3*i, l.dashed); err != nil {
				return err
			}
		}
	}
	drops.Y.Min, drops.Y.Max, waits.Y.Min = 0, 1, 0
	drops.Legend.Top, waits.Legend.Top, waits.Legend.Left = true, true, true
	return writePanels(file, [][]*plot.Plot{{drops, waits}})
}

// addLine adds what is known of a timeline.
func addLine(p *plot.Plot, name string, timeline []Second, value func(Second) Number, at int, dashed bool) error {
	var xys plotter.XYs
	for _, s := range timeline {
		if v := float64(value(s)); !math.IsNaN(v) {
			xys = append(xys, plotter.XY{X: float64(s.At), Y: v})
		}
	}
	if len(xys) == 0 {
		return nil
	}
	line, err := plotter.NewLine(xys)
	if err != nil {
		return fmt.Errorf("drawing %s: %w", name, err)
	}
	line.Color, line.Width = colour(at), vg.Points(1.5)
	if dashed {
		line.Dashes = []vg.Length{vg.Points(4), vg.Points(2)}
	}
	p.Add(line)
	p.Legend.Add(name, line)
	return nil
}
