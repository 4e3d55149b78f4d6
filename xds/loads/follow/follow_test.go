package follow

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"steelyard/e2e/rig/grpctest"
	"steelyard/picking"
	"steelyard/picking/prefix"
	"steelyard/xds/loads/loadsv1"
)

// TestRoutesThatComeBeforeTheLoadsAreKept, of the endpoints that the loads have.
func TestRoutesThatComeBeforeTheLoadsAreKept(t *testing.T) {
	f := New(nil, "envoy-1", []string{"llama"}, slog.New(slog.DiscardHandler))
	f.LearnRoutes()
	p := f.Pool("llama")
	for _, a := range []string{"a", "b"} {
		p.received(&loadsv1.Learned{Clusters: []string{"llama"}, Endpoint: a, Hashes: []uint64{1, 2}, Kept: true}, noon)
	}
	p.set(&loadsv1.Update{Endpoints: []*loadsv1.Endpoint{{Address: "a", Slots: 1, Speed: 1}}}, noon)
	if got, _ := p.Routes(); got.Others != 2 {
		t.Errorf("%+v, want the two of a", got)
	}
}

// TestAnEngineThatRestartedTakesItsRoutesWithIt, and a Steelyard that did takes none: it counts from the start again.
func TestAnEngineThatRestartedTakesItsRoutesWithIt(t *testing.T) {
	f := New(nil, "envoy-1", []string{"llama"}, slog.New(slog.DiscardHandler))
	f.LearnRoutes()
	p := f.Pool("llama")
	update := func(restarts ...int) {
		u := &loadsv1.Update{}
		for i, n := range restarts {
			u.Endpoints = append(u.Endpoints, &loadsv1.Endpoint{Address: string(rune('a' + i)), Restarts: uint32(n),
				Slots: 1, Speed: 1})
		}
		p.set(u, noon)
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

// TestThePoolTakesItsSettingsFromTheUpdate, and follows them when they change.
func TestThePoolTakesItsSettingsFromTheUpdate(t *testing.T) {
	f := New(nil, "envoy-1", []string{"llama"}, slog.New(slog.DiscardHandler))
	f.LearnRoutes()
	p := f.Pool("llama")
	update := func(now time.Time, drop float64, set *loadsv1.Prefix) {
		p.set(&loadsv1.Update{DropFraction: drop, Prefix: set,
			Endpoints: []*loadsv1.Endpoint{{Address: "a", Slots: 1, Speed: 1}}}, now)
	}
	routes := func() int {
		s, _ := p.Routes()
		return s.Own
	}
	update(noon, 0.25, &loadsv1.Prefix{Routes: 2, TtlSeconds: 60, Markers: []uint32{7}, BlockTokens: 128,
		TokensPerByte: 0.3})
	if r := p.Reader(); !slices.Equal(r.Markers, []uint32{7}) || r.BlockTokens != 128 || r.TokensPerByte != 0.3 {
		t.Errorf("prompts are read by %+v", r)
	}
	if now, later := p.Drop(noon), p.Drop(noon.Add(4*time.Second)); now != 0.25 || later != 0 {
		t.Errorf("the share to refuse is %v, and %v when that is old, want 0.25 and 0", now, later)
	}
	prompt := prefix.FromBlocks([]uint64{1, 2, 3}, []int32{1, 2})
	p.Learn(&prompt, "a", noon)
	if routes() != 2 {
		t.Errorf("%d routes, want the limit of 2", routes())
	}
	update(noon.Add(30*time.Second), 0, &loadsv1.Prefix{Routes: 1, TtlSeconds: 60})
	if routes() != 1 {
		t.Errorf("%d routes after the limit was lowered to 1", routes())
	}
	update(noon.Add(62*time.Second), 0, &loadsv1.Prefix{Routes: 1, TtlSeconds: 60})
	if routes() != 0 {
		t.Errorf("%d routes after their time", routes())
	}
}

// TestWhatOthersLearnIsKeptOfTheEndpointsThatThereAre, and of a prompt no more than one may have.
func TestWhatOthersLearnIsKeptOfTheEndpointsThatThereAre(t *testing.T) {
	f := New(nil, "envoy-1", []string{"llama"}, slog.New(slog.DiscardHandler))
	f.LearnRoutes()
	p := f.Pool("llama")
	p.set(&loadsv1.Update{Endpoints: []*loadsv1.Endpoint{{Address: "a", Slots: 1, Speed: 1}}}, noon)
	for _, c := range []struct {
		endpoint        string
		hashes, learned int
	}{{"b", 1, 0}, {"a", prefix.MaxSteps + 1, 0}, {"a", prefix.MaxSteps, prefix.MaxSteps}} {
		l := &loadsv1.Learned{Endpoint: c.endpoint}
		for i := range c.hashes {
			l.Hashes = append(l.Hashes, uint64(i))
		}
		p.received(l, noon)
		if s, _ := p.Routes(); s.Own != 0 || s.Others != c.learned {
			t.Errorf("%d hashes of %s: %+v, want %d routes of others", c.hashes, c.endpoint, s, c.learned)
		}
	}
}

// TestALearnedPromptWaitsForNoSteelyard: while what is learned cannot be shared, it is kept, and no request is held up.
func TestALearnedPromptWaitsForNoSteelyard(t *testing.T) {
	f := New(nil, "envoy-1", []string{"llama"}, slog.New(slog.DiscardHandler))
	f.LearnRoutes()
	p := f.Pool("llama")
	p.set(&loadsv1.Update{Endpoints: []*loadsv1.Endpoint{{Address: "a", Slots: 1, Speed: 1}}}, noon)
	const prompts = 2 * waitingPrompts
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range uint64(prompts) {
			prompt := prefix.FromBlocks([]uint64{i}, nil)
			p.Learn(&prompt, "a", noon)
		}
	}()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatal("it waits")
	}
	if s, _ := p.Routes(); s.Own != prompts {
		t.Errorf("%d routes are learned, want %d", s.Own, prompts)
	}
}

