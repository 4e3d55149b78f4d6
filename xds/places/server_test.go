package places

import (
	"context"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"steelyard/e2e/rig/grpctest"
	"steelyard/picking"
	"steelyard/picking/queue"
	"steelyard/weighting"
	"steelyard/xds/loads/loadsv1"
)

// results counts how the waiting of requests ended.
type results struct {
	mu sync.Mutex
	by map[string]int
}

func (r *results) add(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.by[what]++
}

func (r *results) of(what string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.by[what]
}

func (r *results) Waited(cluster, class, result string, _ time.Duration) {
	r.add(cluster + " " + class + " " + result)
}

func (r *results) Left(cluster, class string) { r.add(cluster + " " + class + " left") }

// served is a server that runs until the test ends.
type served struct {
	*Server
	t       *testing.T
	results *results
	conn    *grpc.ClientConn
}

// serve has the queue of cluster llama, with one endpoint that has a place for one request.
func serve(t *testing.T) *served {
	t.Helper()
	r := &results{by: make(map[string]int)}
	s := &served{Server: New(r, slog.New(slog.DiscardHandler), time.Time{}), t: t, results: r}
	address, _ := grpctest.Serve(t, s.Register)
	s.conn = grpctest.Connect(t, address)
	ctx, cancel := context.WithCancel(context.Background())
	var loops sync.WaitGroup
	loops.Go(func() { _ = s.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		s.Close()
		loops.Wait()
	})
	s.Configure(map[string]*Settings{"llama": one(time.Hour)})
	s.decide()
	return s
}

// one returns a class in which requests wait for at most so long.
func one(wait time.Duration) *Settings {
	return &Settings{MaxInFlight: 1, Classes: []queue.Class{{Name: "all", Weight: 1, MaxWaiting: 10, MaxWait: wait}}}
}

// decide publishes a decision with an idle endpoint.
func (s *served) decide() {
	s.Publish("llama", weighting.NewLaw(weighting.DefaultParams()).Step(time.Now(), weighting.Snapshot{
		Endpoints: []weighting.Endpoint{{Address: "10.0.0.1:80", Capacity: 4}}}))
}

// newTestHall is the hall of the only replica.
func newTestHall(o Observer, opens time.Time) *hall {
	return newHall("llama", o, opens, single(), time.Time{})
}

// join adds a stream.
func (h *hall) join(s *stream) { _ = h.enter(s, h.leader, time.Now()) }

func TestTheSlotsOfAnEndpointAreKnownOrUnknown(t *testing.T) {
	law := weighting.NewLaw(weighting.DefaultParams())
	d := law.Step(time.Now(), weighting.Snapshot{Endpoints: []weighting.Endpoint{{Address: "10.0.0.1:80", Capacity: 4},
		{Address: "10.0.0.2:80"}}})
	if got := atOnce(&d.Endpoints[0]); got != 4 {
		t.Errorf("%v slots are known of an endpoint with a capacity of 4", got)
	}
	if got := atOnce(&d.Endpoints[1]); !math.IsNaN(got) {
		t.Errorf("%v slots are known of an endpoint that never had a queue", got)
	}
}

// keepDeciding publishes decisions, as loops do, until the test ends.
func (s *served) keepDeciding() {
	done := make(chan struct{})
	var loop sync.WaitGroup
	loop.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(100 * time.Millisecond):
				s.decide()
			}
		}
	})
	s.t.Cleanup(func() {
		close(done)
		loop.Wait()
	})
}

type client struct {
	t *testing.T
	grpc.BidiStreamingClient[loadsv1.WaitRequest, loadsv1.WaitResponse]
	hang func()
}

// join opens a stream.
func (s *served) join(first *loadsv1.WaitRequest) *client {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	s.t.Cleanup(cancel)
	stream, err := loadsv1.NewQueueClient(s.conn).Wait(ctx)
	if err != nil {
		s.t.Fatal(err)
	}
	c := &client{s.t, stream, cancel}
	c.tell(first)
	return c
}

func (c *client) tell(m *loadsv1.WaitRequest) {
	c.t.Helper()
	if err := c.Send(m); err != nil {
		c.t.Fatal(err)
	}
}

