package xds_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"

	"steelyard/weighting"
	"steelyard/xds"
	"steelyard/xds/xdstest"
)

func change(d weighting.Decision, f func(*weighting.Decision)) weighting.Decision {
	d.Endpoints = append([]weighting.EndpointDecision(nil), d.Endpoints...)
	f(&d)
	return d
}

func TestWhenADecisionIsPushed(t *testing.T) {
	base := shares(0.5, 0.3, 0.2)
	base.DropFraction = 0.1
	options := xds.ClusterOptions{Deadband: 0.01, Heartbeat: time.Second}
	for _, c := range []struct {
		name     string
		decision weighting.Decision
		options  xds.ClusterOptions
		after    time.Duration
		pushed   bool
		reason   string
	}{
		{"nothing changed", base, options, 999 * time.Millisecond, false, xds.ReasonDeadband},
		{"nothing changed for a heartbeat", base, options, time.Second, true, xds.ReasonHeartbeat},
		{"no heartbeat is asked for", base, xds.ClusterOptions{Deadband: 0.01}, time.Hour, false, xds.ReasonDeadband},
		{"shares within the deadband", change(base, func(d *weighting.Decision) { d.Endpoints[0].Share, d.Endpoints[1].Share = 0.4901, 0.3099 }), options, 0, false, xds.ReasonDeadband},
		{"shares beyond the deadband", change(base, func(d *weighting.Decision) { d.Endpoints[0].Share, d.Endpoints[1].Share = 0.4899, 0.3101 }), options, 0, true, xds.ReasonChanged},
		{"no deadband", change(base, func(d *weighting.Decision) { d.Endpoints[0].Share, d.Endpoints[1].Share = 0.4999, 0.3001 }), xds.ClusterOptions{}, 0, true, xds.ReasonChanged},
		{"another order of the endpoints", change(base, func(d *weighting.Decision) { d.Endpoints[0], d.Endpoints[2] = d.Endpoints[2], d.Endpoints[0] }), options, 0, false, xds.ReasonDeadband},
		{"an endpoint came", change(base, func(d *weighting.Decision) {
			d.Endpoints = append(d.Endpoints, weighting.EndpointDecision{Address: "10.9.9.9:1", Share: 0.001})
		}), options, 0, true, xds.ReasonMembership},
		{"an endpoint went", change(base, func(d *weighting.Decision) { d.Endpoints = d.Endpoints[:2] }), options, 0, true, xds.ReasonMembership},
		{"an endpoint changed its address", change(base, func(d *weighting.Decision) { d.Endpoints[2].Address = "10.9.9.9:1" }), options, 0, true, xds.ReasonMembership},
		{"an endpoint changed its zone", change(base, func(d *weighting.Decision) { d.Endpoints[2].Zone = "b" }), options, 0, true, xds.ReasonMembership},
		{"all endpoints went", change(base, func(d *weighting.Decision) { d.Endpoints = nil }), options, 0, true, xds.ReasonMembership},
		{"a flag was raised", change(base, func(d *weighting.Decision) { d.Endpoints[2].Overloaded = true }), options, 0, true, xds.ReasonOverload},
		{"only the reason of a flag", change(base, func(d *weighting.Decision) { d.Endpoints[2].OverloadReason = "x" }), options, 0, false, xds.ReasonDeadband},
		{"the drop moved a little", change(base, func(d *weighting.Decision) { d.DropFraction = 0.1009 }), options, 0, false, xds.ReasonDeadband},
		{"the drop moved", change(base, func(d *weighting.Decision) { d.DropFraction = 0.1011 }), options, 0, true, xds.ReasonDrop},
		{"the drop ended", change(base, func(d *weighting.Decision) { d.DropFraction = 0 }), options, 0, true, xds.ReasonDrop},
		{"the stale time changed", base, xds.ClusterOptions{Deadband: 0.01, EndpointStaleAfter: time.Second}, 0, true, xds.ReasonChanged},
		{"a flag weighs more than the shares", change(base, func(d *weighting.Decision) {
			d.Endpoints[2].Overloaded = true
			d.Endpoints[0].Share, d.Endpoints[1].Share = 0.3, 0.5
		}), options, time.Minute, true, xds.ReasonOverload},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t)
			first := b.server.Publish("llama", base, options)
			if !first.Pushed || first.Reason != xds.ReasonMembership || first.Err != nil {
				t.Fatalf("first push %+v", first)
			}
			b.clock.advance(c.after)
			got := b.server.Publish("llama", c.decision, c.options)
			if got.Pushed != c.pushed || got.Reason != c.reason || got.Err != nil {
				t.Errorf("push %+v, want pushed %v, reason %q", got, c.pushed, c.reason)
			}
			if moved := got.Version != first.Version; moved != c.pushed {
				t.Errorf("version %q after %q", got.Version, first.Version)
			}
		})
	}
}

