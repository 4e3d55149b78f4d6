package prefix

import (
	"fmt"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// of is a prompt of steps with these hashes, one block each.
func of(hashes ...uint64) *Prompt {
	p := Prompt{Whole: float64(len(hashes))}
	for i, h := range hashes {
		p.Steps = append(p.Steps, Step{Blocks: i + 1, Hash: h})
	}
	return &p
}

// matches returns the matches of a prompt as text, sorted.
func matches(table *Table, p *Prompt, now time.Time) []string {
	var m Matches
	table.Expire(now)
	table.Match(p, &m)
	var out []string
	for _, one := range m.All {
		out = append(out, fmt.Sprintf("%s:%d", one.Address, one.Blocks))
	}
	slices.Sort(out)
	return out
}

func wantMatches(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func TestTheLongestPrefixOfEachEndpointMatches(t *testing.T) {
	table := NewTable(Limits{})
	table.Learn(of(1, 2, 3), "a", Own, start)
	table.Learn(of(1, 2, 4, 5), "b", Others, start)
	table.Learn(of(9), "c", Own, start)
	wantMatches(t, "a conversation that goes on", matches(table, of(1, 2, 4, 5, 6), start), "a:2", "b:4")
	wantMatches(t, "a branch", matches(table, of(1, 7), start), "a:1", "b:1")
	wantMatches(t, "an unknown one", matches(table, of(8), start))
	wantMatches(t, "no steps", matches(table, of(), start))
	if s := table.Stats(); s != (Stats{Own: 4, Others: 4}) {
		t.Errorf("%+v", s)
	}
}

func TestRoutesExpireUnlessTheyAreConfirmed(t *testing.T) {
	table := NewTable(Limits{TTL: time.Minute})
	table.Learn(of(1, 2), "a", Own, start)
	table.Learn(of(1), "a", Own, start.Add(40*time.Second))
	wantMatches(t, "before", matches(table, of(1, 2), start.Add(time.Minute)), "a:2")
	wantMatches(t, "after", matches(table, of(1, 2), start.Add(62*time.Second)), "a:1")
	table.Learn(of(5), "b", Own, start.Add(62*time.Second))
	if s := table.Stats(); s.Own != 2 || s.Evicted != 0 {
		t.Errorf("%+v, want the old one to be gone, and nothing evicted", s)
	}
	wantMatches(t, "when time went backwards", matches(table, of(1), start.Add(-time.Hour)), "a:1")
}

func TestByDefaultRoutesExpireAfterAnHour(t *testing.T) {
	table := NewTable(Limits{})
	table.Learn(of(1), "a", Own, start)
	wantMatches(t, "before", matches(table, of(1), start.Add(time.Hour)), "a:1")
	wantMatches(t, "after", matches(table, of(1), start.Add(time.Hour+time.Second)))
}

func TestBeyondTheCapTheRoutesOfOthersGoFirst(t *testing.T) {
	table := NewTable(Limits{Routes: 4})
	table.Learn(of(1), "a", Own, start)
	table.Learn(of(2), "a", Others, start)
	table.Learn(of(3), "a", Own, start)
	table.Learn(of(4), "a", Others, start)
	table.Learn(of(5), "a", Own, start)
	wantMatches(t, "the oldest of others", matches(table, of(2), start))
	wantMatches(t, "the newest of others", matches(table, of(4), start), "a:1")
	table.Learn(of(6, 7), "b", Own, start)
	wantMatches(t, "the last one of others", matches(table, of(4), start))
	wantMatches(t, "then the oldest own one", matches(table, of(1), start))
	wantMatches(t, "and no other", matches(table, of(3), start), "a:1")
	if s := table.Stats(); s != (Stats{Own: 4, Evicted: 3}) {
		t.Errorf("%+v", s)
	}
}

func TestTheDeepestStepOfAPromptIsEvictedFirst(t *testing.T) {
	table := NewTable(Limits{Routes: 3})
	table.Learn(of(1, 2, 3), "a", Own, start)
	table.Learn(of(9), "a", Own, start)
	wantMatches(t, "after one eviction", matches(table, of(1, 2, 3), start), "a:2")
}

func TestARouteThatThisProxyLearnsToBecomesItsOwn(t *testing.T) {
	table := NewTable(Limits{})
	table.Learn(of(1), "a", Others, start)
	table.Learn(of(1), "a", Own, start)
	table.Learn(of(1), "a", Others, start)
	if s := table.Stats(); s != (Stats{Own: 1}) {
		t.Errorf("%+v", s)
	}
}

func TestAnEndpointThatLeftTakesItsRoutesWithIt(t *testing.T) {
	table := NewTable(Limits{})
	table.Learn(of(1, 2), "a", Own, start)
	table.Learn(of(1, 3), "b", Others, start)
	table.Remove("a")
	table.Remove("never there")
	wantMatches(t, "after it left", matches(table, of(1, 2), start), "b:1")
	table.Learn(of(4), "c", Own, start)
	wantMatches(t, "one in its place", matches(table, of(1, 2), start), "b:1")
	table.Keep(func(a string) bool { return a == "c" })
	wantMatches(t, "after all others left", matches(table, of(1, 3), start))
	if s := table.Stats(); s != (Stats{Own: 1}) {
		t.Errorf("%+v", s)
	}
}

func TestManyEndpointsHaveTheSamePrompt(t *testing.T) {
	table := NewTable(Limits{})
	address := func(i int) string { return fmt.Sprintf("%03d", i) }
	var all, left []string
	for i := range 200 {
		table.Learn(of([]uint64{1, 2, 3}[:1+i%3]...), address(i), Own, start)
		all = append(all, fmt.Sprintf("%s:%d", address(i), 1+i%3))
	}
	wantMatches(t, "all", matches(table, of(1, 2, 3), start), all...)
	for i, match := range all {
		if i%2 == 0 {
			table.Remove(address(i))
		} else {
			left = append(left, match)
		}
	}
	wantMatches(t, "after every other one left", matches(table, of(1, 2, 3), start), left...)
	for i := range 200 {
		table.Learn(of([]uint64{1, 2, 3}[:1+i%3]...), address(i), Others, start)
	}
	wantMatches(t, "after they came back", matches(table, of(1, 2, 3), start), all...)
	if s := table.Stats(); s != (Stats{Own: 200, Others: 199}) {
		t.Errorf("%+v", s)
	}
}

func TestOfSeveralWithAsMuchTheLatestIsTheFirstMatch(t *testing.T) {
	table := NewTable(Limits{})
	var m Matches
	for _, address := range []string{"a", "c", "b"} {
		table.Learn(of(1, 2), address, Own, start)
		if table.Match(of(1, 2), &m); m.All[0].Address != address {
			t.Errorf("after %s the first match is %v", address, m.All[0])
		}
	}
}

// TestASharedPromptCostsAMatchLittleMore: a match that looked at each route would take 780 times as long.
func TestASharedPromptCostsAMatchLittleMore(t *testing.T) {
	took := func(s shape) time.Duration {
		least := time.Hour
		var m Matches
		for range 200 {
			begun := time.Now()
			s.table.Match(s.prompts[0], &m)
			least = min(least, time.Since(begun))
		}
		return least
	}
	one, many := took(common(1, 128)), took(common(780, 128))
	if many > 15*one {
		t.Errorf("a match takes %v where 780 endpoints have the prompt, %v where one has it", many, one)
	}
}

func TestOthersUseTheTableWhileAnEndpointWithManyRoutesLeaves(t *testing.T) {
	table := NewTable(Limits{})
	table.Learn(of(0), "b", Own, start)
	for i := range uint64(DefaultRoutes - 1) {
		table.Learn(of(1+i), "a", Own, start)
	}
	removed := make(chan struct{})
	go func() {
		defer close(removed)
		table.Remove("a")
	}()
	var m Matches
	meanwhile := 0
	for routes := DefaultRoutes; routes > 1; routes = table.Stats().Own {
		if table.Match(of(1), &m); len(m.All) > 0 && routes < DefaultRoutes {
			t.Fatal("a route of an endpoint that leaves matches")
		}
		if routes < DefaultRoutes {
			meanwhile++
		}
	}
	<-removed
	if meanwhile < 10 {
		t.Errorf("the table was free %d times while 100,000 routes were removed", meanwhile)
	}
}

// heap is the memory in use, in MB.
func heap() float64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // what finalizers and weak pointers kept until the first
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc) / 1e6
}

