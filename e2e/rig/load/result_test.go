package load

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestQuantileIsTheNearestRank(t *testing.T) {
	ten := []float64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
	tests := []struct {
		name   string
		sorted []float64
		q      float64
		want   float64
	}{
		{"median of an even number is the lower one", ten, 0.5, 5},
		{"p90 of ten is the ninth", ten, 0.9, 9},
		{"p99 of ten is the last", ten, 0.99, 10},
		{"a hair above a rank is the next", ten, 0.901, 10},
		{"zero is the first", ten, 0, 1},
		{"one is the last", ten, 1, 10},
		{"median of one", []float64{3}, 0.5, 3},
		{"median of three", []float64{1, 2, 3}, 0.5, 2},
		{"of none", nil, 0.5, math.NaN()},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := Quantile(tt.sorted, tt.q)
			if got != tt.want && !(math.IsNaN(got) && math.IsNaN(tt.want)) {
				t.Errorf("Quantile(%v) is %v, want %v", tt.q, got, tt.want)
			}
		})
	}
}

func TestResultCountsEverySample(t *testing.T) {
	samples := []Sample{
		{Status: 200, Wait: 1, Latency: 2 * time.Second, Lateness: time.Millisecond, Server: "a"},
		{Status: 200, Wait: 3, Latency: 4 * time.Second, Lateness: 3 * time.Millisecond, Server: "b"},
		{Status: 503, Wait: math.NaN(), Latency: time.Second, Server: "a"},
		{Err: errors.New("reset"), Wait: math.NaN(), Latency: 9 * time.Second},
		{Status: 404, Wait: math.NaN(), Latency: time.Second},
	}
	got := newResult(samples, time.Minute)
	got.Samples = nil
	want := Result{
		Elapsed: time.Minute, Requests: 5, Errors: 3, Unanswered: 1,
		Codes:    map[int]int{200: 2, 503: 1, 404: 1},
		Servers:  map[string]int{"a": 2, "b": 1},
		Wait:     Summary{N: 2, Mean: 2, P50: 1, P90: 3, P99: 3, Max: 3},
		Latency:  Summary{N: 4, Mean: 2, P50: 1, P90: 4, P99: 4, Max: 4},
		Lateness: Summary{N: 5, Mean: 0.0008, P50: 0, P90: 0.003, P99: 0.003, Max: 0.003},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("result (-want +got):\n%s", diff)
	}
	if n := got.ServerErrors(); n != 1 {
		t.Errorf("%d server errors, want 1", n)
	}
}
