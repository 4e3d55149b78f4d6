package xds_test

import (
	"fmt"
	"sync"
	"testing"

	"steelyard/e2e/rig/xdstest"
)

// Concurrent pushes, removals, and clients that connect, change their subscriptions and disconnect. In the end every
// client has the latest assignment of every cluster, and none ever got an empty assignment or a removal.
func TestEverythingAtOnce(t *testing.T) {
	const rounds, perTransport = 60, 3
	b := newTestServer(t)
	clusters := []string{"a", "b", "c"}
	kinds := []xdstest.Config{{}, {Delta: true}, {ADS: true}, {ADS: true, Delta: true}}
	var clients []*xdstest.Client
	for i := range perTransport * len(kinds) {
		c := kinds[i%len(kinds)]
		c.NodeID, c.Clusters = fmt.Sprint("envoy-", i), clusters
		clients = append(clients, b.dial(c))
	}
	var work sync.WaitGroup
	for _, cluster := range clusters {
		work.Go(func() {
			for round := range rounds {
				b.server.Push(cluster, equal(round%5+1), 0)
				if round%7 == 6 {
					b.server.Remove(cluster)
				}
				b.server.Clients()
				b.server.AckDelay(cluster)
			}
		})
	}
	work.Go(func() {
		for round := range rounds {
			c := clients[round%len(clients)]
			if c.Subscribe(nil, []string{"b"}) != nil || c.Subscribe([]string{"b"}, nil) != nil {
				return // the state shows the error
			}
		}
	})
	work.Go(func() {
		for i := range rounds / 6 {
			c := kinds[i%len(kinds)]
			c.NodeID, c.Clusters = "guest", clusters
			b.dial(c).Close()
		}
	})
	work.Wait()

	for _, cluster := range clusters {
		b.publish(cluster, equal(9))
	}
	for i, client := range clients {
		for _, cluster := range clusters {
			sub := b.subscription(fmt.Sprint("envoy-", i), cluster, "in sync", inSync)
			if sub.Acks == 0 || sub.Nacks != 0 {
				t.Errorf("client %d, cluster %s: %+v, want only ACKs", i, cluster, sub)
			}
		}
		s := client.State()
		if s.Empty != 0 || len(s.Removed) != 0 || s.Err != nil {
			t.Errorf("client %d: %+v, want no empty response and no removal", i, withoutMessages(s))
		}
		for _, cluster := range clusters {
			if n := len(weightsOf(s, cluster)); n != 9 {
				t.Errorf("client %d has %d endpoints of %s, want 9", i, n, cluster)
			}
		}
	}
	eventually(t, "the guests are forgotten", func() bool { return len(b.server.Clients()) == len(clients) })
}
