package stats

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"

	"steelyard/e2e/rig/load"
)

// A Bootstrap is how to resample.
type Bootstrap struct {
	Block     int // length of a block; 1 takes the values for independent
	Resamples int
	Seed      uint64
}

// An Interval holds the truth in 95 of 100 runs. Both ends are NaN where there
// is nothing to say.
type Interval struct{ Low, High float64 }

// Quantiles are quantiles of paired series: as they are, and in every resample.
type Quantiles struct {
	at        []float64     // 0..1, ascending
	values    [][]float64   // [series][quantile]
	resampled [][][]float64 // [series][quantile][resample]
}

// Quantiles resamples the series together and returns their nearest-rank
// quantiles. The series are of equal length, and values of the same index belong
// together; NaN marks a value that is missing and is left out.
func (b Bootstrap) Quantiles(series [][]float64, at ...float64) *Quantiles {
	q := &Quantiles{at: slices.Sorted(slices.Values(at))}
	orders := make([][]int, len(series))
	for i, s := range series {
		orders[i] = ascending(s)
		q.values = append(q.values, pick(s, orders[i], once(len(s)), q.at))
		q.resampled = append(q.resampled, make([][]float64, len(q.at)))
	}
	if len(series) == 0 || len(series[0]) == 0 {
		return q
	}
	draws := rand.New(rand.NewPCG(b.Seed, 0))
	times := make([]int, len(series[0]))
	for range b.Resamples {
		b.draw(draws, times)
		for i, s := range series {
			for k, v := range pick(s, orders[i], times, q.at) {
				q.resampled[i][k] = append(q.resampled[i][k], v)
			}
		}
	}
	return q
}

// draw sets how often each value is in a resample.
func (b Bootstrap) draw(r *rand.Rand, times []int) {
	clear(times)
	n := len(times)
	for left := n; left > 0; left -= b.Block {
		first := r.IntN(n)
		for k := range min(max(1, b.Block), left) {
			times[(first+k)%n]++
		}
	}
}

// once returns a sample in which every value is once.
func once(n int) []int {
	times := make([]int, n)
	for i := range times {
		times[i] = 1
	}
	return times
}

// ascending returns the indices of the values that are not NaN, smallest first.
func ascending(values []float64) []int {
	var order []int
	for i, v := range values {
		if !math.IsNaN(v) {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(values[a], values[b]) })
	return order
}

// pick returns the quantiles of a sample in which value i occurs times[i] times.
// The order is sorted once, so that a resample costs one walk and no sort.
func pick(values []float64, order, times []int, at []float64) []float64 {
	total := 0
	for _, i := range order {
		total += times[i]
	}
	out := make([]float64, len(at))
	k, seen := 0, 0
	for _, i := range order {
		for seen += times[i]; k < len(at) && seen >= rank(at[k], total); k++ {
			out[k] = values[i]
		}
	}
	for ; k < len(at); k++ {
		out[k] = math.NaN()
	}
	return out
}

// rank returns the number of values up to and with the nearest-rank quantile.
func rank(q float64, n int) int { return max(1, int(math.Ceil(q*float64(n)-1e-9))) }

func (q *Quantiles) index(at float64) int { return slices.Index(q.at, at) }

// Value returns a quantile of a series, one of those that were asked for.
func (q *Quantiles) Value(series int, at float64) float64 { return q.values[series][q.index(at)] }

// Interval returns how sure that value is.
func (q *Quantiles) Interval(series int, at float64) Interval {
	return spread(slices.Clone(q.resampled[series][q.index(at)]))
}

// Ratio returns how sure the quotient of the quantiles of two series is.
func (q *Quantiles) Ratio(over, under int, at float64) Interval {
	k := q.index(at)
	ratios := make([]float64, 0, len(q.resampled[over][k]))
	for i, v := range q.resampled[over][k] {
		if r := v / q.resampled[under][k][i]; !math.IsNaN(r) {
			ratios = append(ratios, r)
		}
	}
	return spread(ratios)
}

// Difference returns how sure the difference of the quantiles of two series is.
func (q *Quantiles) Difference(of, from int, at float64) Interval {
	k := q.index(at)
	all := make([]float64, 0, len(q.resampled[of][k]))
	for i, v := range q.resampled[of][k] {
		all = append(all, v-q.resampled[from][k][i])
	}
	return spread(all)
}

// spread returns the interval that leaves out one in forty at each end.
func spread(values []float64) Interval {
	values = slices.DeleteFunc(values, math.IsNaN)
	slices.Sort(values)
	return Interval{Low: load.Quantile(values, 0.025), High: load.Quantile(values, 0.975)}
}
