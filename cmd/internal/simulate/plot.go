package simulate

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/guptarohit/asciigraph"

	"steelyard/cmd/internal/table"
	"steelyard/controlplane/config"
	"steelyard/weighting/sim"
)

// The size of the plots, in characters, and the samples that a column is the mean
// of.
const (
	plotWidth   = 72
	plotHeight  = 6
	samplesEach = 4
	plottedPods = 4
	podMarkers  = "0123456789"
)

// sampleEvery is how often the simulation is sampled for plots.
func sampleEvery(d time.Duration) time.Duration {
	return max(time.Millisecond, d/(plotWidth*samplesEach))
}

// plots draws a run: the tails of all policies, and some policies over time, with
// the given pods.
func (r run) plots(over func(sim.Policy) bool, pods []int) string {
	var b strings.Builder
	b.WriteString(r.tails())
	top := 0.0
	waiting := make([][]float64, len(r.results))
	for i, result := range r.results {
		if !over(r.policies[i]) {
			continue
		}
		waiting[i] = means(result.Series, func(s sim.Sample) float64 { return s.Waiting })
		top = max(top, largest(waiting[i]))
	}
	for i, p := range r.policies {
		if len(waiting[i]) == 0 {
			continue
		}
		b.WriteString("\n" + p.Name + ": requests waiting, in all pods\n")
		b.WriteString(r.graph([][]float64{waiting[i]}, top))
		b.WriteString(r.podPlots(i, pods))
	}
	return b.String()
}

// typical are the policies that are drawn over time by default: Envoy's own, and the first of
// Steelyard's.
func typical(policies []sim.Policy) func(sim.Policy) bool {
	first := slices.IndexFunc(policies, func(p sim.Policy) bool { return p.Steelyard != nil })
	return func(p sim.Policy) bool {
		return p.Name == string(sim.LeastRequest) || first >= 0 && p.Name == policies[first].Name
	}
}

// podPlots draws some pods under one policy, each with its number.
func (r run) podPlots(i int, pods []int) string {
	if len(pods) == 0 {
		return ""
	}
	series := func(pick func(sim.Sample, int) float64) [][]float64 {
		out := make([][]float64, len(pods))
		for k, pod := range pods {
			out[k] = means(r.results[i].Series, func(s sim.Sample) float64 { return pick(s, pod) })
		}
		return out
	}
	var legend []string
	for k, pod := range pods {
		legend = append(legend, fmt.Sprintf("%c is pod %d", podMarkers[k], pod))
	}
	name, of := r.policies[i].Name, strings.Join(legend, ", ")
	loads := series(func(s sim.Sample, pod int) float64 { return at(s.Load, pod) })
	text := fmt.Sprintf("\n%s: requests in the pod; %s\n%s", name, of, r.graph(loads, 0))
	if isPushed(r.policies[i]) {
		shares := series(func(s sim.Sample, pod int) float64 { return 100 * at(s.Shares, pod) })
		text += fmt.Sprintf("\n%s: share of the traffic by weight, percent; %s\n%s", name, of, r.graph(shares, 0))
	}
	return text
}

// graph draws series over the time of the run. The scale goes from 0 to at least
// top.
func (r run) graph(series [][]float64, top float64) string {
	for _, s := range series {
		top = max(top, largest(s))
	}
	if top == 0 {
		return "  0 all the time\n"
	}
	options := []asciigraph.Option{
		asciigraph.Height(plotHeight), asciigraph.LowerBound(0), asciigraph.UpperBound(top),
		asciigraph.YAxisValueFormatter(func(v float64) string { return fmt.Sprintf("%7s", table.Number(v)) }),
		asciigraph.XAxisRange(0, r.scenario.Duration.Seconds()),
		asciigraph.XAxisTickCount(5),
		asciigraph.XAxisValueFormatter(func(v float64) string {
			return config.DurationText(time.Duration(v * float64(time.Second)).Round(time.Second))
		}),
	}
	if len(series) > 1 {
		var chars []asciigraph.CharSet
		for i := range series {
			chars = append(chars, asciigraph.CreateCharSet(podMarkers[i:i+1]))
		}
		options = append(options, asciigraph.SeriesChars(chars...))
	}
	return withoutTrailing(asciigraph.PlotMany(series, options...)) + "\n"
}

// tails draws the wait of each policy, or the time to the first token, on one scale:
// the median, nine in ten, 99 in a hundred, and the longest.
func (r run) tails() string {
	longest, end := 0.0, 0.0
	for i := range r.results {
		longest = max(longest, r.tail(i).P99)
	}
	end = max(imperceptible, longest*1.25)
	column := func(wait float64) int { return int(math.Round(wait / end * (plotWidth - 1))) }
	width := 0
	for _, p := range r.policies {
		width = max(width, len([]rune(p.Name)))
	}
	var b strings.Builder
	what := "wait in mean service times"
	if hasEngines(r.scenario) {
		what = "time to first token in seconds"
	}
	b.WriteString("\n" + what + ": ├ half of the requests, ┼ 90%, ┤ 99%, > the longest or beyond\n")
	for i, p := range r.policies {
		if r.results[i].Requests == 0 {
			continue
		}
		fmt.Fprintf(&b, "%-*s %s\n", width, p.Name, whisker(r.tail(i), column))
	}
	left, right := "0", table.Number(end)
	fmt.Fprintf(&b, "%-*s %s%*s\n", width, "", left, plotWidth-len(left), right)
	return b.String()
}

// whisker is one line of tails. Of two marks in one column the further quantile is
// shown.
func whisker(q sim.Quantiles, column func(float64) int) string {
	line := []rune(strings.Repeat(" ", plotWidth))
	p50, p99 := column(q.P50), column(q.P99)
	for c := p50; c <= p99; c++ {
		line[c] = '─'
	}
	line[p50], line[column(q.P90)] = '├', '┼'
	line[p99] = '┤'
	last := min(column(q.Max), plotWidth-1)
	if last > p99 {
		for c := p99 + 1; c < last; c++ {
			line[c] = '·'
		}
		line[last] = '>'
	}
	return strings.TrimRight(string(line), " ")
}

// means turns samples into one value for each column of a plot: the mean of its
// part of the time.
func means(samples []sim.Sample, value func(sim.Sample) float64) []float64 {
	columns := min(plotWidth, len(samples))
	out := make([]float64, columns)
	for c := range out {
		part := samples[c*len(samples)/columns : (c+1)*len(samples)/columns]
		for _, s := range part {
			out[c] += value(s) / float64(len(part))
		}
	}
	return out
}

// interesting are the pods that plots show by default: the first of each group, and those with
// events, four at most.
func interesting(s sim.Scenario) (pods []int) {
	add := func(pod int) {
		if len(pods) < plottedPods && !slices.Contains(pods, pod) {
			pods = append(pods, pod)
		}
	}
	first := 0
	for _, p := range s.Pods {
		add(first)
		first += p.Count
	}
	for _, e := range s.Events {
		for _, pod := range e.Pods {
			add(pod)
		}
	}
	slices.Sort(pods)
	return pods
}

func at(values []float64, i int) float64 {
	if i >= len(values) {
		return 0
	}
	return values[i]
}

func largest(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	return slices.Max(values)
}

func withoutTrailing(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = strings.TrimRight(line, " ")
	}
	return strings.Join(lines, "\n")
}
