package ledger

import (
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestAccountsAreFoundBySlot: as in a map, whatever comes and goes, and in a table that fits.
func TestAccountsAreFoundBySlot(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var table accounts
		want := map[*slot]*account{}
		slots := make([]*slot, 300)
		first := rapid.SampledFrom([]int{0, 5, 19_000}).Draw(t, "first number")
		for i := range slots {
			slots[i] = &slot{number: first + i*rapid.SampledFrom([]int{1, 8, 1000}).Draw(t, "apart")}
		}
		any := rapid.SampledFrom(slots)
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				for range rapid.IntRange(1, 40).Draw(t, "accounts") {
					if s := any.Draw(t, "slot"); want[s] == nil {
						want[s] = &account{slot: s}
						table.add(want[s])
					}
				}
			},
			"remove": func(t *rapid.T) {
				for range rapid.IntRange(1, 40).Draw(t, "accounts") {
					if s := any.Draw(t, "slot"); want[s] != nil {
						table.remove(want[s])
						delete(want, s)
					}
				}
			},
			"": func(t *rapid.T) {
				for _, s := range slots {
					if got := table.of(s); got != want[s] {
						t.Fatalf("slot %d: %p, want %p", s.number, got, want[s])
					}
				}
				var all []*account
				table.each(func(a *account) { all = append(all, a) })
				if len(all) != len(want) || len(all) != table.held || table.held > table.taken {
					t.Fatalf("%d accounts, %d held, %d places taken; want %d", len(all), table.held, table.taken,
						len(want))
				}
				for _, a := range all {
					if !slices.Contains(slices.Collect(maps.Values(want)), a) {
						t.Fatal("an account that was removed")
					}
				}
				n, listed := len(table.places), len(table.all)
				if n > 6*len(want)+4 || 4*table.taken > 3*n || listed > 2*len(want)+1 {
					t.Fatalf("%d places, %d taken, %d listed, for %d accounts", n, table.taken, listed, len(want))
				}
			},
		})
	})
}
