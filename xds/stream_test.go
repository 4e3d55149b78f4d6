package xds_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"steelyard/internal/api"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"steelyard/e2e/rig/xdstest"
)

func TestSubscriptionIsHeldUntilTheClusterIsPublished(t *testing.T) {
	transports(t, func(t *testing.T, c xdstest.Config, transport string) {
		b := newTestServer(t)
		c.Clusters = []string{"llama"}
		client := b.dial(c)
		held := b.subscription("envoy-1", "llama", "held", func(s api.Subscription) bool { return !s.Known })
		if want := (api.Subscription{Resource: "llama", Cluster: "llama"}); held != want {
			t.Errorf("while held: %+v, want %+v", held, want)
		}
		version := b.publish("llama", shares(0.75, 0.25))
		s := b.received(client, "llama", 1)
		if s.Responses != 1 || s.Empty != 0 || len(s.Removed) != 0 {
			t.Errorf("state %+v, want one response with the assignment and nothing before it", withoutMessages(s))
		}
		if s.Version != version {
			t.Errorf("the response has version %q, the push %q", s.Version, version)
		}
		if w := weightsOf(s, "llama"); len(w) != 2 || w[0] < 9_600_000 || w[1] < 3_100_000 || w[1] > 3_450_000 {
			t.Errorf("weights %v, want about 9800000 and a third of it", w)
		}
		checkClient(t, b, transport, version)
	})
}

// checkClient asserts every field of the one client after its first ACK.
func checkClient(t *testing.T, b *testServer, transport, version string) {
	t.Helper()
	b.subscription("envoy-1", "llama", "in sync", inSync)
	now := b.clock.Now()
	got := b.server.Clients()
	if len(got) != 1 || !strings.HasPrefix(got[0].Address, "127.0.0.1:") {
		t.Fatalf("clients %+v, want one from 127.0.0.1", got)
	}
	got[0].Address = ""
	want := []api.Connection{{
		Node:      api.Node{NodeID: "envoy-1", NodeCluster: "test", Version: "1.40.0", Locality: "here/a"},
		Transport: transport, ConnectedAt: api.At(now),
		Subscriptions: []api.Subscription{{
			Resource: "llama", Cluster: "llama", Known: true, InSync: true, VersionSent: version,
			VersionAcked: version, LastSent: api.At(now), LastAck: api.At(now), AckDelaySeconds: api.Num(0),
			Acks: 1,
		}},
	}}
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(api.Number{})); diff != "" {
		t.Errorf("clients (- want, + got):\n%s", diff)
	}
}

func TestAnAckIsNotAnswered(t *testing.T) {
	transports(t, func(t *testing.T, c xdstest.Config, _ string) {
		b := newTestServer(t)
		b.publish("llama", equal(3))
		c.Clusters = []string{"llama"}
		client := b.dial(c)
		b.subscription("envoy-1", "llama", "in sync", inSync)
		// The server answers requests in order: if it had answered the ACK, the state would have that answer by now.
		if err := client.Subscribe([]string{"unknown"}, nil); err != nil {
			t.Fatal(err)
		}
		b.subscription("envoy-1", "unknown", "held", func(s api.Subscription) bool { return !s.Known })
		b.publish("llama", equal(4))
		if s := b.received(client, "llama", 2); s.Responses != 2 || s.Received["llama"] != 2 {
			t.Errorf("state %+v, want one response for each push", withoutMessages(s))
		}
	})
}