// TestLoadsThatNothingRenewsGrowOldWhileTheyAreSentAgain, as by the heartbeats of a Steelyard whose loop hangs.
func TestLoadsThatNothingRenewsGrowOldWhileTheyAreSentAgain(t *testing.T) {
	p := New(nil, "envoy-1", []string{"llama"}, slog.New(slog.DiscardHandler)).Pool("llama")
	for _, c := range []struct {
		age    float64
		reason picking.Reason
		drop   float64
		old    time.Duration
	}{
		{0, picking.ReasonFill, 0.5, 0},
		{2.5, picking.ReasonFill, 0.5, 2500 * time.Millisecond},
		{3.5, picking.ReasonStale, 0, 3500 * time.Millisecond},
		{math.Inf(1), picking.ReasonStale, 0, time.Hour},
		{-7, picking.ReasonFill, 0.5, 0},
		{math.NaN(), picking.ReasonFill, 0.5, 0},
	} {
		p.set(&loadsv1.Update{AgeSeconds: c.age, DropFraction: 0.5, Cost: &loadsv1.Cost{Mean: 1},
			Endpoints: []*loadsv1.Endpoint{{Address: "a", Slots: 1, Speed: 1}}}, noon)
		choice := p.Choose(noon, picking.Request{Size: -1}, nil)
		_, old, known := p.State(noon)
		if choice.Reason != c.reason || p.Drop(noon) != c.drop || old != c.old || !known {
			t.Errorf("%v s old: choice %+v, %v are refused, age %v", c.age, choice, p.Drop(noon), old)
		}
	}
}

// TestTheAgeOfALoadIsWithinBounds, and a Steelyard that sends none is one of before there was any.
func TestTheAgeOfALoadIsWithinBounds(t *testing.T) {
	for sent, want := range map[float64]time.Duration{
		0: 0, 0.25: 250 * time.Millisecond, -1: 0, math.Inf(1): time.Hour, math.NaN(): 0,
	} {
		e := &loadsv1.Endpoint{Address: "a", Slots: 1, Speed: 1, LoadAgeSeconds: sent}
		u := updateOf(&loadsv1.Update{Endpoints: []*loadsv1.Endpoint{e}})
		if got := u.Endpoints[0].LoadAge; got != want {
			t.Errorf("%v s: %v, want %v", sent, got, want)
		}
	}
}

