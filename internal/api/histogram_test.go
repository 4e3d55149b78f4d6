package api

import (
	"math"
	"testing"
)

func TestLatenciesOfAHistogram(t *testing.T) {
	inf := math.Inf(1)
	for name, test := range map[string]struct {
		h    *Histogram
		want FirstToken
	}{
		"none":       {nil, FirstToken{}},
		"no request": {&Histogram{Bounds: []float64{1, inf}, Counts: []float64{0, 0}}, FirstToken{}},
		"one bucket": {&Histogram{Bounds: []float64{0.5, 1, inf}, Counts: []float64{0, 100, 0}, Sum: 80},
			FirstToken{Num(0.8), Num(0.995), Num(0.5), Num(1)}},
		"the p99 in the next": {
			&Histogram{Bounds: []float64{0.5, 1, 2, inf}, Counts: []float64{98, 0, 2, 0}, Sum: 50},
			FirstToken{Num(0.5), Num(1.5), Num(1), Num(2)}},
		"the last bucket": {&Histogram{Bounds: []float64{0.5, inf}, Counts: []float64{10, 90}, Sum: 300},
			FirstToken{Num(3), Num(0.5), Num(0.5), Number{}}},
		"only the last bucket": {&Histogram{Bounds: []float64{inf}, Counts: []float64{100}, Sum: 300},
			FirstToken{FirstTokenMean: Num(3)}},
	} {
		if got := Latencies(test.h); !alike(got.FirstTokenMean, test.want.FirstTokenMean) ||
			!alike(got.FirstTokenP99, test.want.FirstTokenP99) ||
			!alike(got.FirstTokenP99Low, test.want.FirstTokenP99Low) ||
			!alike(got.FirstTokenP99High, test.want.FirstTokenP99High) {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
	}
}

func alike(a, b Number) bool {
	x, known := a.Value()
	y, alsoKnown := b.Value()
	return known == alsoKnown && math.Abs(x-y) < 1e-9
}

func TestHistogramsOfAPoolAreAddedUpBucketByBucket(t *testing.T) {
	a := &Histogram{Bounds: []float64{1, 2}, Counts: []float64{1, 2}, Sum: 3}
	got := Merge([]*Histogram{nil, a, {Bounds: []float64{1, 2}, Counts: []float64{10, 20}, Sum: 30},
		{Bounds: []float64{5}, Counts: []float64{1}}})
	if got.Counts[0] != 11 || got.Counts[1] != 22 || got.Sum != 33 || a.Counts[0] != 1 {
		t.Errorf("%+v, of %+v", got, a)
	}
	if Merge(nil) != nil {
		t.Error("of none")
	}
}
