package report

import (
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
)

// WritePlot draws the document into two files that differ in their endings, .svg and
// .png: the distribution of the times to the first token on the left, p99 with its
// interval on the right.
func (d LLMDocument) WritePlot(file string) error {
	tail, err := d.tailPlot()
	if err != nil {
		return err
	}
	points, err := d.p99Plot()
	if err != nil {
		return err
	}
	return writePanels(file, [][]*plot.Plot{{tail, points}})
}

// rightEdge returns where the axis of the times ends: at most three times the p99 of
// LEAST_REQUEST, so that one policy gone astray does not press the others to the left.
func (d LLMDocument) rightEdge() float64 {
	most := 0.0
	for _, r := range d.Rows {
		if len(r.firstToken) > 0 {
			most = max(most, 1.3*float64(r.TTFTP99))
		}
	}
	if i := llmIndex(d.Rows, leastRequest); i >= 0 && d.Rows[i].TTFTP99 > 0 {
		most = min(most, 3*float64(d.Rows[i].TTFTP99))
	}
	if most == 0 {
		return 1
	}
	return most
}

func (d LLMDocument) tailPlot() (*plot.Plot, error) {
	p := newPanel("Share of the requests whose first token comes later",
		"time to the first token, in seconds; colours as on the right", "")
	p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	p.X.Min, p.Y.Max = 0, 1
	for i, r := range d.Rows {
		if len(r.firstToken) == 0 {
			continue
		}
		line, err := plotter.NewLine(tail(r.firstToken))
		if err != nil {
			return nil, err
		}
		line.Color, line.Width = colour(i), vg.Points(1.5)
		p.Add(line)
	}
	// Adding a line widens the axes to all that the line has.
	p.Y.Min, p.X.Max = 1e-3, d.rightEdge()
	return p, nil
}

// p99Plot shows the p99 of every row with its interval, the first row on top.
func (d LLMDocument) p99Plot() (*plot.Plot, error) {
	p := newPanel("p99 of the time to the first token", "seconds, with 95 % intervals", "")
	var names []string
	for i, r := range d.Rows {
		names = append(names, r.Policy)
		if len(r.firstToken) == 0 {
			continue
		}
		if err := addEstimate(p, r.TTFTP99, r.TTFTP99CI, len(d.Rows)-1-i, colour(i)); err != nil {
			return nil, err
		}
	}
	slices.Reverse(names)
	p.NominalY(names...)
	p.X.Min, p.X.Max = 0, d.rightEdge()
	p.Y.Min, p.Y.Max = -0.5, float64(len(d.Rows))-0.5
	return p, nil
}
