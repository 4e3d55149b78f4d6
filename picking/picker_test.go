package picking

import (
	"container/heap"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"steelyard/weighting"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// at are endpoints of one slot with these loads.
func at(loads ...float64) []Endpoint {
	out := make([]Endpoint, len(loads))
	for i, l := range loads {
		out[i] = Endpoint{Address: fmt.Sprintf("10.0.0.%d:80", i),
			Vessel: weighting.Vessel{Load: l, Slots: 1, Speed: 1}}
	}
	return out
}

func newPicker(endpoints []Endpoint) *Picker {
	var p Picker
	p.Update(Update{Endpoints: endpoints, Cost: Requests()}, start)
	return &p
}

var unknown = Request{Size: -1}

func TestOwnChoicesCountAtOnceSoThatABatchSpreads(t *testing.T) {
	p := newPicker(at(0, 0, 0, 5))
	var got []string
	for range 3 {
		got = append(got, p.Choose(start, unknown, 0.5).Address)
	}
	slices.Sort(got)
	if want := []string{"10.0.0.0:80", "10.0.0.1:80", "10.0.0.2:80"}; !slices.Equal(got, want) {
		t.Errorf("three requests went to %v, want %v", got, want)
	}
}

// TestAnEndpointWithAShareOfItsOwnGetsThatWhateverItsLoad: the others get what is left, by their loads.
func TestAnEndpointWithAShareOfItsOwnGetsThatWhateverItsLoad(t *testing.T) {
	const requests = 1000
	endpoints := at(0, 1e6, 3)
	endpoints[1].Share = 0.3
	for name, r := range map[string]Request{
		"alone": unknown, "of a prompt": {Size: -1, Key: 7},
		"of a subset": {Size: -1, Subset: []string{"10.0.0.0:80", "10.0.0.1:80"}},
	} {
		got := make(map[string]int)
		for i := range requests {
			got[newPicker(endpoints).Choose(start, r, float64(i)/requests).Address]++
		}
		if got["10.0.0.1:80"] != 0.3*requests || got["10.0.0.0:80"] != 0.7*requests {
			t.Errorf("a request %s: %v, want 300 for the second and the others for the first", name, got)
		}
	}
	only := Request{Size: -1, Subset: []string{"10.0.0.1:80"}}
	if got := newPicker(endpoints).Choose(start, only, 0.9).Address; got != "10.0.0.1:80" {
		t.Errorf("limited to it, a request went to %q", got)
	}
}

func TestAnOwnChoiceCountsUntilAnUpdateCanContainIt(t *testing.T) {
	for _, c := range []struct {
		name  string
		after time.Duration
		age   time.Duration // of the update
		read  time.Duration // before that
		want  string
	}{
		{"an update right after the choice does not contain it", time.Millisecond, 0, 0, "10.0.0.1:80"},
		{"a later one does", Settle, 0, 0, "10.0.0.0:80"},
		{"one that was decided before it does not", time.Second, time.Second, 0, "10.0.0.1:80"},
		{"nor does one of what was read before it", time.Second, 0, time.Second, "10.0.0.1:80"},
		{"or just after it", time.Second, 0, time.Second - Settle + 1, "10.0.0.1:80"},
		{"one of what was read later does", time.Second, 0, time.Second - Settle, "10.0.0.0:80"},
		{"what is not read at all says nothing for long", Stale, 0, time.Hour, "10.0.0.0:80"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPicker(at(0, 1))
			if got := p.Choose(start, unknown, 0).Address; got != "10.0.0.0:80" {
				t.Fatalf("the first choice is %s", got)
			}
			now := start.Add(c.after)
			endpoints := at(0.5, 1)
			endpoints[0].LoadAge = c.read
			p.Update(Update{Endpoints: endpoints, Age: c.age, Cost: Requests()}, now)
			if got := p.Choose(now, unknown, 0.5).Address; got != c.want {
				t.Errorf("the next choice is %s, want %s", got, c.want)
			}
		})
	}
}

func TestOwnChoicesFollowTheirEndpointWhenOthersJoinAndLeave(t *testing.T) {
	p := newPicker(at(0, 9, 0.2)) // the first choice goes to .0
	if got := p.Choose(start, unknown, 0).Address; got != "10.0.0.0:80" {
		t.Fatalf("the first choice is %s", got)
	}
	now := start.Add(time.Millisecond)
	moved := at(0.2, 9, 0)
	moved[0].Address, moved[2].Address = "10.0.0.9:80", "10.0.0.0:80"
	p.Update(Update{Endpoints: moved, Cost: Requests()}, now)
	if got := p.Choose(now, unknown, 0).Address; got != "10.0.0.9:80" {
		t.Errorf("the next choice is %s, want the one without an own request", got)
	}
	p.Update(Update{Endpoints: at(3)[:0], Cost: Requests()}, now)
	if got := p.Choose(now, unknown, 0); got.Reason != ReasonNoUpdate || got.Address != "" {
		t.Errorf("without endpoints: %+v", got)
	}
}