// Two endpoints of one slot, of which the first has become busy.
func TestAChangeThatGainsTooLittleWaitsForTheHeartbeat(t *testing.T) {
	now := time.Now()
	decide := func(busy float64) weighting.Decision {
		var s weighting.Snapshot
		for i, n := range []float64{busy, 0} {
			s.Endpoints = append(s.Endpoints, weighting.Endpoint{
				Address: fmt.Sprintf("10.0.0.%d:80", i+1), Capacity: 1, Exact: true, InFlight: weighting.Reading{Value: n, At: now},
			})
		}
		return weighting.NewLaw(weighting.Params{}).Step(now, s)
	}
	idle, busy := decide(0), decide(1)
	gain := busy.Gain([]float64{idle.Endpoints[0].Share, idle.Endpoints[1].Share})
	if gain < 0.1 {
		t.Fatalf("gain %v, want a part of a service", gain)
	}
	for _, c := range []struct {
		name   string
		worth  float64
		after  time.Duration
		pushed bool
		reason string
	}{
		{"nothing is asked for", 0, 0, true, xds.ReasonChanged},
		{"it gains enough", gain * 0.99, 0, true, xds.ReasonChanged},
		{"it gains too little", gain * 1.01, 0, false, xds.ReasonBudget},
		{"the budget is spent", math.Inf(1), 999 * time.Millisecond, false, xds.ReasonBudget},
		{"the heartbeat has come", math.Inf(1), time.Second, true, xds.ReasonHeartbeat},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t)
			o := xds.ClusterOptions{Deadband: 0.01, Heartbeat: time.Second}
			b.server.Publish("llama", idle, o)
			b.clock.advance(c.after)
			o.Worth = c.worth
			if got := b.server.Publish("llama", busy, o); got.Pushed != c.pushed || got.Reason != c.reason {
				t.Errorf("push %+v, want pushed %v, reason %q", got, c.pushed, c.reason)
			}
		})
	}
}

func TestADropThatBeginsOrEndsIsPushedHoweverSmall(t *testing.T) {
	for _, c := range []struct {
		was, is float64
		pushed  bool
		reason  string
	}{
		{0, 1e-6, true, xds.ReasonDrop},
		{1e-6, 0, true, xds.ReasonDrop},
		{1e-6, 2e-6, false, xds.ReasonDeadband},
		{0, 0, false, xds.ReasonDeadband},
	} {
		s := xds.NewServer(xds.Options{Log: quiet(), Seed: 1})
		d := shares(1)
		d.DropFraction = c.was
		s.Publish("llama", d, always)
		d.DropFraction = c.is
		if p := s.Publish("llama", d, always); p.Pushed != c.pushed || p.Reason != c.reason || p.Err != nil {
			t.Errorf("from %v to %v: push %+v, want pushed %v, reason %q", c.was, c.is, p, c.pushed, c.reason)
		}
		s.Close()
	}
}

func TestSmallStepsAddUpToAPush(t *testing.T) {
	b := newBench(t)
	o := xds.ClusterOptions{Deadband: 0.01}
	b.server.Publish("llama", shares(0.5, 0.5), o)
	pushes := 0
	for i := range 20 {
		v := 0.5 + 0.003*float64(i+1)
		if b.server.Publish("llama", shares(v, 1-v), o).Pushed {
			pushes++
		}
	}
	// 0.06 in steps of 0.003: a push at every fourth, when 0.012 have added up.
	if pushes != 5 {
		t.Errorf("%d pushes, want 5: the distance counts from what was pushed, not from the last decision", pushes)
	}
}

