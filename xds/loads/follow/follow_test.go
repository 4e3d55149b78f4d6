package follow

import (
	"log/slog"
	"testing"

	"steelyard/picking"
	"steelyard/picking/prefix"
	"steelyard/weighting"
)

// TestAnEngineThatRestartedTakesItsRoutesWithIt, and a Steelyard that did takes none: it counts from the start again.
func TestAnEngineThatRestartedTakesItsRoutesWithIt(t *testing.T) {
	f := New(nil, "envoy-1", []string{"llama"}, slog.New(slog.DiscardHandler))
	f.LearnRoutes(prefix.Limits{})
	p := f.Pool("llama")
	update := func(restarts ...int) {
		u := picking.Update{Cost: picking.Requests()}
		for i, n := range restarts {
			u.Endpoints = append(u.Endpoints, picking.Endpoint{Address: string(rune('a' + i)), Restarts: n,
				Vessel: weighting.Vessel{Slots: 1, Speed: 1}})
		}
		p.set(u, nil, noon)
	}
	prompt := prefix.FromBlocks([]uint64{1, 2, 3}, nil)
	update(4, 0)
	for _, a := range []string{"a", "b"} {
		p.Learn(&prompt, a, noon)
	}
	for _, c := range []struct {
		what     string
		restarts []int
		routes   int
	}{
		{"nothing changes", []int{4, 0}, 2},
		{"Steelyard restarts", []int{0, 0}, 2},
		{"the first restarts", []int{1, 0}, 1},
		{"the second leaves", []int{1}, 0},
		{"it comes back", []int{1, 7}, 0},
	} {
		update(c.restarts...)
		if got, _ := p.Routes(); got.Own != c.routes {
			t.Errorf("%s: %d routes, want %d", c.what, got.Own, c.routes)
		}
	}
	p.Learn(&prompt, "b", noon)
	update(1, 7)
	if got, _ := p.Routes(); got.Own != 1 {
		t.Errorf("what is learned after the restart: %d routes, want 1", got.Own)
	}
}
