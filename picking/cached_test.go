package picking

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// byWork makes a request of 1,000 bytes cost one unit, of which its prompt is nine tenths.
var byWork = Cost{Base: 0.1, PerByte: 0.0009, Mean: 1}

// prompted has these loads of engines, and requests that cost byWork.
func prompted(loads ...float64) *Picker {
	var p Picker
	p.Update(Update{Endpoints: at(loads...), Cost: byWork}, start)
	return &p
}

func address(i int) string { return fmt.Sprintf("10.0.0.%d:80", i) }

func TestWhatIsCachedIsTakenOffTheWork(t *testing.T) {
	for _, c := range []struct {
		name   string
		loads  []float64
		cached []Cached
		want   int
		reason Reason
	}{
		{"worth a longer wait", []float64{0, 0.7}, []Cached{{address(1), 1}}, 1, ReasonPrefix},
		{"not worth it", []float64{0, 1.2}, []Cached{{address(1), 1}}, 0, ReasonFill},
		{"half of it, whatever the draw", []float64{0, 0}, []Cached{{address(1), 0.5}}, 1, ReasonPrefix},
		{"a small part", []float64{0, 0.7}, []Cached{{address(1), 0.2}}, 0, ReasonFill},
		{"the larger part of two", []float64{0.2, 0.2}, []Cached{{address(0), 0.1}, {address(1), 0.9}}, 1,
			ReasonPrefix},
		{"at an unknown endpoint", []float64{0, 0.7}, []Cached{{"10.9.9.9:80", 1}}, 0, ReasonFill},
	} {
		p := prompted(c.loads...)
		got := p.Choose(start, Request{Size: 1000, Cached: c.cached}, 0.5)
		if got.Address != address(c.want) || got.Reason != c.reason {
			t.Errorf("%s: %+v, want %s for %s", c.name, got, address(c.want), c.reason)
		}
	}
}

// TestARequestCountsWithWhatItAdds: ten cached ones are as much as one that is not.
func TestARequestCountsWithWhatItAdds(t *testing.T) {
	p := prompted(0, 0)
	cached := Request{Size: 1000, Cached: []Cached{{address(1), 1}}}
	for i := range 9 {
		if got := p.Choose(start, cached, 0.5); got.Address != address(1) {
			t.Fatalf("request %d goes to %s", i, got.Address)
		}
	}
	if got := p.loads[1].load; got < 0.89 || got > 0.91 {
		t.Errorf("nine cached requests add %v, want 0.9", got)
	}
	p.Choose(start, Request{Size: 1000}, 0.5)
	if got := p.loads[0].load; got != 1 {
		t.Errorf("one that is not adds %v to the other endpoint, want 1", got)
	}
}

func TestWhereARequestIsTheUnitACacheChangesNothing(t *testing.T) {
	p := newPicker(at(0, 1))
	got := p.Choose(start, Request{Size: 1000, Cached: []Cached{{address(1), 1}}}, 0.5)
	if got.Address != address(0) || got.Reason != ReasonFill {
		t.Errorf("%+v", got)
	}
}

func TestAFlaggedEndpointIsNotChosenForItsCache(t *testing.T) {
	p := prompted(0, 0)
	p.update.Endpoints[1].Avoid = AvoidFlagged
	if got := p.Choose(start, Request{Size: 1000, Cached: []Cached{{address(1), 1}}}, 0.5); got.Address != address(0) {
		t.Errorf("%+v", got)
	}
}

// TestEqualKeysGatherAndOthersSpread: pickers that know nothing of each other send what begins alike to the same
// endpoint, and everything else by the room that there is.
func TestEqualKeysGatherAndOthersSpread(t *testing.T) {
	const keys = 6000
	random := rand.New(rand.NewPCG(1, 2))
	counts, differ := map[string]int{}, 0
	for key := uint64(1); key <= keys; key++ {
		a, b := prompted(0, 0.5, 0.2), prompted(0, 0.5, 0.2)
		r := Request{Size: 1000, Key: key * 0x9e3779b97f4a7c15}
		first := a.Choose(start, r, random.Float64()).Address
		counts[first]++
		// One that sees slightly other loads.
		b.loads[0].load += 0.01
		if b.Choose(start, r, random.Float64()).Address != first {
			differ++
		}
	}
	// The fill of 1 request reaches the level 0.5667: rooms of 0.5667, 0.0667 and 0.3667.
	for i, room := range []float64{0.5667, 0.0667, 0.3667} {
		if share := float64(counts[address(i)]) / keys; share < room-0.03 || share > room+0.03 {
			t.Errorf("%s gets %.3f of the keys, want its room, %.3f", address(i), share, room)
		}
	}
	if differ > keys/50 {
		t.Errorf("%d of %d keys go elsewhere after a small change of a load", differ, keys)
	}
}