func (c *client) arrive(ids ...uint64) {
	c.t.Helper()
	m := &loadsv1.WaitRequest{}
	for _, id := range ids {
		m.Arrivals = append(m.Arrivals, &loadsv1.Arrival{Id: id, Class: "all", Size: -1})
	}
	c.tell(m)
}

// verdict returns the next one.
func (c *client) verdict() *loadsv1.Verdict {
	c.t.Helper()
	for {
		m, err := c.Recv()
		if err != nil {
			c.t.Fatal(err)
		}
		if v := m.GetVerdicts(); len(v) > 0 {
			if len(v) > 1 {
				c.t.Fatalf("verdicts %v, want one", v)
			}
			return v[0]
		}
	}
}

// ended returns the status of the stream.
func (c *client) ended() error {
	c.t.Helper()
	for {
		if _, err := c.Recv(); err != nil {
			return err
		}
	}
}

func (s *served) eventually(what string, check func() bool) {
	s.t.Helper()
	const patience = 20 * time.Second
	for end := time.Now().Add(patience); !check(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

func (s *served) waits(n, held int) func() bool {
	return func() bool {
		state, on := s.State("llama")
		return on && state.Classes[0].Waiting == n && state.InFlight.Or(-1) == float64(held)
	}
}

var llama = &loadsv1.WaitRequest{Cluster: "llama", Picker: "envoy-1"}

func TestRequestsOfAllEnvoysWaitInOneQueue(t *testing.T) {
	s := serve(t)
	s.keepDeciding()
	a, b := s.join(llama), s.join(llama)
	a.arrive(1)
	if v := a.verdict(); v.GetId() != 1 || v.GetEndpoint() != "10.0.0.1:80" {
		t.Fatalf("the first: %v", v)
	}
	b.arrive(1)
	s.eventually("the second waits", s.waits(1, 1))
	a.arrive(2)
	s.eventually("the third waits", s.waits(2, 1))
	a.tell(&loadsv1.WaitRequest{Ended: []uint64{1}})
	if v := b.verdict(); v.GetId() != 1 || v.GetEndpoint() == "" {
		t.Fatalf("the second: %v", v)
	}
	b.tell(&loadsv1.WaitRequest{Ended: []uint64{1}})
	if v := a.verdict(); v.GetId() != 2 || v.GetEndpoint() == "" {
		t.Fatalf("the third: %v", v)
	}
	if got := s.results.of("llama all granted"); got != 3 {
		t.Errorf("%d were granted", got)
	}
	if state, _ := s.State("llama"); state.Envoys != 2 || *state.MaxInFlight != 1 || state.Classes[0].Granted != 3 {
		t.Errorf("the state is %+v", state)
	}
}

// TestAPlaceIsGrantedWhereAnEnvoySaysThatThePromptIs, of as many endpoints as are taken. Where it says nothing, as an
// older module does, by chance.
func TestAPlaceIsGrantedWhereAnEnvoySaysThatThePromptIs(t *testing.T) {
	const requests, there = 40, "10.0.0.9:80"
	at := func(others int, share float64) []*loadsv1.Cached {
		elsewhere := slices.Repeat([]*loadsv1.Cached{{Endpoint: "10.0.0.5:80"}}, others)
		return append(elsewhere, &loadsv1.Cached{Endpoint: there, Share: share})
	}
	for name, c := range map[string]struct {
		longest bool
		cached  []*loadsv1.Cached
		granted bool // there
	}{
		"nothing":           {false, nil, false},
		"one":               {false, at(0, 0.9), true},
		"the last of many":  {false, at(MaxCached-1, 0.9), true},
		"one too many":      {false, at(MaxCached, 0.9), false},
		"the longest match": {true, at(0, 0.1), true},
	} {
		t.Run(name, func(t *testing.T) {
			granted := 0
			for range requests {
				h, now := newTestHall(&results{by: make(map[string]int)}, time.Time{}), time.Now()
				o := one(time.Hour)
				o.LongestMatch = c.longest
				h.configure(o, now)
				s := newStream(now)
				h.join(s)
				d := weighting.NewLaw(weighting.DefaultParams()).Step(now, weighting.Snapshot{
					Endpoints: []weighting.Endpoint{{Address: "10.0.0.1:80", Capacity: 4},
						{Address: there, Capacity: 4}}})
				d.Work = &weighting.Work{PromptTokens: 900, OutputTokens: 200, TokensPerByte: 0.25, BySize: true}
				h.decided(&d, now)
				if err := h.receive(s, &loadsv1.WaitRequest{Arrivals: []*loadsv1.Arrival{{Id: 1, Size: 4000,
					Cached: c.cached}}}, now); err != nil {
					t.Fatal(err)
				}
				v := s.taken()
				if len(v) != 1 || v[0].GetEndpoint() == "" {
					t.Fatalf("the verdicts are %v", v)
				}
				if v[0].GetEndpoint() == there {
					granted++
				}
			}
			if (granted == requests) != c.granted {
				t.Errorf("%d of %d were granted a place there", granted, requests)
			}
		})
	}
}

// TestTheStateSaysWhetherSeveralEnvoysMayHaveOneStream: while a picker is there that they may share.
func TestTheStateSaysWhetherSeveralEnvoysMayHaveOneStream(t *testing.T) {
	s := serve(t)
	is := func(streams int, shared bool) func() bool {
		return func() bool {
			state, _ := s.State("llama")
			return state.Envoys == streams && state.Shared == shared
		}
	}
	s.join(llama)
	s.eventually("an Envoy's module is there", is(1, false))
	picker := s.join(&loadsv1.WaitRequest{Cluster: "llama", Picker: "picker-1", Shared: true})
	s.eventually("a picker is there", is(2, true))
	picker.hang()
	s.eventually("the picker has left", is(1, false))
}

func TestARequestThatLeavesIsForgotten(t *testing.T) {
	s := serve(t)
	c := s.join(llama)
	c.arrive(1, 2)
	s.eventually("one waits", s.waits(1, 1))
	c.tell(&loadsv1.WaitRequest{Ended: []uint64{2}})
	s.eventually("none waits", s.waits(0, 1))
	if got := s.results.of("llama all left"); got != 1 {
		t.Errorf("%d left", got)
	}
}

func TestABrokenStreamGivesItsPlacesToTheOthers(t *testing.T) {
	s := serve(t)
	s.keepDeciding()
	a, b := s.join(llama), s.join(llama)
	a.arrive(1)
	a.verdict()
	b.arrive(7)
	s.eventually("it waits", s.waits(1, 1))
	a.hang()
	if v := b.verdict(); v.GetId() != 7 || v.GetEndpoint() == "" {
		t.Errorf("after the other stream broke: %v", v)
	}
}

// TestAnEnvoyThatHangsGivesItsPlacesToTheOthers, though its connection stays open.
func TestAnEnvoyThatHangsGivesItsPlacesToTheOthers(t *testing.T) {
	for what, c := range map[string]struct {
		pause  time.Duration // between two ticks
		silent time.Duration // of the stream that holds the place
		gone   bool
	}{
		"three heartbeats are missing": {tick, picking.Stale + tick, true},
		"the third is late":            {tick, picking.Stale, false},
		"Steelyard hung itself":        {2 * picking.Stale, 2 * picking.Stale, false},
	} {
		t.Run(what, func(t *testing.T) {
			r := &results{by: make(map[string]int)}
			h, now := newTestHall(r, time.Time{}), time.Now()
			h.configure(one(time.Hour), now)
			publish := func() {
				d := weighting.NewLaw(weighting.DefaultParams()).Step(now, weighting.Snapshot{
					Endpoints: []weighting.Endpoint{{Address: "10.0.0.1:80", Capacity: 4}}})
				h.decided(&d, now)
			}
			publish()
			hangs, waits := newStream(now), newStream(now)
			for _, s := range []*stream{hangs, waits} {
				h.join(s)
				if err := h.receive(s, &loadsv1.WaitRequest{Arrivals: []*loadsv1.Arrival{{Id: 1}}}, now); err != nil {
					t.Fatal(err)
				}
			}
			h.tick(now)
			pass := func(d time.Duration) {
				for end := now.Add(d); now.Before(end); {
					now = now.Add(c.pause)
					h.tick(now)
					publish()
					if err := h.receive(waits, &loadsv1.WaitRequest{}, now); err != nil {
						t.Fatal(err)
					}
				}
			}
			pass(c.silent)
			if state, _ := h.state(); state.Envoys != map[bool]int{true: 1, false: 2}[c.gone] {
				t.Errorf("%d streams, want that one has ended: %t", state.Envoys, c.gone)
			}
			err := h.receive(hangs, &loadsv1.WaitRequest{}, now)
			if ended := status.Code(err) == codes.DeadlineExceeded; ended != c.gone {
				t.Errorf("its next message: %v, want that the stream has ended: %t", err, c.gone)
			}
			pass(queue.Grace + tick)
			if got, want := r.of("llama all granted"), map[bool]int{true: 2, false: 1}[c.gone]; got != want {
				t.Errorf("%d requests have a place, want %d", got, want)
			}
		})
	}
}

func TestAStreamWhoseEnvoyHangsEndsWithTheReason(t *testing.T) {
	s := serve(t)
	s.keepDeciding()
	c := s.join(&loadsv1.WaitRequest{Cluster: "llama"})
	if err := c.ended(); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("it ended with %v", err)
	}
	again := s.join(&loadsv1.WaitRequest{Cluster: "llama", Held: []*loadsv1.Held{{Id: 4, Endpoint: "10.0.0.1:80"}}})
	again.arrive(5)
	s.eventually("what it has in flight holds its place again", s.waits(1, 1))
}

func TestEndsMakeRoomForTheArrivalsOfTheirMessage(t *testing.T) {
	s := newStream(time.Now())
	h := newTestHall(&results{by: make(map[string]int)}, time.Time{})
	h.configure(one(time.Hour), time.Now())
	h.join(s)
	for n := range uint64(MaxRequests) {
		s.open[n] = struct{}{}
	}
	full := &loadsv1.WaitRequest{Arrivals: []*loadsv1.Arrival{{Id: MaxRequests}}}
	if err := h.receive(s, full, time.Now()); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("one too many: %v, want ResourceExhausted", err)
	}
	full.Ended = []uint64{7}
	if err := h.receive(s, full, time.Now()); err != nil {
		t.Errorf("one for one that ended: %v", err)
	}
}