func TestNackIsSeenAndNotRepeatedAndTheNextPushGoesOut(t *testing.T) {
	for _, when := range []string{"the first assignment", "a later one"} {
		t.Run(when, func(t *testing.T) {
			transports(t, func(t *testing.T, c xdstest.Config, _ string) {
				b := newTestServer(t)
				message := "unhappy: \x01 " + strings.Repeat("ü", 2000)
				c.Clusters = []string{"llama"}
				c.Refuse = func(m *endpointv3.ClusterLoadAssignment) error {
					if len(m.GetEndpoints()[0].GetLbEndpoints()) == 2 {
						return errors.New(message)
					}
					return nil
				}
				good, acks := "", uint64(0)
				if when != "the first assignment" {
					good, acks = b.publish("llama", equal(3)), 1
				}
				client := b.dial(c)
				if good != "" {
					b.subscription("envoy-1", "llama", "in sync", inSync)
				}
				b.clock.advance(time.Second)
				bad := b.publish("llama", equal(2))
				got := b.subscription("envoy-1", "llama", "refused",
					func(s api.Subscription) bool { return s.Nack.Current })
				if got.Nack.Message != clipped(message) || got.Nacks != 1 || got.Acks != acks || got.InSync {
					t.Errorf("after the NACK: %+v", got)
				}
				if got.VersionSent != bad || got.VersionAcked != good || !got.Nack.At.Equal(b.clock.Now()) {
					t.Errorf("after the NACK of %q on top of %q: %+v", bad, good, got)
				}
				next := b.publish("llama", equal(4))
				got = b.subscription("envoy-1", "llama", "in sync again", inSync)
				if got.Nack.Current || got.VersionAcked != next || got.Nacks != 1 || got.Acks != acks+1 ||
					got.Nack.Message != clipped(message) {
					t.Errorf("after the next push: %+v", got)
				}
				s := client.State()
				if s.Refused != 1 || s.Responses != int(acks)+2 || s.Empty != 0 {
					t.Errorf("state %+v, want no answer to the NACK", withoutMessages(s))
				}
				if got := b.refusals(1); len(got) != 1 || got[0] != "llama" {
					t.Errorf("the observer got %q", got)
				}
			})
		})
	}
}

// clipped returns what fits into 1024 bytes.
func clipped(message string) string {
	for len(message) > 1024 {
		message = message[:len(message)-len("ü")]
	}
	return message
}

func TestNewServerSendsItsOwnAssignmentToAnEnvoyThatComesBack(t *testing.T) {
	transports(t, func(t *testing.T, c xdstest.Config, _ string) {
		before := newTestServer(t)
		first := before.publish("llama", equal(3))
		c.Clusters = []string{"llama"}
		client := before.dial(c)
		before.subscription("envoy-1", "llama", "in sync", inSync)
		s := client.State()
		client.Close()
		before.stop()

		after := newTestServer(t)
		if c.Delta {
			c.InitialVersions = s.Versions
		}
		c.Version = s.Version
		client = after.dial(c)
		held := after.subscription("envoy-1", "llama", "held", func(s api.Subscription) bool { return !s.Known })
		if held.VersionSent != "" {
			t.Errorf("something was sent before it was ready: %+v", held)
		}
		second := after.publish("llama", equal(2))
		s = after.received(client, "llama", 1)
		if s.Responses != 1 || s.Empty != 0 || len(s.Removed) != 0 || len(weightsOf(s, "llama")) != 2 {
			t.Errorf("state %+v, want one response with two endpoints and no removal", withoutMessages(s))
		}
		if prefix(first) == prefix(second) || s.Version != second {
			t.Errorf("versions %q and %q: want prefixes of their own", first, second)
		}
	})
}

func prefix(version string) string { return version[:strings.LastIndex(version, ".")] }

func TestReconnectToTheSameServer(t *testing.T) {
	transports(t, func(t *testing.T, c xdstest.Config, _ string) {
		b := newTestServer(t)
		b.publish("llama", equal(3))
		c.Clusters = []string{"llama"}
		client := b.dial(c)
		b.subscription("envoy-1", "llama", "in sync", inSync)
		s := client.State()
		client.Close()
		eventually(t, "the client is forgotten", func() bool { return len(b.server.Clients()) == 0 })

		c.Version = s.Version
		if c.Delta {
			c.InitialVersions = s.Versions
		}
		client = b.dial(c)
		wanted := 1 // state of the world: sent again, for it may have gone stale meanwhile
		if c.Delta {
			// The content is the same, so only the next push is sent.
			b.subscription("envoy-1", "llama", "known", func(s api.Subscription) bool { return s.Known })
		} else {
			b.received(client, "llama", 1)
			b.subscription("envoy-1", "llama", "in sync", inSync)
			wanted = 2
		}
		b.publish("llama", equal(4))
		if s := b.received(client, "llama", wanted); s.Responses != wanted {
			t.Errorf("state %+v, want %d responses", withoutMessages(s), wanted)
		}
	})
}