func TestWithoutUsableLoadsTheWeightsDecide(t *testing.T) {
	var p Picker
	if got := p.Choose(start, unknown, 0); got.Reason != ReasonNoUpdate || got.Address != "" {
		t.Errorf("before the first update: %+v", got)
	}
	p.Update(Update{Endpoints: at(0), Cost: Requests()}, start)
	if got := p.Choose(start.Add(Stale), unknown, 0); got.Reason != ReasonFill || got.Address == "" {
		t.Errorf("at the age limit: %+v", got)
	}
	if got := p.Choose(start.Add(Stale+1), unknown, 0); got.Reason != ReasonStale || got.Address != "" {
		t.Errorf("above it: %+v", got)
	}
	// What is sent again is as old as its decision.
	p.Update(Update{Endpoints: at(0), Cost: Requests(), Age: 2 * time.Second}, start)
	if got := p.Choose(start.Add(time.Second), unknown, 0); got.Reason != ReasonFill {
		t.Errorf("two seconds old when it came, a second ago: %+v", got)
	}
	if got := p.Choose(start.Add(time.Second+1), unknown, 0); got.Reason != ReasonStale {
		t.Errorf("and longer ago: %+v", got)
	}
}

func TestASubsetLimitsTheChoice(t *testing.T) {
	p := newPicker(at(0, 1, 2))
	only := Request{Size: -1, Subset: []string{"10.0.0.2:80", "10.9.9.9:80"}}
	if got := p.Choose(start, only, 0.99); got.Address != "10.0.0.2:80" || len(got.Others) != 0 {
		t.Errorf("got %+v, want the only known endpoint of the subset", got)
	}
	none := Request{Size: -1, Subset: []string{"10.9.9.9:80"}}
	if got := p.Choose(start, none, 0); got.Reason != ReasonSubset || got.Address != "" {
		t.Errorf("got %+v, want no choice", got)
	}
}

// Five requests of others since the loads were read fill both endpoints; without others only the emptier one has room.
func TestAPickerLeavesRoomForWhatOthersHaveSentMeanwhile(t *testing.T) {
	const rate = 1000 // requests a second: five in Lag
	for _, tt := range []struct {
		name string
		own  int // requests in the second before
		want string
	}{
		{"others send everything", 0, "10.0.0.1:80"},
		{"it sends everything itself", 2 * rate, "10.0.0.0:80"},
	} {
		p := newPicker(at(0, 1))
		for i := range tt.own {
			p.Choose(start.Add(time.Duration(i)*time.Second/(2*rate)), unknown, 0)
		}
		now := start.Add(time.Second + Settle)
		p.Update(Update{Endpoints: at(0, 1), ArrivalRate: rate, Cost: Requests()}, now)
		if got := p.Choose(now, unknown, 0.9).Address; got != tt.want {
			t.Errorf("%s: the choice is %s, want %s", tt.name, got, tt.want)
		}
	}
}

func TestFlaggedEndpointsAreChosenOnlyWhereAllAre(t *testing.T) {
	endpoints := at(0, 50)
	endpoints[0].Avoid = AvoidFlagged
	if got := newPicker(endpoints).Choose(start, unknown, 0); got.Address != "10.0.0.1:80" {
		t.Errorf("got %+v, want the one without a flag", got)
	}
	endpoints[1].Avoid = AvoidFlagged
	if got := newPicker(endpoints).Choose(start, unknown, 0); got.Address != "10.0.0.0:80" {
		t.Errorf("got %+v, want the emptier of two flagged ones", got)
	}
	endpoints[0].Avoid = AvoidDrained
	if got := newPicker(endpoints).Choose(start, unknown, 0); got.Address != "10.0.0.1:80" {
		t.Errorf("got %+v, want the flagged one rather than the drained one", got)
	}
}

