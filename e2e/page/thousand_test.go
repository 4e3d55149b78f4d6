package page

import (
	"context"
	"fmt"
	"math"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"steelyard/controlplane/admin"
	"steelyard/controlplane/view"
	"steelyard/weighting"
)

// thousand is a source of one cluster of 1,000 endpoints, whose loads change with time. Two of a hundred are in
// trouble.
type thousand struct{ started time.Time }

func (s thousand) Clusters() []view.Cluster {
	c, _ := s.Cluster("wide")
	return []view.Cluster{c}
}

func (s thousand) Cluster(name string) (view.Cluster, bool) {
	const n = 1000
	now := time.Now()
	d := weighting.Decision{At: now, ArrivalRate: 4000, ArrivalRateSource: weighting.RateIssued, Arrivals: 110,
		Horizon: 28 * time.Millisecond, WaterLevel: 0.6, MedianLoad: 0.7}
	for i := range n {
		load := 4 * (0.7 + 0.4*math.Sin(float64(now.UnixMilli())/5e3+float64(i)))
		e := weighting.EndpointDecision{
			Address: fmt.Sprintf("10.1.%d.%d:8000", i/250, i%250+1), Zone: string(rune('a' + i%3)), Share: 1.0 / n,
			Reason: weighting.ReasonFill, Load: load, LoadSource: weighting.LoadFused, Slots: 4, Capacity: 4,
			SlotsSource: weighting.CapacityLearned, RelativeSpeed: 1, Ramp: 1, CompletionRate: 4,
			Inputs: []weighting.Input{{Field: weighting.FieldInFlight, Value: math.Round(load), Age: time.Millisecond,
				State: weighting.StateFresh}},
		}
		switch i % 100 {
		case 17:
			e.Reason = weighting.ReasonNeutral
		case 63:
			e.Overloaded, e.OverloadReason = true, "queue 5.2 per slot >= 4"
		}
		d.Endpoints = append(d.Endpoints, e)
	}
	slices.SortFunc(d.Endpoints, func(a, b weighting.EndpointDecision) int {
		return strings.Compare(a.Address, b.Address)
	})
	decision, endpoints := view.FromDecision(d, now)
	for i := range endpoints {
		endpoints[i].Requests = view.Num(float64(4 * (1 + now.Unix() - s.started.Unix())))
	}
	return view.Cluster{Name: "wide", Engine: "triton", Ready: true, Decision: decision, Endpoints: endpoints},
		name == "wide"
}

func (s thousand) Clients() []admin.Client { return nil }

func (s thousand) Matrix(string) (view.Matrix, bool) { return view.Matrix{}, false }

func (s thousand) Status() admin.Status {
	return admin.Status{StartedAt: view.At(s.started), ConfigGeneration: 1}
}

// untouched is an Operator of a process in which nobody changed anything.
type untouched struct{ admin.Operator }

func (untouched) Overrides() []view.Override { return nil }

// scrollTimes are the milliseconds of frames, sorted, while the page scrolls down by almost two rows in each.
const scrollTimes = `new Promise((done) => {
	const times = [];
	let last = performance.now();
	const next = () => {
		const at = performance.now();
		times.push(at - last);
		last = at;
		scrollBy(0, 60);
		if (times.length < 100) requestAnimationFrame(next);
		else done(times.sort((a, b) => a - b));
	};
	requestAnimationFrame(next);
})`

// TestAThousandEndpoints: frames while scrolling, filter and sort. The median is promised; on a machine that does
// other things a single frame may take any time.
func TestAThousandEndpoints(t *testing.T) {
	const promised = 100.0 // milliseconds
	source := thousand{time.Now()}
	history := admin.NewHistory()
	recorder := admin.NewRecorder(admin.RecorderOptions{Source: source, History: history})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- recorder.Run(ctx) }()
	defer func() { stop(); <-done }()
	server := httptest.NewServer(admin.New(admin.Options{Source: source, History: history, Recorder: recorder,
		Operator: untouched{}}))
	defer func() { server.CloseClientConnections(); server.Close() }()
	b := newBrowser(t)
	p := b.tab(t, 1280, 900)
	p.open(server.URL + "/#/c/wide?range=5m")
	p.until("there are rows with strips", `document.querySelectorAll('tr[data-row]').length > 10 &&
		document.querySelector('td.strip canvas')`)
	if n := eval[int](p, "document.querySelectorAll('tr[data-row]').length"); n > 100 {
		t.Errorf("%d rows are elements, want only those on the screen", n)
	}
	first := eval[string](p, "document.querySelector('tr[data-row] .state').textContent")
	if first != "blind" {
		t.Errorf("the first row is %q, want the worst state", first)
	}
	p.shot("thousand-1280-light")
	times := eval[[]float64](p, scrollTimes)
	t.Logf("frames while scrolling: median %.0f ms, p95 %.0f ms, longest %.0f ms", times[50], times[95], times[99])
	if times[50] > promised {
		t.Errorf("the median frame took %.0f ms, want at most %.0f", times[50], promised)
	}
	if y := eval[float64](p, "scrollY"); y < 3000 {
		t.Errorf("it scrolled to %.0f px only", y)
	}
	for what, script := range map[string]string{
		"sorting by load": "document.querySelectorAll('#endpoints th button')[3].click()",
		"filtering": `{ const f = document.getElementById('filter'); f.value = '10.1.2.';
			f.dispatchEvent(new Event('input', { bubbles: true })); }`,
	} {
		took := eval[float64](p, "(() => { const at = performance.now(); "+script+
			"; return performance.now() - at; })()")
		t.Logf("%s: %.0f ms", what, took)
		if took > 5*promised {
			t.Errorf("%s took %.0f ms", what, took)
		}
	}
	p.until("250 rows are left", "document.getElementById('endpoints').getAttribute('aria-rowcount') === '251'")
	p.resize(390, 844)
	p.until("a phone has rows", "document.querySelectorAll('tr[data-row]').length > 4")
	if over := eval[int](p, "document.documentElement.scrollWidth - innerWidth"); over > 0 {
		t.Errorf("%d px too wide on a phone: %s", over, eval[string](p, tooWide))
	}
	p.noErrors()
	p.leave()
}
