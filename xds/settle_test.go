package xds_test

import (
	"errors"
	"testing"
	"time"

	"steelyard/internal/api"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"steelyard/e2e/rig/xdstest"
)

func TestSettledWaitsForResponsiveEnvoysOnly(t *testing.T) {
	transports(t, func(t *testing.T, c xdstest.Config, _ string) {
		const patience = 500 * time.Millisecond
		b := newTestServer(t)
		c.Clusters = []string{"llama"}
		well, frozen := c, c
		well.NodeID = "well"
		frozen.NodeID, frozen.HoldAnswers = "frozen", true
		b.publish("llama", shares(0.5, 0.5))
		one, two := b.dial(well), b.dial(frozen)
		b.received(one, "llama", 1)
		b.received(two, "llama", 1)
		b.subscription("well", "llama", "in sync", inSync)
		if b.server.Settled(patience) {
			t.Error("settled while an answer may still come")
		}
		b.clock.advance(patience)
		if !b.server.Settled(patience) {
			t.Error("not settled: it waits for an Envoy that does not answer")
		}

		b.publish("llama", shares(0.2, 0.8))
		// From the push on, whether or not it has been sent yet, Settled waits for the other Envoy.
		eventually(t, "settled", func() bool {
			settled := b.server.Settled(patience)
			return settled && one.State().Received["llama"] == 2
		})
		sub := b.subscription("well", "llama", "in sync", inSync)
		if sub.Acks != 2 {
			t.Errorf("settled after %d ACKs of the Envoy that answers, want 2", sub.Acks)
		}
	})
}

func TestARefusalIsAnAnswer(t *testing.T) {
	b := newTestServer(t)
	b.publish("llama", shares(1))
	b.dial(xdstest.Config{Clusters: []string{"llama", "unknown"},
		Refuse: func(*endpointv3.ClusterLoadAssignment) error { return errors.New("no") }})
	b.subscription("envoy-1", "llama", "refused", func(s api.Subscription) bool { return s.Nack.Current })
	if !b.server.Settled(time.Hour) {
		t.Error("it waits for an Envoy that refused, or for a subscription to an unknown cluster")
	}
	b.publish("llama", shares(0.5, 0.5))
	eventually(t, "the next answer", func() bool { return len(b.refusals(2)) >= 2 && b.server.Settled(time.Hour) })
}
