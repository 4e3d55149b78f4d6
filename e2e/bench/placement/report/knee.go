package report

import (
	"fmt"
	"math"

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

// WriteKnee draws p99, by that of the bound in the same group, against what it costs,
// into an SVG and a PNG: a line for each sweep, against pushes a second on the left and
// the CPU that an Envoy uses above LEAST_REQUEST on the right.
func WriteKnee(file string, sections []Section, sweeps []Sweep) error {
	var panels [][]*plot.Plot
	for _, s := range sections {
		const quality = "p99 of the wait, by that of the bound"
		pushes := newPanel(fmt.Sprintf("Quality against pushes, %v service", s.Service), "pushes a second", quality)
		cpu := newPanel(fmt.Sprintf("Quality against CPU, %v service", s.Service),
			"% of a core of each Envoy above LEAST_REQUEST", quality)
		for i, sweep := range sweeps {
			if err := s.addSweep(pushes, i, sweep, func(r Row) Number { return r.Pushes }); err != nil {
				return err
			}
			if err := s.addSweep(cpu, i, sweep, func(r Row) Number { return 100 * r.EnvoyCPUOver }); err != nil {
				return err
			}
		}
		for _, p := range []*plot.Plot{pushes, cpu} {
			addBound(p)
			p.X.Min, p.Y.Min, p.Legend.Top = 0, 0, false
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
		if i < 0 || len(s.Rows[i].waits) == 0 || !finite(cost(s.Rows[i])) || !finite(s.Rows[i].OfBound) {
			continue
		}
		r := s.Rows[i]
		line = append(line, plotter.XY{X: float64(cost(r)), Y: float64(r.OfBound)})
		errs = append(errs, struct{ Low, High float64 }{float64(r.OfBoundCI[0] - r.OfBound),
			float64(r.OfBoundCI[1] - r.OfBound)})
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
	l.Color, l.Width, points.Color, points.Shape, points.Radius, bars.Color = c, vg.Points(1.5), c, draw.CircleGlyph{},
		vg.Points(3), c
	p.Add(bars, l, points)
	p.Legend.Add(sweep.Title, l, points)
	return nil
}

func finite(n Number) bool { return !math.IsNaN(float64(n)) && !math.IsInf(float64(n), 0) }

// addBound adds a level line at the bound.
func addBound(p *plot.Plot) {
	level := plotter.NewFunction(func(float64) float64 { return 1 })
	level.Dashes = []vg.Length{vg.Points(4), vg.Points(2)}
	p.Add(level)
	p.Legend.Add("bound", level)
}