func TestASlowEnvoyGetsTheNewestAndNothingQueues(t *testing.T) {
	transports(t, func(t *testing.T, c xdstest.Config, _ string) {
		b := newTestServer(t)
		first := b.publish("llama", equal(1))
		c.Clusters, c.HoldAnswers = []string{"llama"}, true
		client := b.dial(c)
		b.received(client, "llama", 1)
		var newest string
		for n := 2; n <= 60; n++ {
			b.clock.advance(time.Second)
			newest = b.publish("llama", equal(n))
		}
		b.clock.advance(time.Second)
		got := b.subscription("envoy-1", "llama", "sent", func(s api.Subscription) bool { return s.VersionSent != "" })
		if got.VersionSent != first || got.Acks != 0 || got.InSync {
			t.Errorf("while it does not answer: %+v", got)
		}
		if err := client.Answer(true); err != nil {
			t.Fatal(err)
		}
		got = b.subscription("envoy-1", "llama", "in sync", inSync)
		if got.Acks != 2 || got.VersionAcked != newest {
			t.Errorf("after its ACKs: %+v, want two ACKs", got)
		}
		if s := client.State(); s.Responses != 2 || len(weightsOf(s, "llama")) != 60 {
			t.Errorf("state %+v, want the first and the newest", withoutMessages(s))
		}
		// 60 s for the first, which waited for the ACK all the time; then 1 s.
		if diff := cmp.Diff([]time.Duration{60 * time.Second, time.Second}, b.delays("llama", 2)); diff != "" {
			t.Errorf("delays that the observer got:\n%s", diff)
		}
		if want := 60*time.Second - 59*time.Second/8; b.server.AckDelay("llama") != want {
			t.Errorf("smoothed delay %v, want %v", b.server.AckDelay("llama"), want)
		}
	})
}

func TestClustersOfOneStreamBecomeReadyOneByOne(t *testing.T) {
	for _, delta := range []bool{false, true} {
		t.Run(map[bool]string{false: "sotw", true: "delta"}[delta], func(t *testing.T) {
			b := newTestServer(t)
			client := b.dial(xdstest.Config{ADS: true, Delta: delta, Clusters: []string{"llama", "mistral", "never"}})
			b.subscription("envoy-1", "mistral", "held", func(s api.Subscription) bool { return !s.Known })
			llama := b.publish("llama", equal(2))
			b.subscription("envoy-1", "llama", "in sync", inSync)
			if s := client.State(); s.Responses != 1 || s.Received["mistral"] != 0 {
				t.Errorf("state %+v, want only llama", withoutMessages(s))
			}
			mistral := b.publish("mistral", equal(3))
			b.subscription("envoy-1", "mistral", "in sync", inSync)
			s := client.State()
			if s.Responses != 2 || s.Received["llama"] != 1 || s.Received["mistral"] != 1 || s.Empty != 0 ||
				len(s.Removed) != 0 {
				t.Errorf("state %+v, want each cluster once", withoutMessages(s))
			}
			got := b.subscription("envoy-1", "llama", "in sync", inSync)
			if got.VersionAcked != llama || llama == mistral {
				t.Errorf("llama has %q, want its own version %q and not mistral's %q", got.VersionAcked, llama, mistral)
			}
			never := b.subscription("envoy-1", "never", "held", func(s api.Subscription) bool { return !s.Known })
			if want := (api.Subscription{Resource: "never", Cluster: "never"}); never != want {
				t.Errorf("the unknown cluster is %+v, want %+v", never, want)
			}
		})
	}
}