// TestAShareIsWithinBounds, and a Steelyard that sends none has all go by their loads.
func TestAShareIsWithinBounds(t *testing.T) {
	for sent, want := range map[float64]float64{0: 0, 0.25: 0.25, -1: 0, 2: 1, math.NaN(): 0} {
		e := &loadsv1.Endpoint{Address: "a", Slots: 1, Speed: 1, Share: sent}
		u := updateOf(&loadsv1.Update{Endpoints: []*loadsv1.Endpoint{e}})
		if got := u.Endpoints[0].Share; got != want {
			t.Errorf("%v: %v, want %v", sent, got, want)
		}
	}
}

// TestADrainedEndpointIsAvoidedMoreThanAFlaggedOne, and a Steelyard that sends only flags has it avoided like those.
func TestADrainedEndpointIsAvoidedMoreThanAFlaggedOne(t *testing.T) {
	for _, c := range []struct {
		avoid, drained bool
		want           picking.Avoidance
	}{{false, false, picking.AvoidNone}, {true, false, picking.AvoidFlagged}, {true, true, picking.AvoidDrained}} {
		e := &loadsv1.Endpoint{Address: "a", Slots: 1, Speed: 1, Avoid: c.avoid, Drained: c.drained}
		u := updateOf(&loadsv1.Update{Endpoints: []*loadsv1.Endpoint{e}})
		if got := u.Endpoints[0].Avoid; got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

func TestALoopRunsAgainAfterAPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		runs, recovered := 0, 0
		guard := func() {
			if recover() != nil {
				recovered++
			}
		}
		Again(ctx, guard, func(ctx context.Context) {
			if runs++; runs < 3 {
				panic("a defect")
			}
			cancel()
		})
		if runs != 3 || recovered != 2 {
			t.Errorf("it ran %d times, %d panics were recovered; want 3 and 2", runs, recovered)
		}
	})
}

// TestTheLogSaysOnceWhyTheLoadsAreNotFollowed, also if they never were.
func TestTheLogSaysOnceWhyTheLoadsAreNotFollowed(t *testing.T) {
	f := New(nil, "envoy-1", []string{"lama"}, slog.New(slog.DiscardHandler))
	refused := func(code codes.Code) error { return fmt.Errorf("following: %w", status.Error(code, "no")) }
	distrusted := status.Error(codes.Unavailable, "remote error: tls: expired certificate")
	for i, c := range []struct {
		err  error
		news bool
	}{
		{refused(codes.Unavailable), true}, // it has never been there
		{refused(codes.Unavailable), false},
		{errors.New("no update for 3s"), false},
		{refused(codes.NotFound), true}, // it is there, and has no such cluster
		{refused(codes.NotFound), false},
		{nil, true},
		{nil, false},
		{errors.New("no update for 3s"), true},
		{refused(codes.PermissionDenied), true},
		{distrusted, true},
		{refused(codes.Unavailable), false}, // another address, or a restart
		{distrusted, false},
		{nil, true},
	} {
		if got := f.setState(c.err); got != c.news || !errors.Is(f.Status(), c.err) {
			t.Errorf("%d, %v: logged %t, want %t; the status is %v", i, c.err, got, c.news, f.Status())
		}
	}
}

// refusing is a Steelyard without the cluster.
type refusing struct {
	loadsv1.UnimplementedLoadsServer
	asked chan struct{}
}

func (r *refusing) Follow(*loadsv1.FollowRequest, grpc.ServerStreamingServer[loadsv1.Update]) error {
	r.asked <- struct{}{}
	return status.Error(codes.NotFound, `no cluster "lama" is configured: did you mean llama?`)
}