// TestRoutesTakeTheMemoryThatTheDocumentStates, once many more than the cap have come and gone: maps that lose entries
// grow.
func TestRoutesTakeTheMemoryThatTheDocumentStates(t *testing.T) {
	text, err := os.ReadFile("../../docs/prefix.md")
	if err != nil {
		t.Fatal(err)
	}
	for endpoints, statement := range map[uint64]string{64: "(\\d+) MB with up to 64 endpoints",
		1000: "(\\d+) MB with a thousand"} {
		found := regexp.MustCompile(statement).FindSubmatch(text)
		if found == nil {
			t.Fatalf("docs/prefix.md has no %q", statement)
		}
		stated, _ := strconv.ParseFloat(string(found[1]), 64)
		before := heap()
		table := NewTable(Limits{})
		const steps = 10
		for i := range uint64(3 * DefaultRoutes / steps) {
			hashes := make([]uint64, steps)
			for k := range hashes {
				hashes[k] = mixed(i, uint64(k))
			}
			table.Learn(of(hashes...), fmt.Sprintf("10.0.%d.%d:8000", i%endpoints/250, i%endpoints%250), Own, start)
		}
		took := heap() - before
		if s := table.Stats(); s.Own != DefaultRoutes || took < 0.8*stated || took > 1.2*stated {
			t.Errorf("%d routes of %d endpoints take %.1f MB, docs/prefix.md has %v", s.Own, endpoints, took, stated)
		}
	}
}

