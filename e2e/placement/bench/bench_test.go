package bench

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"steelyard/e2e/placement/fleet"
	"steelyard/e2e/rig/load"
	"steelyard/e2e/rig/proc/proctest"
)

func TestRowsRunTogetherAsFarAsTheMachineCarriesThem(t *testing.T) {
	tests := []struct {
		name    string
		service time.Duration
		rows    int
		groups  [][]int
		blocks  int
		warmUp  int // requests of a block
		counted int
	}{
		{"all at once", time.Second, 9, [][]int{{0, 1, 2, 3, 4, 5, 6, 7, 8}}, 1, 640, 5000},
		{"in groups", 250 * time.Millisecond, 9, [][]int{{0, 3, 6}, {1, 4, 7}, {2, 5, 8}}, 4, 640, 1250},
		{"one by one", 50 * time.Millisecond, 4, [][]int{{0}, {1}, {2}, {3}}, 4, 640, 1250},
		{"one row", 50 * time.Millisecond, 1, [][]int{{0}}, 1, 640, 5000},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := Default().schedule(tt.service, tt.rows)
			if !slices.EqualFunc(got.groups, tt.groups, slices.Equal) {
				t.Errorf("groups %v, want %v", got.groups, tt.groups)
			}
			if got.blocks != tt.blocks || got.warmUp != tt.warmUp || got.counted != tt.counted {
				t.Errorf("%d blocks of %d and %d requests, want %d of %d and %d", got.blocks, got.warmUp, got.counted, tt.blocks, tt.warmUp, tt.counted)
			}
		})
	}
}

func TestAShortBenchKeepsItsGroupsBelowTheLimit(t *testing.T) {
	for rows := 1; rows < 12; rows++ {
		s := Default().schedule(250*time.Millisecond, rows)
		seen := 0
		for _, g := range s.groups {
			if at := float64(len(g)) * s.rate; at > Default().Together {
				t.Errorf("of %d rows %d run at once: %v requests a second", rows, len(g), at)
			}
			seen += len(g)
		}
		if seen != rows {
			t.Errorf("of %d rows %d run", rows, seen)
		}
	}
}

func TestGroupsTakeTurnsAtBeingFirst(t *testing.T) {
	s := Default().schedule(250*time.Millisecond, 3*3)
	for block, want := range [][]int{{0, 1, 2}, {1, 2, 0}, {2, 0, 1}, {0, 1, 2}} {
		var got []int
		for _, g := range s.turn(block) {
			got = append(got, g[0])
		}
		if !slices.Equal(got, want) {
			t.Errorf("in block %d the groups begin with rows %v, want %v", block, got, want)
		}
	}
}

func TestFastServiceRunsOnlyTheRowsThatCanFollow(t *testing.T) {
	o := Default()
	if got := len(o.policiesAt(time.Second)); got != len(fleet.Policies()) {
		t.Errorf("%d rows at 1 s, want all", got)
	}
	var names []string
	for _, p := range o.policiesAt(50 * time.Millisecond) {
		names = append(names, p.Name)
	}
	if !slices.Equal(names, fastRows) {
		t.Errorf("rows %v at 50 ms, want %v", names, fastRows)
	}
	o.Policies = slices.DeleteFunc(o.Policies, func(p fleet.Policy) bool { return p.Name != "steelyard_lrs" })
	if got := o.policiesAt(50 * time.Millisecond); len(got) != 1 {
		t.Errorf("a row that was asked for does not run: %v", got)
	}
}

func TestTheWindowHoldsTheCountedRequests(t *testing.T) {
	plan := load.Plan{Targets: []string{"http://any/"}, Process: load.Fixed, Rate: 100, Count: 50}
	before := time.Now()
	w, err := windowOf(plan, 20)
	if err != nil {
		t.Fatal(err)
	}
	if got := w.to.Sub(w.from); got != 290*time.Millisecond { // from the 21st to the 50th
		t.Errorf("30 requests at 10 ms take %v, want 290ms", got)
	}
	if got := w.from.Sub(before); got < 210*time.Millisecond {
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
		{func(o *Options) { o.Policies = nil }, "no rows"},
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

// TestTheBenchMeasuresRealRows is a bench as small as it can be. It asserts that
// everything was measured, not how well requests were placed: two hundred
// requests on a shared machine cannot tell.
func TestTheBenchMeasuresRealRows(t *testing.T) {
	o := Default()
	o.Size = fleet.Size{Envoys: 2, Servers: 4, Slots: 1, Load: 0.7}
	o.Policies = []fleet.Policy{
		{Name: "steelyard_access_log", Title: "Steelyard", Control: &fleet.Control{Scrape: 250 * time.Millisecond}},
		{Name: "shortest_queue", Title: "bound", Direct: true},
	}
	o.Services, o.Requests, o.WarmUp, o.Blocks = []time.Duration{40 * time.Millisecond}, 200, 5, 2
	o.Together = 100 // the rows take turns
	o.Place.Dir = proctest.Dir(t)
	d, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
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
			t.Errorf("%s: lateness at most %v, added latency %v; want some of both", r.Policy, r.LatenessMax, r.AddedP50)
		}
	}
	steelyard, bound := d.Rows[0], d.Rows[1]
	if !(steelyard.EnvoyCPU > 0) || !(steelyard.ControlRSS > 1<<20) || !(steelyard.Pushes > 0) {
		t.Errorf("the row with Steelyard cost %v cores an Envoy, %v bytes and %v pushes a second; want some of each", steelyard.EnvoyCPU, steelyard.ControlRSS, steelyard.Pushes)
	}
	if !math.IsNaN(float64(bound.EnvoyCPU)) || !math.IsNaN(float64(bound.ControlCPU)) {
		t.Errorf("the row without Envoys says that they cost %v", bound.EnvoyCPU)
	}
	if busy := float64(d.MachineBusy["40ms"]); !(busy > 0 && busy <= 1) {
		t.Errorf("the machine was busy for %v of the time", busy)
	}
}
