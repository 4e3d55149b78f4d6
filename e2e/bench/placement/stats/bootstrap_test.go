package stats

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"steelyard/e2e/rig/load"
)

// dependent returns a series with mean 0 and variance 1 in which neighbours resemble
// each other by the given correlation: AR(1).
func dependent(r *rand.Rand, n int, correlation float64) []float64 {
	out := make([]float64, n)
	v := r.NormFloat64()
	for i := range out {
		v = correlation*v + math.Sqrt(1-correlation*correlation)*r.NormFloat64()
		out[i] = v
	}
	return out
}

func TestQuantilesAreThoseOfTheLoadGenerator(t *testing.T) {
	values := dependent(rand.New(rand.NewPCG(1, 0)), 777, 0.5)
	q := Bootstrap{Block: 10, Resamples: 10}.Quantiles([][]float64{values}, 0.99, 0.5, 0.9)
	sorted := slices.Sorted(slices.Values(values))
	for _, at := range []float64{0.5, 0.9, 0.99} {
		if got, want := q.Value(0, at), load.Quantile(sorted, at); got != want {
			t.Errorf("quantile %v is %v, want %v", at, got, want)
		}
	}
}

func TestAResampleHasAsManyValues(t *testing.T) {
	for _, block := range []int{1, 7, 100, 250} {
		times := make([]int, 100)
		Bootstrap{Block: block}.draw(rand.New(rand.NewPCG(1, 0)), times)
		sum := 0
		for _, n := range times {
			sum += n
		}
		if sum != 100 {
			t.Errorf("blocks of %d make a resample of %d values, want 100", block, sum)
		}
	}
}

// The interval of a quantile that is known must hold it about as often as it
// claims, and with dependent values only blocks achieve that.
func TestIntervalsHoldTheTruth(t *testing.T) {
	const runs, n = 100, 1000
	tests := []struct {
		name        string
		correlation float64
		block       int
		least, most int // of 100 intervals that hold the truth; 95 are promised
	}{
		{"independent values", 0, 1, 90, 100},
		{"independent values in blocks", 0, 40, 82, 100},
		{"dependent values in blocks", 0.9, 100, 78, 100},
		{"dependent values taken for independent", 0.9, 1, 0, 60},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(5, 0))
			held := 0
			for i := range runs {
				b := Bootstrap{Block: tt.block, Resamples: 100, Seed: uint64(i)}
				at := b.Quantiles([][]float64{dependent(r, n, tt.correlation)}, 0.5).Interval(0, 0.5)
				if at.Low <= 0 && 0 <= at.High { // the median of the process is 0
					held++
				}
			}
			if held < tt.least || held > tt.most {
				t.Errorf("%d of %d intervals hold the truth, want %d to %d", held, runs, tt.least, tt.most)
			}
		})
	}
}

func TestRatiosArePaired(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 0))
	base := make([]float64, 1000)
	for i := range base {
		base[i] = r.ExpFloat64()
	}
	longer := make([]float64, len(base))
	for i, v := range base {
		longer[i] = 1.5 * v
	}
	q := Bootstrap{Block: 50, Resamples: 300, Seed: 1}.Quantiles([][]float64{base, longer}, 0.99)
	if got := q.Ratio(1, 0, 0.99); math.Abs(got.Low-1.5) > 1e-12 || math.Abs(got.High-1.5) > 1e-12 {
		t.Errorf("the ratio of a series to itself times 1.5 is in %v, want exactly 1.5", got)
	}
	if own := q.Interval(0, 0.99); !(own.High > 1.05*own.Low) {
		t.Errorf("the quantile itself is in %v, want an interval", own)
	}
}

func TestSameSeedMakesTheSameIntervals(t *testing.T) {
	values := [][]float64{dependent(rand.New(rand.NewPCG(1, 0)), 500, 0.5)}
	b := Bootstrap{Block: 10, Resamples: 100, Seed: 4}
	if one, two := b.Quantiles(values, 0.9).Interval(0, 0.9), b.Quantiles(values, 0.9).Interval(0, 0.9); one != two {
		t.Errorf("intervals %v and %v", one, two)
	}
}

func TestWhatIsMissingIsLeftOut(t *testing.T) {
	nan := math.NaN()
	q := Bootstrap{Block: 2, Resamples: 50}.Quantiles([][]float64{{nan, 3, nan, 3}, {nan, nan, nan, nan}}, 0.5)
	if got := q.Value(0, 0.5); got != 3 {
		t.Errorf("the median of 3, 3 and two missing ones is %v, want 3", got)
	}
	if got := q.Interval(0, 0.5); got != (Interval{3, 3}) {
		t.Errorf("its interval is %v, want 3 to 3", got)
	}
	if got := q.Interval(1, 0.5); !math.IsNaN(got.Low) || !math.IsNaN(got.High) {
		t.Errorf("the interval of nothing is %v, want none", got)
	}
	if got := q.Ratio(0, 1, 0.5); !math.IsNaN(got.Low) {
		t.Errorf("the ratio to nothing is %v, want none", got)
	}
	empty := Bootstrap{Block: 2, Resamples: 5}.Quantiles([][]float64{{}}, 0.5)
	if got := empty.Value(0, 0.5); !math.IsNaN(got) {
		t.Errorf("the median of nothing is %v, want none", got)
	}
}

func BenchmarkQuantiles(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 0))
	series := make([][]float64, 9)
	for i := range series {
		series[i] = dependent(r, 5000, 0.9)
	}
	for b.Loop() {
		Bootstrap{Block: 320, Resamples: 1000}.Quantiles(series, 0.5, 0.9, 0.99)
	}
}
