package report

import (
	"bytes"
	"fmt"
	"image/color"
	"path/filepath"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Sizes of plots.
const (
	panelWidth  = 13 * vg.Centimeter
	panelHeight = 10 * vg.Centimeter
	margin      = 4 * vg.Millimeter
)

// WritePlot draws the sections into two files that differ in their endings, .svg
// and .png: a line for each section, with the distribution of the waits on the
// left and p99 with its interval on the right.
func WritePlot(file string, sections []Section) error {
	panels := make([][]*plot.Plot, len(sections))
	p := paletteOf(sections)
	for i, s := range sections {
		tail, err := s.tailPlot(p)
		if err != nil {
			return fmt.Errorf("drawing the waits at %v: %w", s.Service, err)
		}
		points, err := s.p99Plot(p)
		if err != nil {
			return fmt.Errorf("drawing p99 at %v: %w", s.Service, err)
		}
		panels[i] = []*plot.Plot{tail, points}
	}
	return writePanels(file, panels)
}

// writePanels draws a table of panels into an SVG and a PNG.
func writePanels(file string, panels [][]*plot.Plot) error {
	if len(panels) == 0 {
		return fmt.Errorf("drawing %s: there is nothing to draw", file)
	}
	width, height := panelWidth*vg.Length(len(panels[0])), panelHeight*vg.Length(len(panels))
	svg := vgsvg.New(width, height)
	png := vgimg.PngCanvas{Canvas: vgimg.New(width, height)}
	base := strings.TrimSuffix(file, filepath.Ext(file))
	for _, c := range []struct {
		canvas vg.CanvasWriterTo
		file   string
	}{{svg, base + ".svg"}, {png, base + ".png"}} {
		drawPanels(draw.NewCanvas(c.canvas, width, height), panels)
		var b bytes.Buffer
		if _, err := c.canvas.WriteTo(&b); err != nil {
			return fmt.Errorf("drawing %s: %w", c.file, err)
		}
		if err := write(c.file, b.Bytes()); err != nil {
			return err
		}
	}
	return nil
}

func drawPanels(c draw.Canvas, panels [][]*plot.Plot) {
	tiles := draw.Tiles{
		Rows: len(panels), Cols: len(panels[0]),
		PadTop: margin, PadBottom: margin, PadLeft: margin, PadRight: margin, PadX: 2 * margin, PadY: 2 * margin,
	}
	for i, row := range panels {
		for k, p := range row {
			if p != nil {
				p.Draw(tiles.At(c, k, i))
			}
		}
	}
}

// newPanel returns an empty panel with a grid.
func newPanel(title, x, y string) *plot.Plot {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	p.Title.TextStyle.Font.Size = font.Points(12)
	p.Add(plotter.NewGrid())
	return p
}

// colours can be distinguished by people with colour blindness (Okabe and Ito),
// but for the last two, which stand in where there are more things than that.
var colours = [...]color.RGBA{
	{0xd5, 0x5e, 0x00, 0xff}, {0xe6, 0x9f, 0x00, 0xff}, {0xcc, 0x79, 0xa7, 0xff}, {0x56, 0xb4, 0xe9, 0xff},
	{0x00, 0x72, 0xb2, 0xff}, {0x00, 0x9e, 0x73, 0xff}, {0x88, 0x66, 0xcc, 0xff}, {0xc0, 0x20, 0x40, 0xff},
	{0x00, 0x00, 0x00, 0xff}, {0x80, 0x80, 0x80, 0xff},
}

// colour sets things apart; the eleventh looks like the first.
func colour(i int) color.Color { return colours[i%len(colours)] }

// A palette gives a policy the same colour in all panels: by its place among the policies of
// all sections.
type palette []string

func paletteOf(sections []Section) (p palette) {
	for _, s := range sections {
		for _, r := range s.Rows {
			if !slices.Contains(p, r.Policy) {
				p = append(p, r.Policy)
			}
		}
	}
	return p
}

func (p palette) of(r Row) color.Color { return colour(slices.Index(p, r.Policy)) }

// rightEdge returns where the axis of the waits ends: at most three times the p99 of
// LEAST_REQUEST, or else of the row in the middle, so that one policy gone astray does
// not press the others to the left.
func (s Section) rightEdge() float64 {
	var all []float64
	for _, r := range s.Rows {
		if len(r.waits) > 0 {
			all = append(all, float64(r.WaitP99))
		}
	}
	slices.Sort(all)
	if len(all) == 0 || all[len(all)/2] == 0 {
		return 1
	}
	typical := all[len(all)/2]
	if i := s.find(leastRequest); i >= 0 && s.Rows[i].WaitP99 > 0 {
		typical = float64(s.Rows[i].WaitP99)
	}
	return min(1.3*all[len(all)-1], 3*typical)
}

// tailPoints bounds the points of a line; more cannot be seen.
const tailPoints = 400

// tailPlot shows the share of the requests that wait longer than a time. Its key is
// the plot next to it, which has the same colours: nine names would cover the lines.
func (s Section) tailPlot(tints palette) (*plot.Plot, error) {
	// The title names the y axis: next to a logarithmic axis the library makes
	// room for a label as if it stood at the top.
	p := newPanel(fmt.Sprintf("Share of the requests that wait longer, %v service", s.Service),
		"wait, in mean services; colours as on the right", "")
	p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	p.Y.Min, p.Y.Max, p.X.Min = 1e-3, 1, 0
	for _, r := range s.Rows {
		if len(r.waits) == 0 {
			continue
		}
		line, err := plotter.NewLine(tail(r.waits))
		if err != nil {
			return nil, err
		}
		line.Color, line.Width = tints.of(r), vg.Points(1.5)
		p.Add(line)
	}
	// Adding a line widens the axes to all that the line has.
	p.Y.Min, p.X.Max = 1e-3, s.rightEdge()
	return p, nil
}

// tail returns the complementary distribution of ascending values, thinned out where
// it is dense.
func tail(values []float64) plotter.XYs {
	n := len(values)
	var out plotter.XYs
	for i := 0; i < n; i += max(1, (n-i)*5/tailPoints) {
		if share := float64(n-i) / float64(n); share >= 1e-3 {
			out = append(out, plotter.XY{X: values[i], Y: share})
		}
	}
	return out
}

// estimates are points with intervals, for a plotter.
type estimates struct {
	plotter.XYs
	plotter.XErrors
}

// addEstimate draws a value with its interval, at a height.
func addEstimate(p *plot.Plot, value Number, ci CI, at int, tint color.Color) error {
	v, low, high := float64(value), float64(ci[0]), float64(ci[1])
	e := estimates{plotter.XYs{{X: v, Y: float64(at)}}, plotter.XErrors{{Low: low - v, High: high - v}}}
	bars, err := plotter.NewXErrorBars(e)
	if err != nil {
		return err
	}
	dots, err := plotter.NewScatter(e.XYs)
	if err != nil {
		return err
	}
	bars.Color, bars.Width = tint, vg.Points(1.5)
	dots.Color, dots.Shape, dots.Radius = tint, draw.CircleGlyph{}, vg.Points(3.5)
	p.Add(bars, dots)
	return nil
}

// p99Plot shows p99 of every row with its interval, the first row on top and the
// references of further groups below.
func (s Section) p99Plot(tints palette) (*plot.Plot, error) {
	p := newPanel(fmt.Sprintf("p99 of the wait, %v service", s.Service), "mean services, with 95 % intervals", "")
	all := slices.Concat(s.Rows, s.References)
	names := make([]string, len(all))
	for i, r := range all {
		at := len(all) - 1 - i
		names[at] = r.Title
		if i >= len(s.Rows) {
			names[at] = fmt.Sprintf("%s, group %d", r.Title, r.Group)
		}
		if len(r.waits) == 0 {
			continue
		}
		if err := addEstimate(p, r.WaitP99, r.WaitP99CI, at, tints.of(r)); err != nil {
			return nil, err
		}
	}
	p.NominalY(names...)
	p.X.Min, p.X.Max = 0, s.rightEdge()
	p.Y.Min, p.Y.Max = -0.5, float64(len(all))-0.5
	return p, nil
}