func TestCachedChoicesAreSoundForAnyInput(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		loads := rapid.SliceOfN(rapid.Float64Range(0, 50), 1, 8).Draw(t, "loads")
		p := prompted(loads...)
		now := start
		for range rapid.IntRange(1, 20).Draw(t, "requests") {
			now = now.Add(time.Duration(rapid.IntRange(0, 20).Draw(t, "ms")) * time.Millisecond)
			r := Request{Size: rapid.Int64Range(-1, 1<<40).Draw(t, "size"), Key: rapid.Uint64().Draw(t, "key")}
			for range rapid.IntRange(0, 4).Draw(t, "cached") {
				r.Cached = append(r.Cached, Cached{address(rapid.IntRange(0, 9).Draw(t, "where")),
					rapid.Float64Range(0, 2).Draw(t, "share")})
			}
			if c := p.Choose(now, r, rapid.Float64Range(0, 0.999).Draw(t, "random")); c.Address == "" {
				t.Fatalf("no choice: %+v", c)
			}
			for i, l := range p.loads {
				if !(l.load >= loads[i]) {
					t.Fatalf("endpoint %d has a load of %v with own choices, and %v without", i, l.load, loads[i])
				}
			}
		}
	})
}

func TestTheLongestMatchIsChosenUnlessItHasTooMuchToDo(t *testing.T) {
	for _, c := range []struct {
		name   string
		loads  []float64
		cached []Cached
		want   string
		reason Reason
	}{
		{"the longest, though another is idle", []float64{3, 2, 0}, []Cached{{"a", 0.5}, {"b", 0.2}}, "a",
			ReasonPrefix},
		{"of two, the one with less to do", []float64{2, 1, 1}, []Cached{{"a", 0.5}, {"b", 0.5}}, "b", ReasonPrefix},
		{"at twice the median", []float64{4, 2, 1}, []Cached{{"a", 0.5}}, "a", ReasonPrefix},
		{"above it", []float64{4.1, 2, 1}, []Cached{{"a", 0.5}, {"b", 0.2}}, "c", ReasonOverride},
		{"one that left", []float64{9, 9, 0}, []Cached{{"x", 0.9}}, "c", ReasonFill},
		{"none", []float64{9, 9, 0}, nil, "c", ReasonFill},
	} {
		u := Update{Cost: Requests(), LongestMatch: true}
		for i, e := range at(c.loads...) {
			e.Address = string(rune('a' + i))
			u.Endpoints = append(u.Endpoints, e)
		}
		var p Picker
		p.Update(u, start)
		if got := p.Choose(start, Request{Size: -1, Cached: c.cached, Key: 1}, 0); got.Address != c.want ||
			got.Reason != c.reason || len(got.Others) != 2 {
			t.Errorf("%s: %+v, want %s by %s", c.name, got, c.want, c.reason)
		}
		u.LongestMatch = false
		p.Update(u, start.Add(time.Second))
		got := p.Choose(start.Add(time.Second), Request{Size: -1, Cached: c.cached, Key: 1}, 0)
		if got.Reason != ReasonFill {
			t.Errorf("%s, by work: %+v, want the least loaded", c.name, got)
		}
	}
}

// TestAShareOfItsOwnIsBeforeTheLongestMatch: neither the match nor the load of such an endpoint decides about others.
func TestAShareOfItsOwnIsBeforeTheLongestMatch(t *testing.T) {
	const requests = 1000
	for _, c := range []struct {
		name   string
		loads  []float64 // of those that have no share
		match  string    // besides the endpoints with a share, which match all
		want   string
		reason Reason
	}{
		{"the longest", []float64{1.5, 1, 1}, "10.0.0.0:80", "10.0.0.0:80", ReasonPrefix},
		{"above twice the median of the others", []float64{5, 1, 1}, "10.0.0.0:80", "10.0.0.1:80", ReasonOverride},
		{"no other match", []float64{5, 5, 1}, "", "10.0.0.2:80", ReasonFill},
	} {
		u := Update{Cost: Requests(), LongestMatch: true, Endpoints: at(append(c.loads, 1e6, 1e6)...)}
		u.Endpoints[3].Share, u.Endpoints[4].Share = 0.25, 0.125
		r := Request{Size: -1, Key: 1, Cached: []Cached{{c.match, 0.5}, {"10.0.0.3:80", 1}, {"10.0.0.4:80", 1}}}
		got, reasons := make(map[string]int), make(map[Reason]int)
		for i := range requests {
			var p Picker
			p.Update(u, start)
			choice := p.Choose(start, r, float64(i)/requests)
			if got[choice.Address]++; choice.Address == c.want {
				reasons[choice.Reason]++
			}
		}
		if got["10.0.0.3:80"] != 250 || got["10.0.0.4:80"] != 125 || got[c.want] != 625 || reasons[c.reason] != 625 {
			t.Errorf("%s: %v by %v, want 250 and 125 by their shares, and 625 for %s by %s", c.name, got, reasons,
				c.want, c.reason)
		}
	}
}
