package load

import (
	"net/http"
	"slices"
	"testing"
)

func TestLeastLoadedFillsTheEmptiestFirst(t *testing.T) {
	tests := []struct {
		name       string
		capacities []float64
		picks      int
		want       []int // requests out at each target
	}{
		{"one each", []float64{1, 1, 1, 1}, 4, []int{1, 1, 1, 1}},
		{"all equally", []float64{1, 1, 1}, 9, []int{3, 3, 3}},
		{"by capacity", []float64{4, 1}, 5, []int{4, 1}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := NewLeastLoaded(tt.capacities, 1)
			got := make([]int, len(tt.capacities))
			for range tt.picks {
				got[l.Pick()]++
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("requests out %v, want %v", got, tt.want)
			}
		})
	}
}

func TestLeastLoadedReturnsToWhereARequestEnded(t *testing.T) {
	l := NewLeastLoaded([]float64{1, 1, 1}, 1)
	for range 6 {
		l.Pick()
	}
	l.Done(1)
	if got := l.Pick(); got != 1 {
		t.Errorf("picked target %d, want 1, where there is one request less", got)
	}
}

func TestLeastLoadedTreatsEqualsEqually(t *testing.T) {
	l := NewLeastLoaded([]float64{1, 1, 1, 1}, 1)
	got := make([]int, 4)
	for range 4000 {
		i := l.Pick()
		got[i]++
		l.Done(i)
	}
	if slices.Min(got) < 900 || slices.Max(got) > 1100 {
		t.Errorf("equal targets were picked %v times, want about 1000 each", got)
	}
}

// The picker replaces the choice and nothing else: moments and work stay those
// of the plan, so that runs with and without one are paired.
func TestRunAsksThePickerWhenARequestLeaves(t *testing.T) {
	answered := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }
	plan := Plan{
		Targets: []string{serve(t, answered), serve(t, answered)},
		Rate:    1000, Count: 100, Seed: 1, Work: Work{Mean: 1},
	}
	planned := arrivalsOf(t, plan)
	picker := NewLeastLoaded([]float64{1, 1}, 1)
	plan.Picker = picker
	got, err := Run(t.Context(), plan)
	if err != nil || got.Errors != 0 {
		t.Fatalf("%d errors, %v", got.Errors, err)
	}
	for i, s := range got.Samples {
		if s.At != planned[i].At || s.Work != planned[i].Work {
			t.Fatalf("request %d is %+v, want the moment and work of %+v", i, s.Arrival, planned[i])
		}
	}
	if !slices.Equal(picker.out, []int{0, 0}) {
		t.Errorf("after the run the picker counts %v requests out, want none", picker.out)
	}
}

func TestRunCountsWhatEnvoyDropped(t *testing.T) {
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/drop" {
			w.Header().Set("x-envoy-drop-overload", "true")
		}
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	got, err := Run(t.Context(), Plan{Targets: []string{url + "/drop", url + "/fail"}, Rate: 1000, Count: 20, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range got.Samples {
		if s.Dropped != (s.Target == 0) || !s.Failed() {
			t.Errorf("an answer of target %d: dropped %t, failed %t; want dropped for target 0 only, and failed",
				s.Target, s.Dropped, s.Failed())
		}
	}
}

func TestLeastMeasuredTakesTheLeastAndAnyOfEquals(t *testing.T) {
	measures := []float64{2, 1, 3, 1}
	l := NewLeastMeasured(len(measures), func(i, _ int) float64 { return measures[i] }, 1)
	got := make([]int, len(measures))
	for range 1000 {
		target := l.Pick()
		got[target]++
		l.Done(target)
	}
	if got[0] != 0 || got[2] != 0 || got[1] < 400 || got[3] < 400 {
		t.Errorf("picks %v, want all at the second and the fourth, about evenly", got)
	}
}

func TestLeastMeasuredKnowsWhatItHasSent(t *testing.T) {
	l := NewLeastMeasured(2, func(i, out int) float64 { return float64(out) + 0.5*float64(i) }, 1)
	for k, want := range []int{0, 1, 0, 1} {
		if got := l.Pick(); got != want {
			t.Fatalf("pick %d is target %d, want %d", k, got, want)
		}
	}
	l.Done(1)
	if got := l.Pick(); got != 1 {
		t.Errorf("after the end of a request at target 1, target %d, want 1", got)
	}
}
