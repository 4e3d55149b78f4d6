package load

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

func somePlan() Plan {
	return Plan{
		Targets: []string{"http://127.0.0.1:1/", "http://127.0.0.1:2/", "http://127.0.0.1:3/"},
		Rate:    100, Count: 20000, Work: Work{Mean: time.Second}, Seed: 7,
	}
}

func arrivalsOf(t *testing.T, p Plan) []Arrival {
	t.Helper()
	seq, err := p.Arrivals()
	if err != nil {
		t.Fatalf("Arrivals: %v", err)
	}
	return slices.Collect(seq)
}

func TestSameSeedMakesTheSameSequence(t *testing.T) {
	a, b := arrivalsOf(t, somePlan()), arrivalsOf(t, somePlan())
	if !slices.Equal(a, b) {
		t.Error("two expansions of one plan differ")
	}
	other := somePlan()
	other.Seed++
	if slices.Equal(a, arrivalsOf(t, other)) {
		t.Error("another seed made the same sequence")
	}
}

// The sequence is part of what a published figure means, so it must not change
// with a release of Go.
func TestSequenceIsPinned(t *testing.T) {
	p := somePlan()
	p.Count = 3
	got := arrivalsOf(t, p)
	want := []Arrival{
		{At: 6742067, Work: 269434186, Target: 2},
		{At: 22688399, Work: 1818315714, Target: 1},
		{At: 36664701, Work: 887288166, Target: 0},
	}
	near := func(a, b Arrival) bool { // logarithms may differ in the last bit between machines
		return (a.At-b.At).Abs() < time.Microsecond && (a.Work-b.Work).Abs() < time.Microsecond && a.Target == b.Target
	}
	if !slices.EqualFunc(got, want, near) {
		t.Errorf("seed 7 begins with %v, want %v", got, want)
	}
}

func TestOneDimensionLeavesTheOthersAlone(t *testing.T) {
	base := arrivalsOf(t, somePlan())
	tests := []struct {
		name             string
		change           func(*Plan)
		at, work, target bool // unchanged
	}{
		{"rate", func(p *Plan) { p.Rate *= 2 }, false, true, true},
		{"process", func(p *Plan) { p.Process = Fixed }, false, true, true},
		{"shape of work", func(p *Plan) { p.Work.Shape = LogNormal }, true, false, true},
		{"shares", func(p *Plan) { p.Shares = []float64{8, 1, 1} }, true, true, false},
		{"target URLs", func(p *Plan) { p.Targets = []string{"http://a/", "http://b/", "http://c/"} }, true, true,
			true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := somePlan()
			tt.change(&p)
			got := arrivalsOf(t, p)
			same := func(eq func(a, b Arrival) bool) bool { return slices.EqualFunc(base, got, eq) }
			if v := same(func(a, b Arrival) bool { return a.At == b.At }); v != tt.at {
				t.Errorf("moments unchanged: %t, want %t", v, tt.at)
			}
			if v := same(func(a, b Arrival) bool { return a.Work == b.Work }); v != tt.work {
				t.Errorf("work unchanged: %t, want %t", v, tt.work)
			}
			if v := same(func(a, b Arrival) bool { return a.Target == b.Target }); v != tt.target {
				t.Errorf("targets unchanged: %t, want %t", v, tt.target)
			}
		})
	}
}

// moments returns the mean and the coefficient of variation.
func moments(v []float64) (mean, cv float64) {
	for _, x := range v {
		mean += x / float64(len(v))
	}
	sum := 0.0
	for _, x := range v {
		sum += (x - mean) * (x - mean)
	}
	return mean, math.Sqrt(sum/float64(len(v))) / mean
}

func TestGapsFollowTheProcess(t *testing.T) {
	tests := []struct {
		process Process
		cv      float64
	}{{Poisson, 1}, {Fixed, 0}}
	for _, tt := range tests {
		t.Run(string(tt.process), func(t *testing.T) {
			p := somePlan()
			p.Process = tt.process
			var gaps []float64
			last := time.Duration(0)
			for _, a := range arrivalsOf(t, p) {
				gaps = append(gaps, (a.At - last).Seconds())
				last = a.At
			}
			mean, cv := moments(gaps)
			if math.Abs(mean-0.01) > 0.0003 || math.Abs(cv-tt.cv) > 0.03 {
				t.Errorf("gaps of mean %v s and variation %v, want 0.01 and %v", mean, cv, tt.cv)
			}
		})
	}
}

