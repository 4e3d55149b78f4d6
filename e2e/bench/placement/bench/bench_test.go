package bench

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"steelyard/e2e/bench/placement/fleet"
	"steelyard/e2e/bench/placement/report"
	"steelyard/e2e/rig/load"
	"steelyard/e2e/rig/proc/proctest"
)

// named returns the names of the rows of each group.
func named(policies []fleet.Policy, groups [][]int) [][]string {
	out := make([][]string, len(groups))
	for g, members := range groups {
		for _, i := range members {
			out[g] = append(out[g], policies[i].Name)
		}
	}
	return out
}

func TestRowsAreMeasuredInGroupsThatEachHaveTheReferences(t *testing.T) {
	tests := []struct {
		name  string
		rows  []string // nil: all
		group int
		want  [][]string
	}{
		{"all", nil, 3, [][]string{
			{"least_request", "steelyard_scrape_1s", "steelyard_scrape_250ms", "steelyard_lrs", "shortest_queue"},
			{"least_request", "round_robin", "cswrr", "steelyard_redis", "steelyard_access_log", "shortest_queue"},
		}},
		{"all on a large machine", nil, 5, [][]string{names(fleet.Policies())}},
		{"one by one", []string{"steelyard_lrs", "shortest_queue", "steelyard_redis"}, 1, [][]string{
			{"steelyard_lrs", "shortest_queue"}, {"shortest_queue", "steelyard_redis"},
		}},
		{"none with Steelyard", []string{"least_request", "round_robin"}, 3,
			[][]string{{"least_request", "round_robin"}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := Default()
			o.Group = tt.group
			for _, name := range tt.rows {
				p, err := fleet.Named(name)
				if err != nil {
					t.Fatal(err)
				}
				o.Policies = append(o.Policies, p)
			}
			policies := o.policiesAt(time.Second)
			if diff := cmp.Diff(tt.want, named(policies, o.groups(policies))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func names(policies []fleet.Policy) []string {
	var all []string
	for _, p := range policies {
		all = append(all, p.Name)
	}
	return all
}

func TestRowsOfAGroupTakeTurnsWhereTheMachineDoesNotCarryThem(t *testing.T) {
	tests := []struct {
		name    string
		service time.Duration
		rows    int
		turns   [][]int
		blocks  int
		warmUp  int // requests of a block
		counted int
	}{
		{"all at once", time.Second, 6, [][]int{{0, 1, 2, 3, 4, 5}}, 1, 640, 8000},
		{"just so", 250 * time.Millisecond, 4, [][]int{{0, 1, 2, 3}}, 1, 640, 8000},
		{"in turns", 250 * time.Millisecond, 5, [][]int{{0, 2, 4}, {1, 3}}, 4, 640, 2000},
		{"one by one", 50 * time.Millisecond, 4, [][]int{{0}, {1}, {2}, {3}}, 4, 640, 2000},
		{"one row", 50 * time.Millisecond, 1, [][]int{{0}}, 1, 640, 8000},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := Default().schedule(tt.service, tt.rows)
			if !slices.EqualFunc(got.turns, tt.turns, slices.Equal) {
				t.Errorf("turns %v, want %v", got.turns, tt.turns)
			}
			if got.blocks != tt.blocks || got.warmUp != tt.warmUp || got.counted != tt.counted {
				t.Errorf("%d blocks of %d and %d requests, want %d of %d and %d", got.blocks, got.warmUp, got.counted,
					tt.blocks, tt.warmUp, tt.counted)
			}
		})
	}
}

func TestNoTurnIsAboveTheLimit(t *testing.T) {
	for rows := 1; rows < 12; rows++ {
		s := Default().schedule(250*time.Millisecond, rows)
		seen := 0
		for _, turn := range s.turns {
			if at := float64(len(turn)) * s.rate; at > Default().Together {
				t.Errorf("of %d rows %d run at once: %v requests a second", rows, len(turn), at)
			}
			seen += len(turn)
		}
		if seen != rows {
			t.Errorf("of %d rows %d run", rows, seen)
		}
	}
}

func TestTheTurnsTakeTurnsAtBeingFirst(t *testing.T) {
	s := Default().schedule(250*time.Millisecond, 3*4)
	for block, want := range [][]int{{0, 1, 2}, {1, 2, 0}, {2, 0, 1}, {0, 1, 2}} {
		var got []int
		for _, turn := range s.order(block) {
			got = append(got, turn[0])
		}
		if !slices.Equal(got, want) {
			t.Errorf("in block %d the turns begin with rows %v, want %v", block, got, want)
		}
	}
}

func TestTheBenchTakesTheTimeThatItPromises(t *testing.T) {
	for name, tt := range map[string]struct {
		options Options
		atMost  time.Duration
	}{
		"default": {Default(), 25 * time.Minute},
		"quick":   {Quick(), 3*time.Minute + 10*time.Second},
	} {
		// What a group takes besides its requests, measured on two cores: starts of up
		// to 50 Envoys, and the last answers.
		const around = 15 * time.Second
		var took time.Duration
		for _, service := range tt.options.Services {
			for _, members := range tt.options.groups(tt.options.policiesAt(service)) {
				took += around + tt.options.schedule(service, len(members)).lasts()
			}
		}
		if took > tt.atMost {
			t.Errorf("%s takes %v, want at most %v", name, took, tt.atMost)
		}
	}
}

func TestShortServicesHaveTheRowsOfTheTargets(t *testing.T) {
	want := []string{"least_request", "round_robin", "steelyard_access_log", "shortest_queue"}
	if got := names(DefaultPolicies(50 * time.Millisecond)); !slices.Equal(got, want) {
		t.Errorf("rows %v at 50 ms, want %v", got, want)
	}
	o := Default()
	o.Policies = []fleet.Policy{{Name: "steelyard_lrs"}}
	if got := names(o.policiesAt(50 * time.Millisecond)); !slices.Equal(got, []string{"steelyard_lrs"}) {
		t.Errorf("of a row that was asked for, these run: %v", got)
	}
}

func TestTheWindowHoldsTheCountedRequests(t *testing.T) {
	plan := load.Plan{Targets: []string{"http://any/"}, Process: load.Fixed, Rate: 100, Count: 50}
	before := time.Now()
	w, err := WindowOf(plan, 20)
	if err != nil {
		t.Fatal(err)
	}
	if got := w.To.Sub(w.From); got != 290*time.Millisecond { // from the 21st to the 50th
		t.Errorf("30 requests at 10 ms take %v, want 290ms", got)
	}
	if got := w.From.Sub(before); got < 210*time.Millisecond {
		t.Errorf("the window begins after %v, want 210ms from now", got)
	}
}

func TestABenchThatMakesNoSenseIsRefused(t *testing.T) {
	tests := []struct {
		change func(*Options)
		want   string
	}{
		{func(o *Options) { o.Size.Envoys = 0 }, "0 Envoys"},
		{func(o *Options) { o.Size.Slow = 21 }, "21 slow servers"},
		{func(o *Options) { o.Size.Load = math.NaN() }, "load NaN"},
		{func(o *Options) { o.Group = 0 }, "0 rows with Steelyard"},
		{func(o *Options) { o.Attempts = 0 }, "0 attempts"},
		{func(o *Options) { o.Services = nil }, "service times"},
		{func(o *Options) { o.Services = []time.Duration{0} }, "service times"},
		{func(o *Options) { o.Requests = 0 }, "0 requests"},
		{func(o *Options) { o.Runs = 0 }, "0 runs"},
		{func(o *Options) { o.Together = 0 }, "at once 0"},
	}
	for _, tt := range tests {
		o := Default()
		tt.change(&o)
		if _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("error %v, want one with %q", err, tt.want)
		}
	}
}

func TestARequestThatWaitsInItsEnvoyHasWaitedForAllButTheService(t *testing.T) {
	answered := load.Sample{Status: 200, Latency: 90 * time.Millisecond, Wait: 0.01, Service: 0.05}
	for _, tt := range []struct {
		name        string
		sample      load.Sample
		queued      bool
		wait, added float64
		errors      int
	}{
		{"at the server", answered, false, 0.01, 0.03, 0},
		{"in its Envoy", answered, true, 0.04, math.NaN(), 0},
		{"refused", load.Sample{Status: 503, Latency: time.Second, Wait: math.NaN(), Service: math.NaN()}, true,
			math.NaN(), math.NaN(), 1},
	} {
		var m report.Measurement
		take(&m, tt.sample, tt.queued)
		near := func(a, b float64) bool { return math.IsNaN(a) && math.IsNaN(b) || math.Abs(a-b) < 1e-9 }
		if !near(m.Waits[0], tt.wait) || !near(m.Added[0], tt.added) || m.Errors != tt.errors {
			t.Errorf("%s: wait %v, added %v, %d errors; want %v, %v, %d", tt.name, m.Waits, m.Added, m.Errors, tt.wait,
				tt.added, tt.errors)
		}
		if want := map[int]string{1: tt.sample.Failure()}[tt.errors]; m.FirstError != want {
			t.Errorf("%s: the first failed with %q, want %q", tt.name, m.FirstError, want)
		}
	}
}

// TestTheBenchMeasuresRealRows is a bench as small as it can be. It asserts that
// everything was measured, not how well requests were placed: two hundred
// requests on a shared machine cannot show.
func TestTheBenchMeasuresRealRows(t *testing.T) {
	o := Default()
	o.Size = fleet.Size{Envoys: 2, Servers: 4, Slots: 1, Load: 0.7}
	o.Policies = []fleet.Policy{
		{Name: "steelyard_access_log", Title: "Steelyard", Control: &fleet.Control{Scrape: 250 * time.Millisecond}},
		{Name: "shortest_queue", Title: "bound", Direct: true},
	}
	o.Services, o.Requests, o.WarmUp, o.Blocks = []time.Duration{40 * time.Millisecond}, 200, 5, 2
	o.Together = 100                 // the rows take turns
	o.Lateness, o.Attempts = 1e-9, 2 // no generator is that punctual
	o.Place.Dir = proctest.Dir(t)
	d, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if d.Valid || len(d.Again) != 1 {
		t.Errorf("valid %t, measured again: %q; want a second attempt that was late too", d.Valid, d.Again)
	}
	if len(d.Rows) != 2 || len(d.Runs) != 1 || d.Conditions.Envoy == "" {
		t.Fatalf("%d rows, %d runs, Envoy %q; want 2, 1 and a version", len(d.Rows), len(d.Runs), d.Conditions.Envoy)
	}
	for _, r := range d.Rows {
		if r.Requests != 200 || r.Errors != 0 {
			t.Errorf("%s: %d requests with %d errors, want 200 and none", r.Policy, r.Requests, r.Errors)
		}
		if !(r.WaitP99 > 0) || !(r.WaitP50 <= r.WaitP99) || !(r.WaitP99CI[0] <= r.WaitP99CI[1]) {
			t.Errorf("%s: waits p50 %v, p99 %v in %v", r.Policy, r.WaitP50, r.WaitP99, r.WaitP99CI)
		}
		if !(r.LatenessMax > 0) || !(r.AddedP50 > 0) {
			t.Errorf("%s: lateness at most %v, added latency %v; want some of both", r.Policy, r.LatenessMax,
				r.AddedP50)
		}
	}
	steelyard, bound := d.Rows[0], d.Rows[1]
	if !(steelyard.EnvoyCPU > 0) || !(steelyard.ControlRSS > 1<<20) || !(steelyard.Pushes > 0) {
		t.Errorf("the row with Steelyard cost %v cores an Envoy, %v bytes and %v pushes a second; want some of each",
			steelyard.EnvoyCPU, steelyard.ControlRSS, steelyard.Pushes)
	}
	if !math.IsNaN(float64(bound.EnvoyCPU)) || !math.IsNaN(float64(bound.ControlCPU)) {
		t.Errorf("the row without Envoys says that they cost %v", bound.EnvoyCPU)
	}
	if busy := float64(d.MachineBusy["40ms"]); !(busy > 0 && busy <= 1) {
		t.Errorf("the machine was busy for %v of the time", busy)
	}
}