func TestARequestCostsBySizeWithinBounds(t *testing.T) {
	c := Cost{Base: 0.2, PerByte: 0.001, Mean: 1, Most: 8}
	for _, r := range []struct {
		name string
		size int64
		want float64
	}{
		{"unknown", -1, 1}, {"empty", 0, 0.2}, {"usual", 800, 1}, {"an image", 5 << 20, 8},
	} {
		if got := c.of(Request{Size: r.size}); math.Abs(got-r.want) > 1e-12 {
			t.Errorf("%s: %v, want %v", r.name, got, r.want)
		}
	}
	if got := Requests().of(Request{Size: 1 << 40}); got != 1 {
		t.Errorf("where the unit is the request, a large one costs %v, want 1", got)
	}
}

func TestRetriesGoToTheEmptiestOthers(t *testing.T) {
	p := newPicker(at(0, 3, 1, 2))
	p.update.ArrivalRate = 40
	got := p.Choose(start.Add(time.Second), unknown, 0)
	if want := []string{"10.0.0.2:80", "10.0.0.3:80"}; got.Address != "10.0.0.0:80" || !slices.Equal(got.Others, want) {
		t.Errorf("got %+v, want the others %v", got, want)
	}
}

func TestAChoiceIsAnEndpointOfTheUpdateWhateverTheLoads(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 8).Draw(t, "endpoints")
		endpoints := at(make([]float64, n)...)
		for i := range endpoints {
			endpoints[i].Vessel = weighting.Vessel{
				Load:  rapid.Float64Range(0, 1e9).Draw(t, "load"),
				Slots: rapid.Float64Range(1e-6, 1e6).Draw(t, "slots"),
				Speed: rapid.Float64Range(1e-6, 1e6).Draw(t, "speed"),
			}
			endpoints[i].Avoid = Avoidance(rapid.IntRange(0, 2).Draw(t, "avoid"))
		}
		var p Picker
		p.Update(Update{Endpoints: endpoints, ArrivalRate: rapid.Float64Range(0, 1e9).Draw(t, "rate"),
			Cost: Requests()}, start)
		least := AvoidDrained
		for _, e := range endpoints {
			least = min(least, e.Avoid)
		}
		now := start
		for range rapid.IntRange(1, 40).Draw(t, "requests") {
			now = now.Add(time.Duration(rapid.IntRange(0, 1e7).Draw(t, "gap")))
			c := p.Choose(now, unknown, rapid.Float64Range(0, 0.999999).Draw(t, "random"))
			i := slices.IndexFunc(endpoints, func(e Endpoint) bool { return e.Address == c.Address })
			if c.Reason != ReasonFill || i < 0 {
				t.Fatalf("no endpoint: %+v", c)
			}
			if endpoints[i].Avoid > least {
				t.Fatalf("an endpoint that is avoided more than another one: %+v", c)
			}
			if slices.Contains(c.Others, c.Address) {
				t.Fatalf("a retry goes to the same endpoint: %+v", c)
			}
		}
	})
}

func TestOwnChoicesAreBounded(t *testing.T) {
	p := newPicker(at(0, 0))
	for range 2 * MaxOwn {
		p.Choose(start, unknown, 0.5)
	}
	if len(p.owns) > MaxOwn {
		t.Errorf("%d own choices are kept, want at most %d", len(p.owns), MaxOwn)
	}
	now := start.Add(time.Millisecond)
	u := Update{Endpoints: at(0, 0), ArrivalRate: 3 * MaxOwn, Cost: Requests()}
	p.Update(u, now)
	if got := p.loads[0].load + p.loads[1].load; got != MaxOwn {
		t.Errorf("they add %v, want %v", got, MaxOwn)
	}
	for i := range u.Endpoints {
		u.Endpoints[i].LoadAge = time.Second
	}
	p.Update(u, now)
	own := 2. * MaxOwn // a second
	want := u.ArrivalRate*2*time.Second.Seconds() - own*time.Millisecond.Seconds()
	if got := p.arrivals(now, 1); math.Abs(got/want-1) > 0.01 {
		t.Errorf("%v arrivals between two readings, want %v: all but the own ones that are kept", got, want)
	}
}

// An event of the simulation below: the end of a request at a server, the reading of the loads, or their arrival.
type event struct {
	at     float64
	server int // -1: none
	loads  []float64
}

type events []event

