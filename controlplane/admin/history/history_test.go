package history

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"steelyard/internal/api"
	"steelyard/weighting"
)

// nearly compares numbers as well as a history keeps them.
var nearly = cmp.Comparer(func(a, b api.Number) bool {
	x, known := a.Value()
	y, alsoKnown := b.Value()
	return known == alsoKnown && math.Abs(x-y) <= 0.0004*math.Abs(x)
})

// all asks for everything a history holds at noon.
var all = WindowQuery{Since: noon.Add(-time.Hour)}

func shareOf(w api.Window, address string) []api.Number {
	for _, e := range w.Endpoints {
		if e.Address == address {
			return e.Shares
		}
	}
	return nil
}

// at adds a sample of shares, a number of seconds after noon.
func at(h *History, second float64, addresses []string, shares ...float64) {
	h.Add("c", noon.Add(time.Duration(second*float64(time.Second))), addresses, filledWith(shares))
}

func numbers(values ...float64) (out []api.Number) {
	for _, v := range values {
		out = append(out, api.Num(v))
	}
	return out
}

func TestHistoryKeepsOneSamplePerSecond(t *testing.T) {
	h := NewHistory()
	for i := range 40 {
		at(h, float64(i)*0.05, []string{"a"}, float64(i))
	}
	w := h.Window("c", noon.Add(2*time.Second), all)
	if diff := cmp.Diff(numbers(0, 10, 20, 30), shareOf(w, "a"), nearly); diff != "" {
		t.Errorf("shares, of two in a second at most (-want +got):\n%s", diff)
	}
}

