package loads

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"steelyard/weighting"
	"steelyard/xds/loads/loadsv1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A wire is a stream to one follower; one that is blocked does not read.
type wire struct {
	grpc.ServerStream
	ctx     context.Context
	sent    []*loadsv1.Update
	at      []time.Time
	blocked chan struct{} // nil: reads at once
}

func (w *wire) Context() context.Context { return w.ctx }

func (w *wire) Send(u *loadsv1.Update) error {
	if w.blocked != nil {
		<-w.blocked
	}
	w.sent, w.at = append(w.sent, u), append(w.at, time.Now())
	return nil
}

// decision has one endpoint with a load of n requests.
func decision(n float64) weighting.Decision { return decisionOf(1, n) }

// decisionOf has so many endpoints.
func decisionOf(endpoints int, n float64) weighting.Decision {
	var s weighting.Snapshot
	for i := range endpoints {
		s.Endpoints = append(s.Endpoints, weighting.Endpoint{Address: fmt.Sprintf("10.0.%d.%d:80", i/250, 1+i%250),
			Capacity: 4, InFlight: weighting.Reading{Value: n, At: time.Now()}})
	}
	return weighting.NewLaw(weighting.DefaultParams()).Step(time.Now(), s)
}

// follow runs one stream in a bubble until f returns, and returns how it ended.
func follow(s *Server, w *wire, r *loadsv1.FollowRequest, f func()) error {
	ctx, cancel := context.WithCancel(context.Background())
	w.ctx = ctx
	done := make(chan error, 1)
	go func() { done <- s.Follow(r, w) }()
	synctest.Wait()
	f()
	cancel()
	return <-done
}

func TestAFollowerGetsWhatTheLawDecidedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, w := New(slog.New(slog.DiscardHandler)), &wire{}
		s.Configure(map[string]Settings{"llama": {Queue: &loadsv1.QueueHeaders{Class: "x-class"},
			Prefix: &loadsv1.Prefix{Routes: 7, TtlSeconds: 8, Markers: []uint32{9}, LongestMatch: true}}})
		d := decision(3)
		d.Endpoints[0].LoadAge = 250 * time.Millisecond
		d.Work, d.DropFraction, d.Endpoints[0].BlockTokens = &weighting.Work{TokensPerByte: 0.25}, 0.5, 128
		s.Publish("llama", d)
		err := follow(s, w, &loadsv1.FollowRequest{Picker: "p", Clusters: []string{"llama"}}, func() {})
		if status.Code(err) != codes.Unavailable {
			t.Errorf("the stream ended with %v", err)
		}
		if len(w.sent) != 1 || len(w.sent[0].GetEndpoints()) != 1 {
			t.Fatalf("sent %v, want one update with one endpoint", w.sent)
		}
		u, e := w.sent[0], w.sent[0].GetEndpoints()[0]
		if u.GetCluster() != "llama" || u.GetRemoved() || u.GetCost().GetMean() != 1 || u.GetCost().GetPerByte() != 0 ||
			u.GetDropFraction() != 0.5 || u.GetQueue().GetClass() != "x-class" {
			t.Errorf("update %v", u)
		}
		p := u.GetPrefix()
		if p.GetRoutes() != 7 || p.GetTtlSeconds() != 8 || !slices.Equal(p.GetMarkers(), []uint32{9}) ||
			!p.GetLongestMatch() || p.GetBlockTokens() != 128 || p.GetTokensPerByte() != 0.25 {
			t.Errorf("of prompts %v", p)
		}
		if e.GetAddress() != "10.0.0.1:80" || e.GetLoad() != 3 || e.GetSpeed() != 1 || !(e.GetSlots() > 0) ||
			e.GetAvoid() || e.GetLoadAgeSeconds() != 0.25 {
			t.Errorf("endpoint %v, want a load of 3 that is 250 ms old", e)
		}
	})
}

// TestAvoidanceArrivesAsItWasSent: a picker that knows only flags avoids a drained endpoint, too.
func TestAvoidanceArrivesAsItWasSent(t *testing.T) {
	now := time.Now()
	d := &decided{decision: weighting.NewLaw(weighting.DefaultParams()).Step(now, weighting.Snapshot{
		Endpoints: []weighting.Endpoint{{Address: "10.0.0.1:80"}, {Address: "10.0.0.2:80"},
			{Address: "10.0.0.3:80", Override: weighting.Override{Drained: true}}}}), at: now}
	d.decision.Endpoints[1].Overloaded = true
	for i, want := range []struct{ avoid, drained bool }{{false, false}, {true, false}, {true, true}} {
		e := updateOf("llama", d).GetEndpoints()[i]
		if e.GetAvoid() != want.avoid || e.GetDrained() != want.drained {
			t.Errorf("%s: avoid %v, drained %v; want %+v", e.GetAddress(), e.GetAvoid(), e.GetDrained(), want)
		}
	}
}

// TestAPinnedEndpointIsSentWithItsShare, which no load would give it.
func TestAPinnedEndpointIsSentWithItsShare(t *testing.T) {
	now := time.Now()
	snapshot := weighting.Snapshot{Endpoints: []weighting.Endpoint{
		{Address: "10.0.0.1:80", Capacity: 4, Override: weighting.Override{Share: 0.3}},
		{Address: "10.0.0.2:80", Capacity: 4}}}
	d := &decided{decision: weighting.NewLaw(weighting.DefaultParams()).Step(now, snapshot), at: now}
	sent := updateOf("llama", d).GetEndpoints()
	if pinned, other := sent[0].GetShare(), sent[1].GetShare(); pinned != 0.3 || other != 0 {
		t.Errorf("shares %v and %v, want 0.3 and none", pinned, other)
	}
}