func TestARequestHasWaitedForAnHourAtMostWhateverItsEnvoySays(t *testing.T) {
	for _, said := range []time.Duration{time.Minute, time.Hour, 100 * time.Hour, math.MaxInt64} {
		s, h := newStream(noon), newTestHall(&results{by: make(map[string]int)}, noon.Add(time.Second))
		h.configure(one(time.Hour), noon)
		h.join(s)
		arrival := &loadsv1.Arrival{Id: 1, WaitedMicroseconds: uint64(said.Microseconds())}
		if said == math.MaxInt64 {
			arrival.WaitedMicroseconds = math.MaxUint64
		}
		if err := h.receive(s, &loadsv1.WaitRequest{Arrivals: []*loadsv1.Arrival{arrival}}, noon); err != nil {
			t.Fatal(err)
		}
		state, _ := h.state()
		if waited := noon.Sub(state.Classes[0].OldestAt.Time); waited != min(said, time.Hour) {
			t.Errorf("a request that says %v counts as one that has waited for %v", said, waited)
		}
	}
}

func TestANewStreamNamesTheRequestsInFlight(t *testing.T) {
	s := serve(t)
	c := s.join(&loadsv1.WaitRequest{Cluster: "llama", Held: []*loadsv1.Held{{Id: 4, Endpoint: "10.0.0.1:80"}}})
	c.arrive(5)
	s.eventually("it waits for the place", s.waits(1, 1))
}