func TestAClientThatComesLateSeesEachClustersOwnVersion(t *testing.T) {
	transports(t, func(t *testing.T, c xdstest.Config, _ string) {
		b := newTestServer(t)
		llama := b.publish("llama", equal(2))
		for n := range 40 { // more than are remembered of one cluster
			b.publish("mistral", equal(n+1))
		}
		b.clock.advance(time.Hour) // the delay counts from the subscription
		c.Clusters = []string{"llama", "mistral"}
		b.dial(c)
		got := b.subscription("envoy-1", "llama", "in sync", inSync)
		if got.VersionSent != llama || got.VersionAcked != llama {
			t.Errorf("llama: %+v, want version %q", got, llama)
		}
		if delay := b.delays("llama", 1)[0]; delay != 0 {
			t.Errorf("the ACK came %v after the subscription, want at once", delay)
		}
		b.subscription("envoy-1", "mistral", "in sync", inSync)
	})
}

func TestSubscriptionsFollowTheRequests(t *testing.T) {
	transports(t, func(t *testing.T, c xdstest.Config, _ string) {
		b := newTestServer(t)
		b.publish("llama", equal(2))
		b.publish("mistral", equal(3))
		c.Clusters = []string{"llama"}
		client := b.dial(c)
		b.subscription("envoy-1", "llama", "in sync", inSync)
		if err := client.Subscribe([]string{"mistral"}, []string{"llama"}); err != nil {
			t.Fatal(err)
		}
		b.received(client, "mistral", 1)
		b.subscription("envoy-1", "mistral", "in sync", inSync)
		clients := b.server.Clients()
		if n := len(clients[0].Subscriptions); n != 1 {
			t.Errorf("%d subscriptions, want only mistral: %+v", n, clients)
		}
		b.publish("llama", equal(4))
		b.publish("mistral", equal(5))
		if s := b.received(client, "mistral", 2); s.Received["llama"] != 1 || len(s.Removed) != 0 {
			t.Errorf("state %+v, want no more of llama", withoutMessages(s))
		}
		// A cluster that was unsubscribed from is sent again after a new subscription.
		if err := client.Subscribe([]string{"llama"}, nil); err != nil {
			t.Fatal(err)
		}
		if s := b.received(client, "llama", 2); len(weightsOf(s, "llama")) != 4 {
			t.Errorf("llama has %d endpoints, want the 4 of its last push", len(weightsOf(s, "llama")))
		}
	})
}

func TestARequestWithoutNamesSubscribesToNothing(t *testing.T) {
	for name, names := range map[string][]string{"empty list": nil, "wildcard": {"*"}} {
		t.Run(name, func(t *testing.T) {
			transports(t, func(t *testing.T, c xdstest.Config, _ string) {
				b := newTestServer(t)
				b.publish("llama", equal(2))
				c.Clusters = names
				client := b.dial(c)
				eventually(t, "the server has the stream", func() bool {
					cs := b.server.Clients()
					return len(cs) == 1 && cs[0].NodeID == "envoy-1"
				})
				if cs := b.server.Clients(); len(cs[0].Subscriptions) != 0 {
					t.Errorf("subscriptions %+v", cs[0].Subscriptions)
				}
				b.publish("llama", equal(3))
				if err := client.Subscribe([]string{"mistral"}, nil); err != nil {
					t.Fatal(err)
				}
				b.publish("mistral", equal(3))
				if s := b.received(client, "mistral", 1); s.Responses != 1 || s.Received["llama"] != 0 {
					t.Errorf("state %+v, want only mistral", withoutMessages(s))
				}
			})
		})
	}
}