func TestChangesAreSentTogetherAndNoFasterThanTheInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, w := New(slog.New(slog.DiscardHandler)), &wire{}
		_ = follow(s, w, &loadsv1.FollowRequest{}, func() {
			for i := range 50 {
				s.Publish("llama", decision(float64(i)))
				time.Sleep(time.Millisecond)
			}
			synctest.Wait()
		})
		if n := len(w.sent); n < 9 || n > 11 {
			t.Errorf("50 changes in 50 ms were sent as %d updates, want one each 5 ms", n)
		}
		for i := 1; i < len(w.at); i++ {
			if gap := w.at[i].Sub(w.at[i-1]); gap < MinInterval {
				t.Errorf("updates %v apart", gap)
			}
		}
		time.Sleep(MinInterval)
	})
}

// TestManyEndpointsDoNotFloodAFollower: what one stream is sent is bounded, however often all loads change.
func TestManyEndpointsDoNotFloodAFollower(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, w := New(slog.New(slog.DiscardHandler)), &wire{}
		d := decisionOf(5000, 1)
		const length = time.Second
		_ = follow(s, w, &loadsv1.FollowRequest{}, func() {
			for begun := time.Now(); time.Since(begun) < length; time.Sleep(MinInterval) {
				s.Publish("llama", d)
			}
			synctest.Wait()
		})
		bytes := 0
		for _, u := range w.sent {
			bytes += proto.Size(u)
		}
		const most = BytesPerSecond * length / time.Second
		if size := bytes / len(w.sent); bytes > int(most)+2*size || bytes < int(most)-2*size {
			t.Errorf("%d updates of %d bytes in %v, want %d bytes", len(w.sent), size, length, most)
		}
	})
}

func TestWithoutAChangeThereIsAHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, w := New(slog.New(slog.DiscardHandler)), &wire{}
		s.Publish("llama", decision(1))
		_ = follow(s, w, &loadsv1.FollowRequest{}, func() { time.Sleep(10*Heartbeat + Heartbeat/2) })
		if n := len(w.sent); n != 11 {
			t.Errorf("%d updates in 10.5 heartbeats, want 11", n)
		}
		for i, u := range w.sent {
			if want := float64(i) * Heartbeat.Seconds(); math.Abs(u.GetAgeSeconds()-want) > 1e-6 {
				t.Errorf("heartbeat %d says that the decision is %v s old, want %v", i, u.GetAgeSeconds(), want)
			}
		}
	})
}

func TestAFollowerThatDoesNotReadGetsTheNewestState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, w := New(slog.New(slog.DiscardHandler)), &wire{blocked: make(chan struct{})}
		s.Publish("llama", decision(0))
		_ = follow(s, w, &loadsv1.FollowRequest{}, func() {
			for i := range 100 {
				s.Publish("llama", decision(float64(i)))
				time.Sleep(10 * time.Millisecond)
			}
			close(w.blocked)
			time.Sleep(2 * MinInterval)
			synctest.Wait()
		})
		if n := len(w.sent); n != 2 || w.sent[1].GetEndpoints()[0].GetLoad() != 99 {
			t.Errorf("%d updates, the last %v; want the first and the newest", n, w.sent[n-1])
		}
	})
}

func TestARemovedClusterIsReportedOnceAndForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, w := New(slog.New(slog.DiscardHandler)), &wire{}
		s.Publish("llama", decision(0))
		_ = follow(s, w, &loadsv1.FollowRequest{}, func() {
			time.Sleep(2 * MinInterval)
			s.Remove("llama")
			time.Sleep(3 * Heartbeat)
		})
		if n := len(w.sent); n != 2 || !w.sent[1].GetRemoved() {
			t.Errorf("sent %v, want the loads and one removal", w.sent)
		}
		if n := len(s.clusters); n != 0 {
			t.Errorf("%d clusters are remembered without followers", n)
		}
	})
}

func TestStreamsAreBoundedAndEndWithTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(slog.New(slog.DiscardHandler))
		many := make([]string, MaxClusters+1)
		if err := s.Follow(&loadsv1.FollowRequest{Clusters: many}, &wire{ctx: t.Context()}); status.Code(err) !=
			codes.InvalidArgument {
			t.Errorf("too many names: %v", err)
		}
		ended := make(chan error, MaxFollowers)
		for range MaxFollowers {
			go func() { ended <- s.Follow(&loadsv1.FollowRequest{Picker: "p"}, &wire{ctx: context.Background()}) }()
		}
		synctest.Wait()
		if n := len(s.Followers()); n != MaxFollowers {
			t.Fatalf("%d followers", n)
		}
		if err := s.Follow(&loadsv1.FollowRequest{}, &wire{ctx: t.Context()}); status.Code(err) !=
			codes.ResourceExhausted {
			t.Errorf("one follower more than the limit: %v", err)
		}
		s.Close()
		s.Close()
		for range MaxFollowers {
			if err := <-ended; status.Code(err) != codes.Unavailable {
				t.Fatalf("a stream ended with %v", err)
			}
		}
		if err := s.Follow(&loadsv1.FollowRequest{}, &wire{ctx: t.Context()}); status.Code(err) != codes.Unavailable {
			t.Errorf("after Close: %v", err)
		}
	})
}