func TestHistoryShowsAnAbsentEndpointAsUnknown(t *testing.T) {
	h := NewHistory()
	at(h, 0, []string{"a"}, 1)
	at(h, 1, []string{"a", "b"}, 0.25, 0.75)
	at(h, 2, []string{"b"}, 1)
	w := h.Window("c", noon, all)
	if diff := cmp.Diff([]api.Number{api.Num(1), api.Num(0.25), {}}, shareOf(w, "a"), nearly); diff != "" {
		t.Errorf("a (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]api.Number{{}, api.Num(0.75), api.Num(1)}, shareOf(w, "b"), nearly); diff != "" {
		t.Errorf("b (-want +got):\n%s", diff)
	}
}

func TestHistoryHasEachSecondOfAQuarterOfAnHourAndTensOfAnHour(t *testing.T) {
	h := NewHistory()
	at(h, -1, []string{"gone"}, 1)
	const seconds = 4000
	for i := range seconds {
		at(h, float64(i), []string{"here"}, 0.5)
	}
	now := noon.Add((seconds - 1) * time.Second)
	fine := h.Window("c", now, WindowQuery{Since: now.Add(-10 * time.Minute)})
	if fine.StepSeconds != api.Num(1) || len(fine.At) != 601 || len(shareOf(fine, "here")) != 601 {
		t.Errorf("of ten minutes there are %d moments, each %v s", len(fine.At), fine.StepSeconds)
	}
	coarse := h.Window("c", now, WindowQuery{Since: now.Add(-time.Hour), Fields: api.HistoryFields()})
	if n := len(coarse.At); coarse.StepSeconds != api.Num(10) || n < 359 || n > 361 {
		t.Errorf("of an hour there are %d moments, each %v s", len(coarse.At), coarse.StepSeconds)
	}
	if last := coarse.At[len(coarse.At)-1]; !last.Equal(now) {
		t.Errorf("the latest moment is of %s, want %s", last, now)
	}
	if shareOf(coarse, "gone") != nil {
		t.Error("an endpoint that left more than an hour ago is still there")
	}
	if kept := coarse.KeptSeconds.Or(0); kept < 3590 || kept > 3620 {
		t.Errorf("kept: %v s", kept)
	}
	if finest := coarse.FineSeconds.Or(0); finest != 899 {
		t.Errorf("fine: %v s", finest)
	}
}

func TestHistoryOfTenSecondsHasMeansTheHighestLoadAndTheWorstState(t *testing.T) {
	h := NewHistory()
	for i := range 1000 {
		h.Add("c", noon.Add(time.Duration(i)*time.Second), []string{"a"}, func(r *Row) {
			filledWith([]float64{0.5})(r)
			r.Set(FieldLoad, 0, float64(i%10))
			if i%10 == 7 {
				r.States()[0] = StateCode(api.EndpointOverloaded)
			}
		})
	}
	now := noon.Add(999 * time.Second)
	w := h.Window("c", now, WindowQuery{Since: noon, Fields: []string{api.FieldLoads, api.FieldStates}})
	e := w.Endpoints[0]
	if len(e.Shares) != 0 || len(e.Loads) != 100 || len(e.MaxLoads) != 100 || len(e.States) != 100 {
		t.Fatalf("%d shares, %d loads, %d highest, %d states", len(e.Shares), len(e.Loads), len(e.MaxLoads),
			len(e.States))
	}
	for i := range e.Loads {
		if math.Abs(e.Loads[i].Or(0)-4.5) > 0.01 || math.Abs(e.MaxLoads[i].Or(0)-9) > 0.01 ||
			e.States[i] != api.EndpointOverloaded {
			t.Fatalf("moment %d: mean %v, highest %v, %s", i, e.Loads[i], e.MaxLoads[i], e.States[i])
		}
	}
	if rate := w.Pool.ArrivalRate[3]; rate != api.Num(40) {
		t.Errorf("arrivals of the pool: %v", rate)
	}
}

// The rows of an hour have room whatever the number of endpoints: the oldest seconds go, and coarse rows are of more.
func TestHistoryKeepsItsBytesWhateverTheNumberOfEndpoints(t *testing.T) {
	h := NewHistory()
	h.fineLimit, h.coarseLimit = 100_000, 200_000
	addresses := make([]string, 100)
	for i := range addresses {
		addresses[i] = fmt.Sprintf("%04d", i)
	}
	const seconds = 4000
	for i := range seconds {
		at(h, float64(i), addresses, make([]float64, len(addresses))...)
		if h.fine > h.fineLimit || h.coarse > h.coarseLimit {
			t.Fatalf("%d and %d bytes", h.fine, h.coarse)
		}
	}
	w := h.Window("c", noon.Add((seconds-1)*time.Second), all)
	if fine := w.FineSeconds.Or(0); fine < 70 || fine > 80 {
		t.Errorf("of each second %v s are kept", fine)
	}
	if kept := w.KeptSeconds.Or(0); kept < 3570 || kept > 3630 || w.StepSeconds != api.Num(30) {
		t.Errorf("of %v seconds each %v s are kept", w.StepSeconds, kept)
	}
	if n := len(w.At); n < 119 || n > 121 || !w.At[n-1].Equal(noon.Add((seconds-1)*time.Second)) {
		t.Errorf("%d moments, the latest of %s", n, w.At[n-1])
	}
	var bytes int
	for _, r := range h.clusters["c"].fine.rows {
		bytes += r.bytes()
	}
	if bytes != h.fine {
		t.Errorf("the rows have %d bytes, and %d are counted", bytes, h.fine)
	}
}

// All that is kept of the past of 5,000 endpoints, measured: a process that holds their present in some 270 MiB stays
// under 300 with what the collector of garbage adds to it.
func TestThePastOfFiveThousandEndpointsTakesLessThan25MiB(t *testing.T) {
	const endpoints, hour = 5000, 3600
	addresses, unknown := make([]string, endpoints), make([]float64, endpoints)
	for i := range addresses {
		addresses[i], unknown[i] = fmt.Sprintf("10.%d.%d.%d:8000", i/62500, i/250%250, i%250), math.NaN()
	}
	slices.Sort(addresses)
	decision := func(at time.Time) api.Working {
		d := weighting.Decision{At: at, Endpoints: make([]weighting.EndpointDecision, endpoints)}
		for i := range d.Endpoints {
			d.Endpoints[i] = weighting.EndpointDecision{Address: addresses[i], Work: &weighting.EndpointWork{},
				Inputs: make([]weighting.Input, 4)}
		}
		return api.WorkingOf(d)
	}
	before := heap()
	h, w := NewHistory(), workings{}
	step := stepOf([]api.Cluster{{Working: decision(noon)}})
	for i := range hour {
		now := noon.Add(time.Duration(i) * time.Second)
		h.Add("c", now, addresses, filledWith(unknown))
		if i%int(step/time.Second) == 0 {
			w.add(decision(now), step)
		}
		if i == 60 {
			t.Logf("%.1f MiB after a minute", float64(heap()-before)/(1<<20))
		}
	}
	took := heap() - before
	t.Logf("%.1f MiB after an hour: seconds %.1f, more of the hour %.1f, and %d decisions", float64(took)/(1<<20),
		float64(h.fine)/(1<<20), float64(h.coarse)/(1<<20), len(w.kept))
	if took > 25<<20 {
		t.Errorf("it takes %d bytes", took)
	}
	window := h.Window("c", noon.Add(hour*time.Second), WindowQuery{Since: noon, Addresses: addresses[:1]})
	if kept := window.KeptSeconds.Or(0); kept < hour-100 || len(window.At) < 60 {
		t.Errorf("%v s in %d moments are kept", kept, len(window.At))
	}
	runtime.KeepAlive(h)
	runtime.KeepAlive(w)
}

// heap is what is in use after a collection.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func TestAnAnswerOfAllEndpointsNamesAThousandAndCountsTheOthers(t *testing.T) {
	h := NewHistory()
	addresses := make([]string, windowEndpoints+7)
	for i := range addresses {
		addresses[i] = fmt.Sprintf("%05d", i)
	}
	at(h, 0, addresses, make([]float64, len(addresses))...)
	w := h.Window("c", noon, all)
	if len(w.Endpoints) != windowEndpoints || w.EndpointsLeftOut != 7 {
		t.Fatalf("%d endpoints, %d left out", len(w.Endpoints), w.EndpointsLeftOut)
	}
	last := addresses[len(addresses)-1]
	if w := h.Window("c", noon, WindowQuery{Since: all.Since, Addresses: []string{last}}); len(w.Endpoints) != 1 {
		t.Errorf("one that is named is not there: %d", len(w.Endpoints))
	}
}

