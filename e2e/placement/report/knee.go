package report

import (
	"fmt"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// A Sweep is a setting of the pushes and the rows that differ in it, in the order
// of its values.
type Sweep struct {
	Title    string   `json:"setting"`
	Policies []string `json:"policies"`
}

// WriteKnee draws p99 against what it costs, into an SVG and a PNG: a line for
// each sweep, against pushes a second on the left and the CPU that an Envoy uses
// above LEAST_REQUEST on the right, and a level line for the bound.
func WriteKnee(file string, sections []Section, sweeps []Sweep) error {
	var panels [][]*plot.Plot
	for _, s := range sections {
		pushes := newPanel(fmt.Sprintf("Price of freshness, %v service", s.Service), "pushes a second", "p99 of the wait, in mean services")
		cpu := newPanel("", "cores of each Envoy above LEAST_REQUEST", "p99 of the wait, in mean services")
		for i, sweep := range sweeps {
			if err := s.addSweep(pushes, i, sweep, func(r Row) Number { return r.Pushes }); err != nil {
				return err
			}
			if err := s.addSweep(cpu, i, sweep, func(r Row) Number { return r.EnvoyCPUOver }); err != nil {
				return err
			}
		}
		for _, p := range []*plot.Plot{pushes, cpu} {
			s.addBound(p)
			p.X.Min, p.Y.Min, p.Legend.Top = 0, 0, true
		}
		panels = append(panels, []*plot.Plot{pushes, cpu})
	}
	return writePanels(file, panels)
}

// addSweep adds the rows of a sweep as a line with its intervals.
func (s Section) addSweep(p *plot.Plot, at int, sweep Sweep, cost func(Row) Number) error {
	var line plotter.XYs
	var errs plotter.YErrors
	for _, name := range sweep.Policies {
		i := s.find(name)
		if i < 0 || len(s.Rows[i].waits) == 0 || cost(s.Rows[i]) != cost(s.Rows[i]) {
			continue
		}
		r := s.Rows[i]
		line = append(line, plotter.XY{X: float64(cost(r)), Y: float64(r.WaitP99)})
		errs = append(errs, struct{ Low, High float64 }{float64(r.WaitP99CI[0] - r.WaitP99), float64(r.WaitP99CI[1] - r.WaitP99)})
	}
	if len(line) == 0 {
		return nil
	}
	l, points, err := plotter.NewLinePoints(line)
	if err != nil {
		return fmt.Errorf("drawing %s: %w", sweep.Title, err)
	}
	bars, err := plotter.NewYErrorBars(struct {
		plotter.XYs
		plotter.YErrors
	}{line, errs})
	if err != nil {
		return fmt.Errorf("drawing %s: %w", sweep.Title, err)
	}
	c := colour([]int{4, 0, 5}[at%3])
	l.Color, l.Width, points.Color, points.Shape, points.Radius, bars.Color = c, vg.Points(1.5), c, draw.CircleGlyph{}, vg.Points(3), c
	p.Add(bars, l, points)
	p.Legend.Add(sweep.Title, l, points)
	return nil
}

// addBound adds a level line at the p99 of the bound.
func (s Section) addBound(p *plot.Plot) {
	i := s.find(bound)
	if i < 0 || len(s.Rows[i].waits) == 0 {
		return
	}
	level := plotter.NewFunction(func(float64) float64 { return float64(s.Rows[i].WaitP99) })
	level.Dashes = []vg.Length{vg.Points(4), vg.Points(2)}
	p.Add(level)
	p.Legend.Add("bound", level)
}