// A plain table keeps routes in a slice, oldest first.
type plain struct {
	capacity int
	routes   []plainRoute
}

type plainRoute struct {
	hash     uint64
	endpoint string
	origin   Origin
	at       time.Time
}

func (p *plain) learn(steps []Step, endpoint string, o Origin, now time.Time) {
	p.routes = slices.DeleteFunc(p.routes, func(r plainRoute) bool { return now.Sub(r.at) > time.Minute })
	for _, s := range slices.Backward(steps) {
		origin := o
		p.routes = slices.DeleteFunc(p.routes, func(r plainRoute) bool {
			same := r.hash == s.Hash && r.endpoint == endpoint
			if same {
				origin = min(origin, r.origin)
			}
			return same
		})
		if len(p.routes) == p.capacity {
			p.evict()
		}
		p.routes = append(p.routes, plainRoute{s.Hash, endpoint, origin, now})
	}
}

func (p *plain) evict() {
	i := max(0, slices.IndexFunc(p.routes, func(r plainRoute) bool { return r.origin == Others }))
	p.routes = slices.Delete(p.routes, i, i+1)
}

func (p *plain) matches(steps []Step, now time.Time) []string {
	deepest := map[string]int{}
	for _, s := range steps {
		for _, r := range p.routes {
			if r.hash == s.Hash && now.Sub(r.at) <= time.Minute {
				deepest[r.endpoint] = s.Blocks
			}
		}
	}
	var out []string
	for endpoint, blocks := range deepest {
		out = append(out, fmt.Sprintf("%s:%d", endpoint, blocks))
	}
	slices.Sort(out)
	return out
}

func TestTheTableIsLikeAPlainOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		capacity := rapid.IntRange(1, 12).Draw(t, "capacity")
		table, slow, now := NewTable(Limits{Routes: capacity, TTL: time.Minute}), plain{capacity: capacity}, start
		prompt := rapid.Custom(func(t *rapid.T) *Prompt {
			hash, hashes := uint64(0), []uint64(nil)
			for range rapid.IntRange(0, 4).Draw(t, "depth") {
				hash = 10*hash + uint64(rapid.IntRange(1, 2).Draw(t, "branch"))
				hashes = append(hashes, hash)
			}
			return of(hashes...)
		})
		for range rapid.IntRange(1, 60).Draw(t, "actions") {
			endpoint := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "endpoint")
			switch rapid.IntRange(0, 5).Draw(t, "action") {
			case 0:
				now = now.Add(time.Duration(rapid.IntRange(0, 40).Draw(t, "seconds")) * time.Second)
			case 1:
				table.Remove(endpoint)
				slow.routes = slices.DeleteFunc(slow.routes, func(r plainRoute) bool { return r.endpoint == endpoint })
			default:
				p, o := prompt.Draw(t, "prompt"), Origin(rapid.IntRange(0, 1).Draw(t, "origin"))
				table.Learn(p, endpoint, o, now)
				if len(p.Steps) > 0 {
					slow.learn(p.Steps, endpoint, o, now)
				}
			}
			p := prompt.Draw(t, "asked")
			if got, want := matches(table, p, now), slow.matches(p.Steps, now); !slices.Equal(got, want) {
				t.Fatalf("matches %v, want %v", got, want)
			}
			if s := table.Stats(); s.Own+s.Others > capacity {
				t.Fatalf("%+v", s)
			}
		}
	})
}

func TestATableIsUsedByManyAtATime(t *testing.T) {
	table := NewTable(Limits{Routes: 50})
	var users sync.WaitGroup
	for u := range 8 {
		users.Go(func() {
			var m Matches
			for i := range 500 {
				p := of(uint64(i%7), uint64(u), uint64(i))
				table.Match(p, &m)
				table.Learn(p, fmt.Sprint(i%5), Origin(u%2), start)
				if i%100 == 0 {
					table.Keep(func(a string) bool { return a != "3" })
				}
			}
		})
	}
	users.Wait()
	if s := table.Stats(); s.Own+s.Others != 50 {
		t.Errorf("%+v, want a full table", s)
	}
}

// A shape is a table that is full, and the prompts that are asked of it.
type shape struct {
	name    string
	table   *Table
	prompts []*Prompt
}

// shapes are the extremes: each endpoint has its own conversations, or all have one system prompt.
func shapes() []shape {
	table, prompts := full()
	return []shape{{"own", table, prompts}, common(20, 128), common(100, 100), common(780, 128)}
}

// common is a prompt that so many endpoints have answered, and one that has answered something else.
func common(endpoints, steps int) shape {
	hashes := make([]uint64, steps)
	for i := range hashes {
		hashes[i] = mixed(1, uint64(i))
	}
	s := shape{fmt.Sprintf("%dx%d", endpoints, steps), NewTable(Limits{}), []*Prompt{of(hashes...)}}
	for i := range endpoints {
		s.table.Learn(s.prompts[0], fmt.Sprintf("10.0.%d.%d:8000", i/250, i%250), Own, start)
	}
	s.table.Learn(of(7), "10.1.0.0:8000", Own, start)
	return s
}

// full is a table of 100,000 routes: conversations of ten steps, of which two are shared.
func full() (table *Table, prompts []*Prompt) {
	table = NewTable(Limits{})
	for i := uint64(0); table.Stats().Own < DefaultRoutes; i++ {
		hashes := []uint64{i % 3, 1000 + i%100}
		for k := range uint64(8) {
			hashes = append(hashes, mixed(i, k))
		}
		p := of(hashes...)
		prompts = append(prompts, p)
		table.Learn(p, fmt.Sprintf("10.0.0.%d:8000", i%50), Own, start)
	}
	return table, prompts
}

// BenchmarkTable has ten goroutines, of which each matches, and learns from the answer of the first.
func BenchmarkTable(b *testing.B) {
	for _, s := range shapes() {
		for _, learns := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/learns=%t", s.name, learns), func(b *testing.B) {
				b.ReportMetric(float64(s.table.Stats().Own), "routes")
				b.SetParallelism(10)
				b.ReportAllocs()
				b.RunParallel(func(pb *testing.PB) {
					var m Matches
					for i := 0; pb.Next(); i += 7919 {
						p := s.prompts[i%len(s.prompts)]
						s.table.Match(p, &m)
						if learns {
							s.table.Learn(p, m.All[0].Address, Own, start)
						}
					}
				})
			})
		}
	}
}
