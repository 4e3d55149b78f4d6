package bench

import (
	"slices"
	"testing"
	"time"

	"steelyard/e2e/bench/placement/fleet"
	"steelyard/e2e/rig/proc/proctest"
)

func TestTheKneeHasARowForEachValue(t *testing.T) {
	o, sweeps := Knee(Default())
	var names []string
	for _, p := range o.Policies {
		names = append(names, p.Name)
	}
	for _, s := range sweeps {
		for _, name := range s.Policies {
			if !slices.Contains(names, name) {
				t.Errorf("the sweep %s has a row %s that does not run", s.Title, name)
			}
		}
	}
	slices.Sort(names)
	if unique := slices.Compact(slices.Clone(names)); len(unique) != len(names) {
		t.Errorf("rows of one name: %v", names)
	}
	if !slices.Contains(names, "least_request") || !slices.Contains(names, "shortest_queue") {
		t.Errorf("rows %v, want both ends of the scale among them", names)
	}
}

func TestPhasesFollowEachOther(t *testing.T) {
	o := DefaultOverload()
	phases := o.phases()
	for i := 1; i < len(phases); i++ {
		if end := phases[i-1].from + phases[i-1].lasts; end != phases[i].from {
			t.Errorf("phase %d ends at %v and the next begins at %v", i-1, end, phases[i].from)
		}
	}
	if phases[1].from != 0 || phases[1].load != o.Load || phases[0].load != o.Calm || phases[2].load != o.Calm {
		t.Errorf("phases %+v, want the overload at 0 and calm around it", phases)
	}
}

// As small as it can be: everything is measured; whether the pool is protected
// is for a longer run, and for the tests of the law.
func TestAnOverloadOfRealRows(t *testing.T) {
	o := DefaultOverload()
	o.Size = fleet.Size{Envoys: 1, Servers: 2, Slots: 1}
	o.Service, o.Target = 100*time.Millisecond, 300*time.Millisecond
	o.Before, o.During, o.After = 1500*time.Millisecond, 3*time.Second, 1500*time.Millisecond
	o.Place.Dir = proctest.Dir(t)
	d, err := o.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(d.Rows) != 2 {
		t.Fatalf("%d rows, want one with shedding and one without", len(d.Rows))
	}
	for _, r := range d.Rows {
		if r.Requests < 60 || r.Requests != r.Accepted+r.Dropped+r.Errors || r.Errors > 0 {
			t.Errorf("%s: %d requests are %d accepted, %d dropped and %d errors; want some 120 and no errors", r.Policy,
				r.Requests, r.Accepted, r.Dropped, r.Errors)
		}
		if !(r.Goodput > 0.2) || !(r.WaitP99 > 0) || len(r.Timeline) < 5 {
			t.Errorf("%s: goodput %v, waits of %v, a timeline of %d seconds", r.Policy, r.Goodput, r.WaitP99,
				len(r.Timeline))
		}
	}
	if without := d.Rows[1]; without.Dropped > 0 {
		t.Errorf("without shedding %d requests were dropped", without.Dropped)
	}
}