func TestOtherTypesAreHeldAndTheStreamGoesOn(t *testing.T) {
	const clusters = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	const listeners = "type.googleapis.com/envoy.config.listener.v3.Listener"
	for _, delta := range []bool{false, true} {
		t.Run(map[bool]string{false: "sotw", true: "delta"}[delta], func(t *testing.T) {
			b := newTestServer(t)
			client := b.dial(xdstest.Config{ADS: true, Delta: delta, Clusters: []string{"llama"}})
			for _, typeURL := range []string{listeners, clusters, clusters} {
				if err := client.Ask(typeURL); err != nil {
					t.Fatal(err)
				}
			}
			// The server reads in order: when it has read this one, it has read the others.
			if err := client.Subscribe([]string{"mistral"}, nil); err != nil {
				t.Fatal(err)
			}
			b.subscription("envoy-1", "mistral", "held", func(s api.Subscription) bool { return !s.Known })
			b.publish("llama", equal(2))
			s := b.received(client, "llama", 1)
			if s.OtherType != 0 || s.Responses != 1 {
				t.Errorf("state %+v, want no answer but the assignment", withoutMessages(s))
			}
		})
	}
}

func TestRemovedClusterStaysWithTheEnvoysThatHaveIt(t *testing.T) {
	transports(t, func(t *testing.T, c xdstest.Config, _ string) {
		b := newTestServer(t)
		b.publish("llama", equal(2))
		b.publish("mistral", equal(2))
		c.Clusters = []string{"llama", "mistral"}
		client := b.dial(c)
		b.subscription("envoy-1", "llama", "in sync", inSync)
		b.server.Remove("llama")
		b.server.Remove("llama") // twice is fine
		gone := b.subscription("envoy-1", "llama", "unknown", func(s api.Subscription) bool { return !s.Known })
		if gone.InSync || gone.Acks != 1 {
			t.Errorf("after the removal: %+v", gone)
		}
		late := c
		late.NodeID, late.Clusters = "envoy-2", []string{"llama"}
		waiting := b.dial(late)
		b.subscription("envoy-2", "llama", "held", func(s api.Subscription) bool { return !s.Known })
		b.publish("mistral", equal(3))
		b.subscription("envoy-1", "mistral", "in sync", inSync)
		if s := client.State(); len(s.Removed) != 0 || s.Empty != 0 || s.Received["llama"] != 1 ||
			len(weightsOf(s, "llama")) != 2 {
			t.Errorf("state %+v, want llama as it was", withoutMessages(s))
		}

		back := b.publish("llama", equal(5))
		if s := b.received(client, "llama", 2); len(s.Removed) != 0 || len(weightsOf(s, "llama")) != 5 ||
			s.Version != back {
			t.Errorf("state %+v, want the new assignment in version %q", withoutMessages(s), back)
		}
		if s := b.received(waiting, "llama", 1); s.Responses != 1 || s.Empty != 0 || len(s.Removed) != 0 {
			t.Errorf("the one that waited has %+v", withoutMessages(s))
		}
		b.subscription("envoy-1", "llama", "in sync", inSync)
	})
}

// A request that answers an older response than the last one is stale: by the protocol, the server ignores it,
// including its names, and so does the tracker.
func TestAStaleRequestChangesNothing(t *testing.T) {
	b := newTestServer(t)
	b.publish("llama", equal(1))
	stream := b.open(b.connect())
	send := func(nonce string, names ...string) {
		t.Helper()
		if err := stream.Send(&discoveryv3.DiscoveryRequest{Node: node("envoy-1"), ResponseNonce: nonce,
			ResourceNames: names}); err != nil {
			t.Fatal(err)
		}
	}
	send("", "llama")
	first, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	send("stale", "mistral")
	send(first.GetNonce(), "llama", "other")
	b.subscription("envoy-1", "other", "held", func(s api.Subscription) bool { return !s.Known })
	got := b.server.Clients()[0].Subscriptions
	if len(got) != 2 || got[0].Cluster != "llama" || got[0].Acks != 1 || !got[0].InSync || got[1].Cluster != "other" {
		t.Errorf("subscriptions %+v, want llama, acknowledged, and other", got)
	}
}