func TestWorkFollowsItsShape(t *testing.T) {
	tests := []struct {
		name string
		work Work
		cv   float64
	}{
		{"exponential", Work{Shape: Exponential}, 1},
		{"deterministic", Work{Shape: Deterministic}, 0},
		{"log-normal", Work{Shape: LogNormal, Spread: 0.5}, math.Sqrt(math.Exp(0.25) - 1)},
		{"two classes", Work{Shape: TwoClass, Spread: 10}, 2.7 / 1.9},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := somePlan()
			p.Work = tt.work
			p.Work.Mean = 2 * time.Second
			var work []float64
			for _, a := range arrivalsOf(t, p) {
				work = append(work, a.Work.Seconds())
			}
			mean, cv := moments(work)
			if math.Abs(mean-2) > 0.06 || math.Abs(cv-tt.cv) > 0.05 {
				t.Errorf("work of mean %v s and variation %v, want 2 and %v", mean, cv, tt.cv)
			}
		})
	}
}

func TestTargetsGetTheirShares(t *testing.T) {
	tests := []struct {
		name   string
		shares []float64
		want   []float64
	}{
		{"equal by default", nil, []float64{1. / 3, 1. / 3, 1. / 3}},
		{"one has half", []float64{2, 1, 1}, []float64{0.5, 0.25, 0.25}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := somePlan()
			p.Shares = tt.shares
			got := make([]float64, 3)
			for _, a := range arrivalsOf(t, p) {
				got[a.Target] += 1 / float64(p.Count)
			}
			for i := range got {
				if math.Abs(got[i]-tt.want[i]) > 0.01 {
					t.Errorf("target %d got %v, want %v", i, got[i], tt.want[i])
				}
			}
		})
	}
}

func TestPlanEndsAtTheFirstOfItsBounds(t *testing.T) {
	tests := []struct {
		name     string
		duration time.Duration
		count    int
		want     int
	}{
		{"count", 0, 10, 10},
		{"count first", time.Hour, 10, 10},
		{"duration first", 105 * time.Millisecond, 1000, 10},
		{"duration", 105 * time.Millisecond, 0, 10},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := somePlan()
			p.Process, p.Duration, p.Count = Fixed, tt.duration, tt.count
			if got := len(arrivalsOf(t, p)); got != tt.want {
				t.Errorf("%d arrivals, want %d", got, tt.want)
			}
		})
	}
}

func TestPlanThatMakesNoSenseIsRefused(t *testing.T) {
	tests := []struct {
		name   string
		change func(*Plan)
		want   string
	}{
		{"no targets", func(p *Plan) { p.Targets = nil }, "no targets"},
		{"no rate", func(p *Plan) { p.Rate = 0 }, "rate 0"},
		{"rate that is no number", func(p *Plan) { p.Rate = math.NaN() }, "rate NaN"},
		{"no end", func(p *Plan) { p.Count = 0 }, "never end"},
		{"unknown process", func(p *Plan) { p.Process = "bursts" }, `process "bursts"`},
		{"unknown shape", func(p *Plan) { p.Work.Shape = "round" }, `shape of work "round"`},
		{"negative work", func(p *Plan) { p.Work.Mean = -1 }, "mean work"},
		{"too few shares", func(p *Plan) { p.Shares = []float64{1} }, "1 shares for 3 targets"},
		{"share of zero", func(p *Plan) { p.Shares = []float64{1, 0, 1} }, "share 0 of target 1"},
		{"target that is no URL", func(p *Plan) { p.Targets[1] = "nowhere" }, `"nowhere"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := somePlan()
			tt.change(&p)
			_, err := p.Arrivals()
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one that contains %q", err, tt.want)
			}
		})
	}
}