func TestHeartbeatHasNewBytesAndNothingIsSentBetween(t *testing.T) {
	transports(t, func(t *testing.T, c xdstest.Config, _ string) {
		b := newBench(t)
		o := xds.ClusterOptions{Deadband: 0.01, Heartbeat: time.Second, EndpointStaleAfter: 3 * time.Second}
		d := shares(1)
		b.server.Publish("llama", d, o)
		c.Clusters = []string{"llama"}
		client := b.dial(c)
		b.subscription("envoy-1", "llama", "in sync", inSync)
		last := weightsOf(client.State(), "llama")
		for beat := range 3 {
			for range 10 {
				if p := b.server.Publish("llama", d, o); p.Pushed {
					t.Fatalf("pushed before the heartbeat: %+v", p)
				}
			}
			b.clock.advance(time.Second)
			if p := b.server.Publish("llama", d, o); !p.Pushed || p.Reason != xds.ReasonHeartbeat {
				t.Fatalf("heartbeat %+v", p)
			}
			s := b.received(client, "llama", beat+2)
			b.subscription("envoy-1", "llama", "in sync", inSync)
			if s.Responses != beat+2 {
				t.Errorf("%d responses after %d heartbeats", s.Responses, beat+1)
			}
			w := weightsOf(client.State(), "llama")
			if cmp.Equal(last, w) {
				t.Errorf("the heartbeat repeats the weights %v", w)
			}
			last = w
			if got := client.State().Assignment("llama").GetPolicy().GetEndpointStaleAfter().AsDuration(); got != 3*time.Second {
				t.Errorf("endpoint_stale_after %v, want 3s", got)
			}
		}
	})
}

func TestADropChangeMovesAWeight(t *testing.T) {
	transports(t, func(t *testing.T, c xdstest.Config, _ string) {
		b := newBench(t)
		d := shares(1)
		b.publish("llama", d)
		c.Clusters = []string{"llama"}
		client := b.dial(c)
		last := weightsOf(b.received(client, "llama", 1), "llama")
		for i, drop := range []float64{0.25, 0.5, 0} {
			d.DropFraction = drop
			if p := b.publish("llama", d); p.Reason != xds.ReasonDrop {
				t.Errorf("push %+v, want reason drop", p)
			}
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

func TestAnEmptiedPoolIsTold(t *testing.T) {
	transports(t, func(t *testing.T, c xdstest.Config, _ string) {
		b := newBench(t)
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

func TestWhatCannotBeBuiltLeavesThePreviousAssignment(t *testing.T) {
	b := newBench(t)
	good := b.publish("llama", equal(2))
	client := b.dial(xdstest.Config{Clusters: []string{"llama"}})
	b.subscription("envoy-1", "llama", "in sync", inSync)
	for name, bad := range map[string]weighting.Decision{
		"address":    {Endpoints: []weighting.EndpointDecision{{Address: "gpu:80", Share: 1}}},
		"share":      shares(math.NaN(), 0.5),
		"twice":      {Endpoints: append(equal(2).Endpoints[:1], equal(2).Endpoints[0])},
		"drop":       change(equal(2), func(d *weighting.Decision) { d.DropFraction = math.NaN() }),
		"drop range": change(equal(2), func(d *weighting.Decision) { d.DropFraction = 2 }),
	} {
		p := b.server.Publish("llama", bad, xds.ClusterOptions{Deadband: 0.01})
		if p.Pushed || p.Reason != xds.ReasonError || p.Err == nil || !strings.Contains(p.Err.Error(), "llama") || p.Version != good.Version {
			t.Errorf("%s: push %+v, want an error that names the cluster and the version that stays", name, p)
		}
	}
	if p := b.server.Publish("new", weighting.Decision{Endpoints: []weighting.EndpointDecision{{Address: "x", Share: 1}}}, always); p.Err == nil || p.Version != "" {
		t.Errorf("a cluster that never was: %+v", p)
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
		p := b.Publish("llama", equal(1), always)
		if seen[p.Version] {
			t.Fatalf("version %q of two servers", p.Version)
		}
		seen[p.Version] = true
	}
	b := newBench(t)
	for n, want := range []string{".1", ".2", ".3", ".4"} {
		if p := b.publish([]string{"a", "b"}[n%2], equal(n+1)); !strings.HasSuffix(p.Version, want) {
			t.Errorf("version %q, want one that ends in %q", p.Version, want)
		}
	}
}

func TestCloseLetsAGracefulStopFinish(t *testing.T) {
	transports(t, func(t *testing.T, c xdstest.Config, _ string) {
		server := xds.NewServer(xds.Options{Log: quiet()})
		var g *grpc.Server
		address, _ := xdstest.Serve(t, func(s *grpc.Server) { g = s; server.Register(s) })
		server.Publish("llama", equal(1), always)
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
		b := newBench(t)
		b.server.PublishVariants("llama", equal(2), always)
		b.server.PublishVariants("llama", equal(3), always) // and nothing after it
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