func TestARequestThatWaitsForTooLongIsRefused(t *testing.T) {
	s := serve(t)
	s.keepDeciding()
	s.Configure(map[string]*Settings{"llama": one(100 * time.Millisecond)})
	c := s.join(llama)
	c.arrive(1)
	c.verdict()
	c.arrive(2)
	v := c.verdict()
	if v.GetId() != 2 || v.GetRefused() != string(queue.RefusedTimeout) || v.GetRetryAfterSeconds() != 1 {
		t.Errorf("the verdict is %v", v)
	}
	if state, _ := s.State("llama"); state.Classes[0].RefusedTimeout != 1 {
		t.Errorf("the state is %+v", state)
	}
}

func TestAQueueThatIsSwitchedOffReleasesItsRequests(t *testing.T) {
	s := serve(t)
	c := s.join(llama)
	c.arrive(1)
	c.verdict()
	c.arrive(2)
	s.eventually("it waits", s.waits(1, 1))
	s.Configure(nil)
	if v := c.verdict(); v.GetId() != 2 || v.GetEndpoint() != "" || v.GetRefused() != "" {
		t.Errorf("the verdict is %v, want neither endpoint nor refusal", v)
	}
	if _, on := s.State("llama"); on {
		t.Error("the queue is on")
	}
	if err := s.join(llama).ended(); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("a stream without a queue ended with %v", err)
	}
}

