package admin

import (
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"steelyard/controlplane/view"

	"github.com/google/go-cmp/cmp"
)

var compareNumbers = cmp.Comparer(func(a, b view.Number) bool { return a == b })

// all asks for everything a history holds at noon.
var all = WindowQuery{Since: noon.Add(-time.Hour)}

func shareOf(w Window, address string) []view.Number {
	for _, e := range w.Endpoints {
		if e.Address == address {
			return e.Shares
		}
	}
	return nil
}

func TestHistoryKeepsOneSamplePerSecond(t *testing.T) {
	h := NewHistory()
	for i := range 40 {
		h.Add("c", noon.Add(time.Duration(i)*50*time.Millisecond), []string{"a"}, []float64{float64(i)})
	}
	w := h.Window("c", noon.Add(2*time.Second), all)
	if diff := cmp.Diff([]view.Number{view.Num(0), view.Num(20)}, shareOf(w, "a"), compareNumbers); diff != "" {
		t.Errorf("shares (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]view.Time{view.At(noon), view.At(noon.Add(time.Second))}, w.At); diff != "" {
		t.Errorf("moments (-want +got):\n%s", diff)
	}
}

func TestHistoryShowsAnAbsentEndpointAsUnknown(t *testing.T) {
	h := NewHistory()
	h.Add("c", noon, []string{"a"}, []float64{1})
	h.Add("c", noon.Add(time.Second), []string{"a", "b"}, []float64{0.25, 0.75})
	h.Add("c", noon.Add(2*time.Second), []string{"b"}, []float64{1})
	w := h.Window("c", noon, all)
	if diff := cmp.Diff([]view.Number{view.Num(1), view.Num(0.25), {}}, shareOf(w, "a"), compareNumbers); diff != "" {
		t.Errorf("a (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]view.Number{{}, view.Num(0.75), view.Num(1)}, shareOf(w, "b"), compareNumbers); diff != "" {
		t.Errorf("b (-want +got):\n%s", diff)
	}
}

func TestHistoryForgetsWhatIsOlderThanTenMinutes(t *testing.T) {
	h := NewHistory()
	h.Add("c", noon, []string{"gone"}, []float64{1})
	for i := 1; i <= historySamples+5; i++ {
		h.Add("c", noon.Add(time.Duration(i)*time.Second), []string{"here"}, []float64{1})
	}
	w := h.Window("c", noon, all)
	if len(w.At) != historySamples || shareOf(w, "gone") != nil || len(shareOf(w, "here")) != historySamples {
		t.Fatalf("%d moments, gone has %d shares, here %d", len(w.At), len(shareOf(w, "gone")), len(shareOf(w, "here")))
	}
	if got, want := w.At[0], view.At(noon.Add(6*time.Second)); got != want {
		t.Errorf("the oldest is of %s, want %s", got, want)
	}
}

func TestHistoryBoundsEndpointsAndCountsThoseLeftOut(t *testing.T) {
	h := NewHistory()
	addresses := make([]string, historyEndpoints+7)
	for i := range addresses {
		addresses[i] = fmt.Sprint(i)
	}
	h.Add("c", noon, addresses, make([]float64, len(addresses)))
	w := h.Window("c", noon, all)
	if len(w.Endpoints) != historyEndpoints || w.EndpointsLeftOut != 7 {
		t.Fatalf("%d endpoints, %d left out", len(w.Endpoints), w.EndpointsLeftOut)
	}
}

func TestHistoryAveragesNeighboursDownToThePointsAsked(t *testing.T) {
	h := NewHistory()
	for i := range 10 {
		h.Add("c", noon.Add(time.Duration(i)*time.Second), []string{"a"}, []float64{float64(i)})
	}
	w := h.Window("c", noon.Add(10*time.Second), WindowQuery{Since: noon, Points: 4})
	if diff := cmp.Diff([]view.Number{view.Num(1), view.Num(4), view.Num(7), view.Num(9)}, shareOf(w, "a"),
		compareNumbers); diff != "" {
		t.Errorf("shares (-want +got):\n%s", diff)
	}
	want := []view.Time{view.At(noon.Add(2 * time.Second)), view.At(noon.Add(5 * time.Second)),
		view.At(noon.Add(8 * time.Second)), view.At(noon.Add(9 * time.Second))}
	if diff := cmp.Diff(want, w.At); diff != "" {
		t.Errorf("moments (-want +got):\n%s", diff)
	}
	if w.StepSeconds != view.Num(3) || w.WindowSeconds != view.Num(10) {
		t.Errorf("step %v, window %v", w.StepSeconds, w.WindowSeconds)
	}
}

func TestHistoryWindowHasTheRequestedStartAndEndpoints(t *testing.T) {
	h := NewHistory()
	for i := range 10 {
		h.Add("c", noon.Add(time.Duration(i)*time.Second), []string{"a", "b"}, []float64{0.1, 0.9})
	}
	w := h.Window("c", noon, WindowQuery{Since: noon.Add(7 * time.Second), Addresses: []string{"b", "nobody", "b"}})
	if len(w.At) != 3 || len(w.Endpoints) != 1 || w.Endpoints[0].Address != "b" || len(w.Endpoints[0].Shares) != 3 {
		t.Fatalf("got %+v", w)
	}
}

func TestHistorySurvivesAClockThatIsSetBack(t *testing.T) {
	h := NewHistory()
	h.Add("c", noon.Add(time.Hour), []string{"a"}, []float64{0.1})
	h.Add("c", noon, []string{"a"}, []float64{0.2})
	if diff := cmp.Diff([]view.Number{view.Num(0.2)}, shareOf(h.Window("c", noon, all), "a"),
		compareNumbers); diff != "" {
		t.Fatalf("(-want +got):\n%s", diff)
	}
}

func TestHistoryTakesHostileShares(t *testing.T) {
	h := NewHistory()
	h.Add("c", noon, []string{"a", "b", "c", "d"}, []float64{math.NaN(), math.Inf(1), 1e308})
	w := h.Window("c", noon, all)
	for _, e := range w.Endpoints {
		if e.Shares[0] != (view.Number{}) {
			t.Errorf("%s: %v", e.Address, e.Shares[0])
		}
	}
	if len(w.Endpoints) != 3 {
		t.Errorf("%d endpoints, want those with a share", len(w.Endpoints))
	}
}

func TestHistoryForgetsAClusterAndIsEmptyForUnknownOnes(t *testing.T) {
	h := NewHistory()
	h.Add("c", noon, []string{"a"}, []float64{1})
	h.Forget("c")
	for _, name := range []string{"c", "never"} {
		if w := h.Window(name, noon, all); len(w.At) != 0 || w.At == nil || w.Endpoints == nil ||
			w.StepSeconds != view.Num(1) {
			t.Errorf("%s: %+v", name, w)
		}
	}
}

func TestHistoryIsSafeForConcurrentUse(t *testing.T) {
	h := NewHistory()
	var wg sync.WaitGroup
	for c := range 4 {
		wg.Go(func() {
			for i := range 200 {
				h.Add(fmt.Sprint(c%2), noon.Add(time.Duration(i)*time.Second), []string{"a"}, []float64{1})
				h.Window(fmt.Sprint(c%2), noon, all)
			}
		})
	}
	wg.Wait()
}
