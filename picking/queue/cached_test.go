package queue

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"steelyard/picking"
)

// bySize is the cost of a request by the bytes of its body.
var bySize = picking.Cost{Base: 0.1, PerByte: 0.001, Mean: 1}

// somewhere is what a proxy may report of a prompt, right or wrong.
func somewhere(t *rapid.T) []picking.Cached {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) picking.Cached {
		return picking.Cached{Address: rapid.SampledFrom([]string{"a", "b", "c", "?", ""}).Draw(t, "address"),
			Share: rapid.OneOf(rapid.Float64Range(0, 1), rapid.SampledFrom([]float64{-1, 0, 1, 7, math.NaN(),
				math.Inf(1)})).Draw(t, "share")}
	}), 0, 4).Draw(t, "cached")
}

// TestARequestIsGrantedThePlaceWhereItsPromptIsCached, unless there is too much to do, and at once another one where
// that endpoint has no place.
func TestARequestIsGrantedThePlaceWhereItsPromptIsCached(t *testing.T) {
	for _, c := range []struct {
		name     string
		cached   []picking.Cached
		load     [3]float64 // of the endpoints
		inFlight [3]float64
		longest  bool
		want     string
	}{
		{"nothing is cached", nil, [3]float64{}, [3]float64{}, false, "a"},
		{"at one", []picking.Cached{{Address: "c", Share: 0.9}}, [3]float64{}, [3]float64{}, false, "c"},
		{"at two, more at one", []picking.Cached{{Address: "b", Share: 0.9}, {Address: "c", Share: 0.5}}, [3]float64{},
			[3]float64{}, false, "b"},
		{"where little is to be done", []picking.Cached{{Address: "c", Share: 0.9}}, [3]float64{0, 0, 0.5},
			[3]float64{}, false, "c"},
		{"where more is to be done than the cache saves", []picking.Cached{{Address: "c", Share: 0.9}},
			[3]float64{0, 0, 2}, [3]float64{}, false, "a"},
		{"where there is no place", []picking.Cached{{Address: "c", Share: 0.9}}, [3]float64{}, [3]float64{0, 0, 1},
			false, "a"},
		{"at an endpoint that is not known", []picking.Cached{{Address: "x", Share: 0.9}}, [3]float64{}, [3]float64{},
			false, "a"},
		{"by the longest match, more to do", []picking.Cached{{Address: "c", Share: 0.1}}, [3]float64{2, 2, 3},
			[3]float64{}, true, "c"},
		{"by the longest match, without a place", []picking.Cached{{Address: "c", Share: 0.9}}, [3]float64{2, 2, 3},
			[3]float64{0, 0, 1}, true, "a"},
	} {
		t.Run(c.name, func(t *testing.T) {
			q := New(time.Time{}, func() float64 { return 0 })
			q.SetOptions(start, &Options{Classes: []Class{one}, MaxInFlight: 1, LongestMatch: c.longest})
			all := endpoints(c.inFlight[:]...)
			for i := range all {
				all[i].Load = c.load[i]
			}
			q.Update(start, all, 0, bySize)
			r := request(1, "all", "", 0)
			r.Size, r.Cached = 1000, c.cached
			want(t, "the request", q.Arrive(start, r), "1:"+c.want)
		})
	}
}

// TestAmongFreePlacesTheChoiceIsThatWithoutAQueue: the same trade-off between what is cached and what is to be done.
func TestAmongFreePlacesTheChoiceIsThatWithoutAQueue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := endpoints(0, 0, 0)
		var update picking.Update
		for i := range all {
			all[i].Load = rapid.Float64Range(0, 3).Draw(t, "load")
			update.Endpoints = append(update.Endpoints, all[i].Endpoint)
		}
		update.Cost, update.LongestMatch = bySize, rapid.Bool().Draw(t, "longest match")
		random := rapid.Float64Range(0, 0.999).Draw(t, "random")
		asked := picking.Request{Size: int64(rapid.IntRange(-1, 5000).Draw(t, "size")), Cached: somewhere(t),
			Key: uint64(rapid.IntRange(0, 3).Draw(t, "key"))}
		var p picking.Picker
		p.Update(update, start)
		q := New(time.Time{}, func() float64 { return random })
		q.SetOptions(start, &Options{Classes: []Class{one}, MaxInFlight: 9, LongestMatch: update.LongestMatch})
		q.Update(start, all, 0, bySize)
		r := request(1, "all", "", 0)
		r.Size, r.Cached, r.Key = asked.Size, asked.Cached, asked.Key
		got := q.Arrive(start, r)
		if choice := p.Choose(start, asked, random); len(got) != 1 || got[0].Endpoint != choice.Address {
			t.Fatalf("granted %v, without a queue it goes to %s", text(got), choice.Address)
		}
	})
}

// TestWhereAPromptIsCachedDoesNotMatterToTheOrder: the same requests are granted a place at the same time, wherever.
func TestWhereAPromptIsCachedDoesNotMatterToTheOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		classes := []Class{{Name: "a", Weight: 3, MaxWaiting: 5, MaxWait: 9 * time.Second},
			{Name: "b", Weight: 1, MaxWaiting: 3, MaxWait: 4 * time.Second}}
		var queues [2]*Queue
		for i := range queues {
			queues[i] = New(time.Time{}, rand.New(rand.NewPCG(1, 2)).Float64)
			queues[i].SetOptions(start, &Options{Classes: classes, MaxInFlight: 2})
		}
		now := start
		var held []ID
		both := func(do func(*Queue, bool) []Verdict) {
			got := [2][]Verdict{do(queues[0], false), do(queues[1], true)}
			for i := range got {
				for j := range got[i] {
					if i == 0 && got[i][j].Endpoint != "" {
						held = append(held, got[i][j].ID)
					}
					got[i][j].Endpoint = map[bool]string{true: "granted"}[got[i][j].Endpoint != ""]
				}
			}
			if !slices.Equal(got[0], got[1]) {
				t.Fatalf("without a cache %v, with one %v", text(got[0]), text(got[1]))
			}
		}
		for i := range rapid.IntRange(1, 60).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 900).Draw(t, "ms")) * time.Millisecond)
			both(func(q *Queue, _ bool) []Verdict { return q.Update(now, endpoints(0, 0, 0), 0, bySize) })
			if rapid.Bool().Draw(t, "arrives") || len(held) == 0 {
				r := Request{ID: id(uint64(i)), Since: now, Size: 1000,
					Class:  rapid.SampledFrom([]string{"a", "b"}).Draw(t, "class"),
					Tenant: rapid.SampledFrom([]string{"x", "y"}).Draw(t, "tenant")}
				cached := somewhere(t)
				both(func(q *Queue, known bool) []Verdict {
					if known {
						r.Cached = cached
					}
					return q.Arrive(now, r)
				})
				continue
			}
			n := rapid.IntRange(0, len(held)-1).Draw(t, "ends")
			ended := held[n]
			held = slices.Delete(held, n, n+1)
			both(func(q *Queue, _ bool) []Verdict {
				verdicts, _, _ := q.End(now, ended)
				return verdicts
			})
		}
	})
}
