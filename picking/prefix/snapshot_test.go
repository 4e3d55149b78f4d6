package prefix

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// copied takes a snapshot of a table into another one.
func copied(from, to *Table, most int, now time.Time) {
	for _, l := range from.Snapshot(most, now) {
		to.Take(&l, Others, now)
	}
}

// order are the hashes of a table, the oldest first, of those that others learned.
func order(t *Table) (hashes []uint64) {
	for i := t.order[Others].oldest; i != none; i = t.routes[i].newer {
		hashes = append(hashes, t.steps[t.routes[i].step].hash)
	}
	return hashes
}

func TestASnapshotHasTheNewestRoutesFirst(t *testing.T) {
	table := NewTable(Limits{})
	table.Learn(of(1, 2), "a", Own, start)
	table.Learn(of(3), "b", Others, start.Add(time.Minute))
	table.Learn(of(4, 5), "a", Own, start.Add(2*time.Minute))
	now := start.Add(3 * time.Minute)
	all := []Learned{
		{Address: "a", Hashes: []uint64{4, 5}, Kept: true, Age: time.Minute},
		{Address: "b", Hashes: []uint64{3}, Kept: true, Age: 2 * time.Minute},
		{Address: "a", Hashes: []uint64{1, 2}, Kept: true, Age: 3 * time.Minute}}
	if diff := cmp.Diff(all, table.Snapshot(100, now)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	all[1].Hashes, all[2].Hashes = []uint64{3}, []uint64{1}
	if diff := cmp.Diff(all, table.Snapshot(4, now)); diff != "" {
		t.Errorf("of four routes: (-want +got):\n%s", diff)
	}
	table.Remove("a")
	if diff := cmp.Diff(all[1:2], table.Snapshot(100, now)); diff != "" {
		t.Errorf("one has left: (-want +got):\n%s", diff)
	}
	if got := NewTable(Limits{}).Snapshot(100, now); got != nil {
		t.Errorf("of an empty table: %+v", got)
	}
}

func TestManyRoutesOfOneMomentComeInBoundedParts(t *testing.T) {
	table := NewTable(Limits{})
	for i := range uint64(300) {
		table.Learn(of(i), "a", Own, start)
	}
	var sizes []int
	for _, l := range table.Snapshot(1000, start) {
		sizes = append(sizes, len(l.Hashes))
	}
	if want := []int{MaxSteps, MaxSteps, 300 - 2*MaxSteps}; !slices.Equal(sizes, want) {
		t.Errorf("parts of %v, want %v", sizes, want)
	}
}

// TestWhatWasKeptIsForgottenBeforeWhatIsLearned, in the order of the table that it comes from.
func TestWhatWasKeptIsForgottenBeforeWhatIsLearned(t *testing.T) {
	from, to := NewTable(Limits{}), NewTable(Limits{})
	from.Learn(of(1, 2), "a", Own, start)
	from.Learn(of(3, 4), "b", Own, start.Add(time.Minute))
	now := start.Add(2 * time.Minute)
	to.Learn(of(9), "a", Others, now)
	copied(from, to, 100, now)
	want := []uint64{2, 1, 4, 3, 9}
	if got := order(to); !slices.Equal(got, want) {
		t.Errorf("the oldest first: %v, want %v", got, want)
	}
	copied(from, to, 100, now)
	if got := order(to); !slices.Equal(got, want) {
		t.Errorf("after the same once more: %v, want %v", got, want)
	}
	wantMatches(t, "a prompt", matches(to, of(3, 4, 5), now), "b:2")
}

func TestWhatThereIsNoRoomForIsNotTakenFromASnapshot(t *testing.T) {
	from, to := NewTable(Limits{}), NewTable(Limits{Routes: 3})
	from.Learn(of(1, 2, 3, 4), "a", Own, start)
	to.Learn(of(9), "a", Own, start)
	copied(from, to, 100, start)
	if got, want := order(to), []uint64{2, 1}; !slices.Equal(got, want) {
		t.Errorf("the oldest first: %v, want %v", got, want)
	}
	if s := to.Stats(); s != (Stats{Own: 1, Others: 2}) {
		t.Errorf("%+v", s)
	}
}

// TestACopiedRouteExpiresWithItsOriginal, however often it is copied.
func TestACopiedRouteExpiresWithItsOriginal(t *testing.T) {
	tables := []*Table{NewTable(Limits{}), NewTable(Limits{}), NewTable(Limits{})}
	tables[0].Learn(of(1), "a", Own, start)
	copied(tables[0], tables[1], 100, start.Add(20*time.Minute))
	copied(tables[1], tables[2], 100, start.Add(40*time.Minute))
	for i, table := range tables {
		wantMatches(t, fmt.Sprint("table ", i), matches(table, of(1), start.Add(59*time.Minute)), "a:1")
		wantMatches(t, fmt.Sprint("table ", i, ", an hour after the start"), matches(table, of(1),
			start.Add(DefaultTTL+2*time.Second)))
	}
}

func TestALostRouteIsForgotten(t *testing.T) {
	table := NewTable(Limits{})
	table.Take(&Learned{Address: "a", Hashes: []uint64{1, 2}}, Others, start)
	table.Take(&Learned{Address: "b", Hashes: []uint64{1}}, Others, start)
	wantMatches(t, "learned", matches(table, of(1, 2), start), "a:2", "b:1")
	table.Take(&Learned{Address: "a"}, Others, start)
	wantMatches(t, "lost by a", matches(table, of(1, 2), start), "b:1")
	table.Take(&Learned{Address: "a", Hashes: make([]uint64, MaxSteps+1)}, Others, start)
	wantMatches(t, "more steps than a prompt has", matches(table, of(0), start))
}

func TestRoutesAreCountedByAge(t *testing.T) {
	table := NewTable(Limits{})
	table.Learn(of(1, 2), "a", Own, start)
	table.Learn(of(3), "a", Others, start.Add(50*time.Minute))
	table.Learn(of(4), "a", Own, start.Add(55*time.Minute))
	now := start.Add(55 * time.Minute)
	if got, want := table.Ages(now, time.Minute, 10*time.Minute), []int{1, 1, 2}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestOnlyRoutesOfTheEndpointsAreKept(t *testing.T) {
	table := NewTable(Limits{})
	set := func(endpoints map[string]int) []string { return table.SetEndpoints(maps.All(endpoints)) }
	table.Learn(of(1), "gone", Own, start)
	if got := set(map[string]int{"a": 3, "b": 0}); got != nil {
		t.Errorf("at first %v have restarted", got)
	}
	wantMatches(t, "of one that is not in the pool", matches(table, of(1), start))
	for _, a := range []string{"a", "b", "c"} {
		table.Learn(of(1), a, Own, start)
		table.Take(&Learned{Address: a, Hashes: []uint64{2}, Kept: true}, Others, start)
	}
	wantMatches(t, "those of the pool", matches(table, of(1, 2), start), "a:2", "b:2")
	if got := set(map[string]int{"a": 4, "b": 0}); !slices.Equal(got, []string{"a"}) {
		t.Errorf("%v have restarted", got)
	}
	wantMatches(t, "without that which restarted", matches(table, of(1), start), "b:1")
	set(map[string]int{"a": 0})
	wantMatches(t, "without that which left", matches(table, of(1), start))
}