func TestHistoryAveragesNeighboursDownToThePointsAsked(t *testing.T) {
	h := NewHistory()
	for i := range 10 {
		at(h, float64(i), []string{"a"}, float64(i))
	}
	w := h.Window("c", noon.Add(10*time.Second), WindowQuery{Since: noon, Points: 4})
	if diff := cmp.Diff(numbers(1, 4, 7, 9), shareOf(w, "a"), nearly); diff != "" {
		t.Errorf("shares (-want +got):\n%s", diff)
	}
	want := []api.Time{api.At(noon.Add(2 * time.Second)), api.At(noon.Add(5 * time.Second)),
		api.At(noon.Add(8 * time.Second)), api.At(noon.Add(9 * time.Second))}
	if diff := cmp.Diff(want, w.At); diff != "" {
		t.Errorf("moments (-want +got):\n%s", diff)
	}
	if w.StepSeconds != api.Num(3) || w.WindowSeconds != api.Num(10) {
		t.Errorf("step %v, window %v", w.StepSeconds, w.WindowSeconds)
	}
}

func TestHistoryWindowHasTheRequestedStartAndEndpoints(t *testing.T) {
	h := NewHistory()
	for i := range 10 {
		at(h, float64(i), []string{"a", "b"}, 0.1, 0.9)
	}
	w := h.Window("c", noon, WindowQuery{Since: noon.Add(7 * time.Second), Addresses: []string{"b", "nobody", "b"}})
	if len(w.At) != 3 || len(w.Endpoints) != 1 || w.Endpoints[0].Address != "b" || len(w.Endpoints[0].Shares) != 3 {
		t.Fatalf("got %+v", w)
	}
}

func TestHistorySurvivesAClockThatIsSetBack(t *testing.T) {
	h := NewHistory()
	at(h, 3600, []string{"a"}, 0.1)
	at(h, 0, []string{"a"}, 0.2)
	if diff := cmp.Diff(numbers(0.2), shareOf(h.Window("c", noon, all), "a"), nearly); diff != "" {
		t.Fatalf("(-want +got):\n%s", diff)
	}
}

func TestHistoryTakesHostileNumbers(t *testing.T) {
	h := NewHistory()
	at(h, 0, []string{"a", "b", "c", "d"}, math.NaN(), math.Inf(1), 1e308, -3)
	w := h.Window("c", noon, all)
	want := map[string]api.Number{"a": {}, "b": {}, "c": api.Num(1e7), "d": api.Num(0)}
	for _, e := range w.Endpoints {
		if !cmp.Equal(e.Shares[0], want[e.Address], nearly) {
			t.Errorf("%s: %v", e.Address, e.Shares[0])
		}
	}
}

func TestTwoBytesKeepANumber(t *testing.T) {
	for v := 2e-7; v < 1e7; v *= 1.0371 {
		if got := float64(decodeTable()[encode(v)]); math.Abs(got/v-1) > 0.0003 {
			t.Fatalf("%g became %g", v, got)
		}
	}
	if got := decodeTable()[encode(0)]; got != 0 {
		t.Errorf("0 became %g", got)
	}
	if got := decodeTable()[encode(math.NaN())]; got == got {
		t.Errorf("unknown became %g", got)
	}
}

func TestHistoryForgetsAClusterAndIsEmptyForUnknownOnes(t *testing.T) {
	h := NewHistory()
	at(h, 0, []string{"a"}, 1)
	h.keepOnly(func(name string) bool { return name == "other" })
	if h.fine != 0 || h.coarse != 0 {
		t.Errorf("%d and %d bytes are left", h.fine, h.coarse)
	}
	for _, name := range []string{"c", "never"} {
		if w := h.Window(name, noon, all); len(w.At) != 0 || w.At == nil || w.Endpoints == nil ||
			w.StepSeconds != api.Num(1) {
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
				h.Add(fmt.Sprint(c%2), noon.Add(time.Duration(i)*time.Second), []string{"a"}, filledWith([]float64{1}))
				h.Window(fmt.Sprint(c%2), noon, all)
			}
		})
	}
	wg.Wait()
}

// BenchmarkHistoryWritesASecond is of 1,000 endpoints.
func BenchmarkHistoryWritesASecond(b *testing.B) {
	h := NewHistory()
	addresses := make([]string, 1000)
	values := make([]float64, len(addresses))
	for i := range addresses {
		addresses[i], values[i] = fmt.Sprintf("10.0.%d.%d:8000", i/250, i%250), float64(i%7)/7
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		h.Add("c", noon.Add(time.Duration(i)*time.Second), addresses, filledWith(values))
	}
}
