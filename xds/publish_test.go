package xds_test

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"

	"steelyard/e2e/rig/grpctest"
	"steelyard/e2e/rig/xdstest"
	"steelyard/weighting"
	"steelyard/xds"
)

func TestAHeartbeatHasNewBytes(t *testing.T) {
	transports(t, func(t *testing.T, c xdstest.Config, _ string) {
		b := newTestServer(t)
		d := shares(1)
		name := "llama/failsafe"
		b.server.Push("llama", d, 3*time.Second)
		c.Clusters = []string{name}
		client := b.dial(c)
		b.subscription("envoy-1", name, "in sync", inSync)
		last := weightsOf(client.State(), name)
		for beat := range 3 {
			b.clock.advance(time.Second)
			b.server.Push("llama", d, 3*time.Second)
			s := b.received(client, name, beat+2)
			b.subscription("envoy-1", name, "in sync", inSync)
			if s.Responses != beat+2 {
				t.Errorf("%d responses after %d heartbeats", s.Responses, beat+1)
			}
			w := weightsOf(client.State(), name)
			if cmp.Equal(last, w) {
				t.Errorf("the heartbeat repeats the weights %v", w)
			}
			last = w
			policy := client.State().Assignment(name).GetPolicy()
			if got := policy.GetEndpointStaleAfter().AsDuration(); got != 3*time.Second {
				t.Errorf("endpoint_stale_after %v, want 3s", got)
			}
		}
	})
}

func TestADropChangeMovesAWeight(t *testing.T) {
	transports(t, func(t *testing.T, c xdstest.Config, _ string) {
		b := newTestServer(t)
		d := shares(1)
		b.publish("llama", d)
		c.Clusters = []string{"llama"}
		client := b.dial(c)
		last := weightsOf(b.received(client, "llama", 1), "llama")
		for i, drop := range []float64{0.25, 0.5, 0} {
			d.DropFraction = drop
			b.publish("llama", d)
			s := b.wait(client, "the drop", func(s xdstest.State) bool { return s.Received["llama"] == i+2 })
			w := weightsOf(s, "llama")
			if cmp.Equal(last, w) {
				t.Errorf("the drop changed to %v and the weights stayed %v: Envoy would ignore it", drop, w)
			}
			last = w
			var got uint32
			for _, o := range s.Assignment("llama").GetPolicy().GetDropOverloads() {
				got += o.GetDropPercentage().GetNumerator()
			}
			if got != uint32(drop*1e6) {
				t.Errorf("drops %d millionths, want %v", got, drop*1e6)
			}
		}
	})
}

func TestAnEmptiedPoolIsPushed(t *testing.T) {
	transports(t, func(t *testing.T, c xdstest.Config, _ string) {
		b := newTestServer(t)
		b.publish("llama", equal(2))
		c.Clusters = []string{"llama"}
		client := b.dial(c)
		b.subscription("envoy-1", "llama", "in sync", inSync)
		b.publish("llama", equal(0))
		s := b.received(client, "llama", 2)
		if m := s.Assignment("llama"); m == nil || len(m.GetEndpoints()) != 0 || len(s.Removed) != 0 {
			t.Errorf("assignment %v, removed %v; want an assignment without endpoints", m, s.Removed)
		}
	})
}

func withDrop(d weighting.Decision, fraction float64) weighting.Decision {
	d.DropFraction = fraction
	return d
}

func TestWhatCannotBeBuiltLeavesThePreviousAssignment(t *testing.T) {
	b := newTestServer(t)
	good := b.publish("llama", equal(2))
	client := b.dial(xdstest.Config{Clusters: []string{"llama"}})
	b.subscription("envoy-1", "llama", "in sync", inSync)
	for name, bad := range map[string]weighting.Decision{
		"address":    {Endpoints: []weighting.EndpointDecision{{Address: "gpu:80", Share: 1}}},
		"share":      shares(math.NaN(), 0.5),
		"twice":      {Endpoints: append(equal(2).Endpoints[:1], equal(2).Endpoints[0])},
		"drop":       withDrop(equal(2), math.NaN()),
		"drop range": withDrop(equal(2), 2),
	} {
		version, err := b.server.Push("llama", bad, 0)
		if err == nil || !strings.Contains(err.Error(), "llama") || version != good {
			t.Errorf("%s: version %q, error %v; want an error that names the cluster, and the version that stays", name,
				version, err)
		}
	}
	unbuildable := weighting.Decision{Endpoints: []weighting.EndpointDecision{{Address: "x", Share: 1}}}
	if version, err := b.server.Push("new", unbuildable, 0); err == nil || version != "" {
		t.Errorf("a cluster that never was: version %q, error %v", version, err)
	}
	b.publish("llama", equal(3))
	if s := b.received(client, "llama", 2); s.Responses != 2 {
		t.Errorf("state %+v, want nothing between the good ones", withoutMessages(s))
	}
}

func TestVersionsRiseAndAreUniqueToTheProcess(t *testing.T) {
	seen := map[string]bool{}
	for range 50 {
		b := xds.NewServer(xds.Options{Seed: 1, Log: quiet()})
		version, _ := b.Push("llama", equal(1), 0)
		if seen[version] {
			t.Fatalf("version %q of two servers", version)
		}
		seen[version] = true
	}
	b := newTestServer(t)
	for n, want := range []string{".1", ".2", ".3", ".4"} {
		if version := b.publish([]string{"a", "b"}[n%2], equal(n+1)); !strings.HasSuffix(version, want) {
			t.Errorf("version %q, want one that ends in %q", version, want)
		}
	}
}

func TestCloseLetsAGracefulStopFinish(t *testing.T) {
	transports(t, func(t *testing.T, c xdstest.Config, _ string) {
		server := xds.NewServer(xds.Options{Log: quiet()})
		var g *grpc.Server
		address, _ := grpctest.Serve(t, func(s *grpc.Server) { g = s; server.Register(s) })
		server.Push("llama", equal(1), 0)
		c.Address, c.NodeID, c.Clusters = address, "envoy-1", []string{"llama"}
		client, err := xdstest.Dial(c)
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if _, err := client.Wait(ctx, func(s xdstest.State) bool { return s.Received["llama"] == 1 }); err != nil {
			t.Fatal(err)
		}
		server.Close()
		g.GracefulStop()
		if n := len(server.Clients()); n != 0 {
			t.Errorf("%d clients are left", n)
		}
	})
}

func TestALateSubscriberToAVariantIsAnsweredAtOnce(t *testing.T) {
	transports(t, func(t *testing.T, c xdstest.Config, _ string) {
		b := newTestServer(t)
		b.server.Push("llama", equal(2), 0)
		b.server.Push("llama", equal(3), 0) // and nothing after it
		c.Clusters = []string{"llama/failsafe"}
		client := b.dial(c)
		if got := weightsOf(b.received(client, "llama/failsafe", 1), "llama/failsafe"); len(got) != 3 {
			t.Errorf("weights %v, want those of three endpoints", got)
		}
		if err := client.Subscribe([]string{"llama/fallback"}, nil); err != nil {
			t.Fatal(err)
		}
		if got := weightsOf(b.received(client, "llama/fallback", 1), "llama/fallback"); len(got) != 3 {
			t.Errorf("weights %v, want those of three endpoints", got)
		}
	})
}
