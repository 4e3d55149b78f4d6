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
	"steelyard/controlplane/admin/history"
	"steelyard/internal/api"
	"steelyard/weighting"
)

// thousand is a source of one cluster of 1,000 endpoints, whose loads change with time. Two of a hundred are in
// trouble.
type thousand struct{ started time.Time }

func (s thousand) Clusters() []api.Cluster {
	c, _ := s.Cluster("wide")
	return []api.Cluster{c}
}

func (s thousand) Cluster(name string) (api.Cluster, bool) {
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
	decision, endpoints := api.FromDecision(d, now)
	for i := range endpoints {
		endpoints[i].Requests = api.Num(float64(4 * (1 + now.Unix() - s.started.Unix())))
	}
	return api.Cluster{Name: "wide", Engine: "triton", Ready: true, Decision: decision, Endpoints: endpoints},
		name == "wide"
}

func (s thousand) Clients() []api.Client { return nil }

func (s thousand) Elsewhere() []api.OtherEnvoy { return nil }

func (s thousand) Matrix(string) (api.Matrix, bool) { return api.Matrix{}, false }

func (s thousand) Shadow(string) (api.Shadow, bool) { return api.Shadow{}, false }

func (s thousand) Status() api.Status {
	return api.Status{StartedAt: api.At(s.started), ConfigGeneration: 1}
}

// untouched is an Operator of a process in which nobody changed anything.
type untouched struct{ admin.Operator }

func (untouched) Overrides() []api.Override { return nil }

// scrollTimes are the milliseconds of frames, sorted, while the page scrolls down by almost two rows in each.
const scrollTimes = `new Promise((done) => {
	scrollTo(0, 0);
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

// contention is the 95th percentile of how long a computation of some ten milliseconds takes, as a ratio to the
// shortest: near 1 where the browser has a core for itself.
const contention = `(() => {
	const times = [];
	for (let k = 0; k < 60; k++) {
		const at = performance.now();
		let x = 0;
		for (let i = 0; i < 5e6; i++) x = (x * 31 + i) | 0;
		times.push(performance.now() - at + (x === 1));
	}
	times.sort((a, b) => a - b);
	return times[57] / times[0];
})()`

// scrollsSmoothly: in one of three runs the median frame has to be in time, and in one 95 of 100. On a machine that
// does other things, which plain computation shows, only the median is promised.
func scrollsSmoothly(p *tab, promised float64) {
	p.t.Helper()
	median, best := math.Inf(1), math.Inf(1)
	for range 3 {
		times := eval[[]float64](p, scrollTimes)
		p.t.Logf("frames while scrolling: median %.0f ms, p95 %.0f, longest %.0f", times[50], times[95], times[99])
		median = min(median, times[50])
		if best = min(best, times[95]); best <= promised {
			return
		}
	}
	if median > promised {
		p.t.Errorf("in the best of three runs, the median frame took %.0f ms, want at most %.0f", median, promised)
	}
	if slower := eval[float64](p, contention); slower > 1.5 {
		p.t.Logf("p95 is not promised: other programs make a computation take up to %.1f times as long", slower)
		return
	}
	p.t.Errorf("in the best of three runs, one frame of twenty took %.0f ms or more, want at most %.0f", best, promised)
}

// TestAThousandEndpoints: frames while scrolling, filter and sort.
func TestAThousandEndpoints(t *testing.T) {
	t.Parallel()
	const promised = 100.0 // milliseconds
	source := thousand{time.Now()}
	recorder := history.NewRecorder(history.RecorderOptions{Source: source})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- recorder.Run(ctx) }()
	defer func() { stop(); <-done }()
	server := httptest.NewServer(admin.New(admin.Options{Source: source, Recorder: recorder,
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
	scrollsSmoothly(p, promised)
	if y := eval[float64](p, "scrollY"); y < 3000 {
		t.Errorf("it scrolled to %.0f px only", y)
	}
	for what, script := range map[string]string{
		"sorting by load": "document.querySelectorAll('#endpoints th button')[3].click()",
		"filtering": `{ const f = document.getElementById('filter'); f.value = '10.1.2.';
			f.dispatchEvent(new Event('input', { bubbles: true })); }`,
	} {
		// The quickest of five: other programs may have the processor in any one of them.
		took := eval[float64](p, "Math.min(...[1, 2, 3, 4, 5].map(() => { const at = performance.now(); "+script+
			"; return performance.now() - at; }))")
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
