package ledger

import (
	"math"
	"slices"
	"strings"
	"time"
)

// The times to the last byte of an endpoint's answers are counted in buckets that are 8 % wide, for periods of 30 s.
// The current period and the one before are shown: the last 30 to 60 s.
const (
	timeBuckets = 180
	timeGrowth  = 1.08
	timeLowest  = 0.001 // seconds: the upper bound of the first; the last begins at about 970 s
	timesPeriod = 30 * time.Second
)

var logTimeGrowth = math.Log(timeGrowth)

type times struct{ current, before [timeBuckets]uint32 }

func (t *times) add(seconds float64) { t.current[bucketOf(seconds)]++ }

// bucketOf is the bucket of a time.
func bucketOf(seconds float64) int {
	if seconds <= timeLowest {
		return 0
	}
	return min(timeBuckets-1, int(math.Ceil(math.Log(seconds/timeLowest)/logTimeGrowth)))
}

// middleOf is the middle of a bucket, in seconds.
func middleOf(bucket int) float64 { return timeLowest * math.Pow(timeGrowth, float64(bucket)-0.5) }

// rotate begins a new period.
func (t *times) rotate() {
	t.before = t.current
	t.current = [timeBuckets]uint32{}
}

// addTo adds both periods to a sum.
func (t *times) addTo(sum *[timeBuckets]uint64) {
	for i := range sum {
		sum[i] += uint64(t.current[i]) + uint64(t.before[i])
	}
}

// quantile returns the time that this part of the answers took at most, within 4 %: the middle of its bucket. It is NaN
// without an answer.
func quantile(counts *[timeBuckets]uint64, part float64) float64 {
	var all uint64
	for _, n := range counts {
		all += n
	}
	if all == 0 {
		return math.NaN()
	}
	rest := all - uint64(float64(all)*part)
	for i := timeBuckets - 1; i >= 0; i-- {
		if counts[i] >= rest {
			return middleOf(i)
		}
		rest -= counts[i]
	}
	return math.NaN()
}

// rotateTimes begins a new period for a cluster when the current one has ended.
func (c *cluster) rotateTimes(now time.Time) {
	if since := now.Sub(c.rotated); since >= 0 && since < timesPeriod {
		return
	}
	c.rotated = now
	for _, s := range c.members {
		if s.times != nil {
			s.times.rotate()
		}
	}
}

// An AnswerTime has the time to the last byte, in seconds, that 99 % of an endpoint's answers took at most in about the
// last minute.
type AnswerTime struct {
	Address string
	P99     float64
}

// AnswerTimes returns the times of a cluster's endpoints that answered, by address, and the p99 of all of them
// together, which is NaN without an answer in an access log.
func (l *Ledger) AnswerTimes(name string) (endpoints []AnswerTime, all float64) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	c := l.clusters[name]
	if c == nil {
		return nil, math.NaN()
	}
	var pool [timeBuckets]uint64
	for _, s := range c.members {
		if s.times == nil {
			continue
		}
		var one [timeBuckets]uint64
		s.times.addTo(&one)
		s.times.addTo(&pool)
		if v := quantile(&one, 0.99); !math.IsNaN(v) {
			endpoints = append(endpoints, AnswerTime{s.address, v})
		}
	}
	slices.SortFunc(endpoints, func(a, b AnswerTime) int { return strings.Compare(a.Address, b.Address) })
	return endpoints, quantile(&pool, 0.99)
}