func (e events) Len() int           { return len(e) }
func (e events) Less(i, j int) bool { return e[i].at < e[j].at }
func (e events) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)        { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

// A view is what pickers see: every interval the loads leave for them and arrive after the delay, in seconds.
type view struct{ interval, delay float64 }

// waits simulates servers of one slot at a load of 0.8, and returns the sorted waits in mean services. Without pickers,
// each request joins the shortest queue.
func waits(seed uint64, pickers int, service float64, v view) []float64 {
	const servers, requests, load = 20, 30_000, 0.8
	rate := servers * load / service
	random := rand.New(rand.NewPCG(seed, 1))
	draws := rand.New(rand.NewPCG(seed, 2))
	all := make([]Picker, pickers)
	counts, free := make([]float64, servers), make([]float64, servers)
	var queue events
	var out []float64
	named := at(counts...)
	where := make(map[string]int)
	for i, e := range named {
		where[e.Address] = i
	}
	update := func(t float64, loads []float64) {
		endpoints := slices.Clone(named)
		for i := range endpoints {
			endpoints[i].Load = loads[i]
		}
		for i := range all {
			all[i].Update(Update{Endpoints: endpoints, ArrivalRate: rate, Cost: Requests()}, moment(t))
		}
	}
	update(0, counts)
	if pickers > 0 {
		heap.Push(&queue, event{at: v.interval, server: -1})
	}
	for now := 0.0; len(out) < requests; {
		now += random.ExpFloat64() / rate
		for len(queue) > 0 && queue[0].at <= now {
			switch e := heap.Pop(&queue).(event); {
			case e.server >= 0:
				counts[e.server]--
			case e.loads != nil:
				update(e.at, e.loads)
			default:
				heap.Push(&queue, event{e.at + v.delay, -1, slices.Clone(counts)})
				heap.Push(&queue, event{at: e.at + v.interval, server: -1})
			}
		}
		server := shortest(counts, draws)
		if pickers > 0 {
			server = where[all[random.IntN(pickers)].Choose(moment(now), unknown, draws.Float64()).Address]
		}
		begin := max(now, free[server])
		out = append(out, (begin-now)/service)
		free[server] = begin + service*random.ExpFloat64()
		counts[server]++
		heap.Push(&queue, event{at: free[server], server: server})
	}
	slices.Sort(out)
	return out
}

func moment(seconds float64) time.Time { return start.Add(time.Duration(seconds * 1e9)) }

func shortest(counts []float64, draws *rand.Rand) int {
	best, ties := 0, 0
	for i, n := range counts {
		switch {
		case i == 0 || n < counts[best]:
			best, ties = i, 1
		case n == counts[best]:
			if ties++; draws.IntN(ties) == 0 {
				best = i
			}
		}
	}
	return best
}

// Ten pickers with a view that is some milliseconds old wait about as long as one that sees everything, if few requests
// arrive in that time.
func TestTenPickersAreNearTheShortestQueue(t *testing.T) {
	for _, tt := range []struct {
		service float64 // seconds
		most    float64 // of the p99 of the shortest queue
	}{{1, 1.1}, {0.05, 1.58}} {
		var bound, picked float64
		for seed := range uint64(3) {
			b, p := waits(seed, 0, tt.service, view{}), waits(seed, 10, tt.service, view{0.005, 0.003})
			bound += b[len(b)*99/100]
			picked += p[len(p)*99/100]
		}
		t.Logf("p99 of the wait: %.2f mean services, shortest queue %.2f, ratio %.3f", picked/3, bound/3, picked/bound)
		if picked > tt.most*bound {
			t.Errorf("service of %v s: p99 of the wait is %.2f of that of the shortest queue, want at most %v",
				tt.service, picked/bound, tt.most)
		}
	}
}

// BenchmarkChoose has a request that may go anywhere, and one with a subset of all endpoints, which a gateway may name.
func BenchmarkChoose(b *testing.B) {
	for _, n := range []int{20, 1000} {
		endpoints := make([]Endpoint, n)
		all := make([]string, n)
		for i := range endpoints {
			all[i] = fmt.Sprintf("10.0.%d.%d:80", i/256, i%256)
			endpoints[i] = Endpoint{Address: all[i], Vessel: weighting.Vessel{Load: float64(i % 7), Slots: 4, Speed: 1}}
		}
		p := newPicker(endpoints)
		choose := func(r Request) time.Duration { // 16 between two updates
			began := time.Now()
			for range 16 {
				p.Choose(start, r, 0.3)
			}
			took := time.Since(began)
			p.Update(p.update, start)
			return took
		}
		b.Run(fmt.Sprintf("endpoints=%d", n), func(b *testing.B) {
			var anywhere, within time.Duration
			for b.Loop() {
				anywhere += choose(unknown)
				within += choose(Request{Size: -1, Subset: all})
			}
			b.ReportMetric(float64(anywhere.Nanoseconds())/float64(16*b.N), "ns/choice")
			b.ReportMetric(float64(within)/float64(anywhere), "times-with-a-subset")
		})
	}
}