func TestAFollowerOfAnUnknownClusterLogsTheAnswerOnce(t *testing.T) {
	r := &refusing{asked: make(chan struct{})}
	address, _ := grpctest.Serve(t, func(g *grpc.Server) { loadsv1.RegisterLoadsServer(g, r) })
	conn, err := Dial(address, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var log bytes.Buffer // written by Run, and read after it
	f := New(conn, "envoy-1", []string{"lama"}, slog.New(slog.NewTextHandler(&log, nil)))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	for range 4 {
		<-r.asked
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "did you mean llama?") {
		t.Errorf("the log has\n%s", text)
	}
}

// TestWhatIsAskedNamesSomeEndpointsAndTheirDifferences: where many have a part of a prompt, those that have no more
// than the others are not named.
func TestWhatIsAskedNamesSomeEndpointsAndTheirDifferences(t *testing.T) {
	for _, c := range []struct {
		name                string
		all, deeper         int // endpoints that have the first half, and of them those that have three quarters
		named               int
		share, sharedByRest float64
	}{
		{"nothing", 0, 0, 0, 0, 0},
		{"a few", 3, 1, 3, 0.75, 0.5},
		{"as many as are named", maxCached, 1, maxCached, 0.75, 0.5},
		{"all", 3 * maxCached, 1, 1, 0.25, 0},
		{"all alike", 3 * maxCached, 0, 0, 0, 0},
		{"more than are named", 3 * maxCached, 2 * maxCached, 0, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := New(nil, "envoy-1", []string{"llama"}, slog.New(slog.DiscardHandler))
			p := f.Pool("llama")
			prompt := prefix.FromBlocks([]uint64{1, 2, 3, 4}, []int32{2, 3})
			if cached, key := p.Asked(&prompt); cached != nil || key != 0 {
				t.Errorf("where nothing is learned: %v, key %d", cached, key)
			}
			f.LearnRoutes()
			u := &loadsv1.Update{}
			for i := range c.all {
				u.Endpoints = append(u.Endpoints, &loadsv1.Endpoint{Address: fmt.Sprint("e", i), Slots: 1, Speed: 1})
			}
			p.set(u, noon)
			half, more := prompt, prompt
			half.Steps, more.Steps = prompt.Steps[:1], prompt.Steps[:2]
			for i := range c.all {
				learned := half
				if i < c.deeper {
					learned = more
				}
				p.Learn(&learned, fmt.Sprint("e", i), noon)
			}
			cached, key := p.Asked(&prompt)
			if len(cached) != c.named || key == 0 {
				t.Fatalf("%d endpoints are named, and the key is %d: %v", len(cached), key, cached)
			}
			for i, got := range cached {
				want := c.sharedByRest
				if i < c.deeper {
					want = c.share
				}
				if got.Share != want {
					t.Errorf("the share of %s is %v, want %v", got.Address, got.Share, want)
				}
			}
			again, _ := p.Asked(&prompt)
			if len(cached) > 0 && &again[0] == &cached[0] {
				t.Error("two requests have the same memory")
			}
		})
	}
}

func TestARequestNamesItsClassAndTenantInOurHeadersOrThoseOfLLMD(t *testing.T) {
	f := New(nil, "envoy-1", []string{"llama"}, slog.New(slog.DiscardHandler))
	pool := f.Pool("llama")
	names := func(headers map[string]string) [2]string {
		class, tenant, ok := pool.Queue(func(name string) string { return headers[name] })
		if !ok {
			return [2]string{"no queue"}
		}
		return [2]string{class, tenant}
	}
	if got := names(map[string]string{"x-class": "gold"}); got != [2]string{"no queue"} {
		t.Errorf("without a queue: %v", got)
	}
	for _, c := range []struct {
		configured *loadsv1.QueueHeaders
		headers    map[string]string
		want       [2]string
	}{
		{&loadsv1.QueueHeaders{Class: "x-class", Tenant: "x-tenant"}, map[string]string{"x-class": "gold",
			"x-tenant": "a", "x-llm-d-inference-objective": "batch", "x-llm-d-inference-fairness-id": "b"},
			[2]string{"gold", "a"}},
		{&loadsv1.QueueHeaders{Class: "x-class", Tenant: "x-tenant"}, map[string]string{
			"x-llm-d-inference-objective": "batch", "x-llm-d-inference-fairness-id": "b"}, [2]string{"batch", "b"}},
		{&loadsv1.QueueHeaders{}, map[string]string{"": "none", "x-llm-d-inference-objective": "batch"},
			[2]string{"batch", ""}},
		{&loadsv1.QueueHeaders{Class: "x-class"}, nil, [2]string{"", ""}},
	} {
		pool.set(&loadsv1.Update{Queue: c.configured}, noon)
		if got := names(c.headers); got != c.want {
			t.Errorf("%v, configured %v: class and tenant %q, want %q", c.headers, c.configured, got, c.want)
		}
	}
}