func TestStreamsThatDoNotFitAreEnded(t *testing.T) {
	many := make([]*loadsv1.Arrival, MaxBatch+1)
	for i := range many {
		many[i] = &loadsv1.Arrival{Id: uint64(i)}
	}
	held := make([]*loadsv1.Held, MaxRequests+1)
	for i := range held {
		held[i] = &loadsv1.Held{Id: uint64(i), Endpoint: "a"}
	}
	s := serve(t)
	for what, c := range map[string]struct {
		messages []*loadsv1.WaitRequest
		want     codes.Code
	}{
		"no such cluster":        {[]*loadsv1.WaitRequest{{Cluster: "lama"}}, codes.FailedPrecondition},
		"a message too large":    {[]*loadsv1.WaitRequest{llama, {Arrivals: many}}, codes.InvalidArgument},
		"too many requests":      {[]*loadsv1.WaitRequest{{Cluster: "llama", Held: held}}, codes.ResourceExhausted},
		"places held in between": {[]*loadsv1.WaitRequest{llama, {Held: held[:1]}}, codes.InvalidArgument},
		"a name longer than that": {[]*loadsv1.WaitRequest{{Cluster: strings.Repeat("x", 5000)}},
			codes.FailedPrecondition},
	} {
		t.Run(what, func(t *testing.T) {
			client := s.join(c.messages[0])
			for _, m := range c.messages[1:] {
				client.tell(m)
			}
			if err := client.ended(); status.Code(err) != c.want {
				t.Errorf("it ended with %v, want %v", err, c.want)
			}
		})
	}
}

func TestCloseEndsTheStreams(t *testing.T) {
	s := serve(t)
	c := s.join(llama)
	c.arrive(1)
	c.verdict()
	s.Close()
	if err := c.ended(); status.Code(err) != codes.Unavailable {
		t.Errorf("it ended with %v", err)
	}
	if err := s.join(llama).ended(); status.Code(err) != codes.Unavailable {
		t.Errorf("after Close: %v", err)
	}
}

func TestRequestsInFlightAreThoseThatAreReported(t *testing.T) {
	in := func(state weighting.FieldState) []weighting.Input {
		return []weighting.Input{{Field: weighting.FieldQueue, Value: 9, State: weighting.StateFresh},
			{Field: weighting.FieldInFlight, Value: 3, State: state}}
	}
	for what, c := range map[string]struct {
		e    weighting.EndpointDecision
		want float64 // below 0: unknown
	}{
		"the load in requests": {weighting.EndpointDecision{Load: 5, LoadSource: weighting.LoadFused}, 5},
		"only a median": {weighting.EndpointDecision{Load: 5, LoadSource: weighting.LoadMedian,
			Inputs: in(weighting.StateNeutral)}, -1},
		"work, and a count": {weighting.EndpointDecision{Load: 5, Work: &weighting.EndpointWork{},
			Inputs: in(weighting.StateHold)}, 3},
		"work, and an old count": {weighting.EndpointDecision{Load: 5, Work: &weighting.EndpointWork{},
			Inputs: in(weighting.StateDecay)}, -1},
	} {
		got := inFlight(&c.e)
		if c.want < 0 && got == got || c.want >= 0 && got != c.want {
			t.Errorf("%s: %v, want %v", what, got, c.want)
		}
	}
}
