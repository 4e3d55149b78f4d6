package xds_test

import (
	"fmt"
	"slices"
	"testing"

	"steelyard/e2e/rig/xdstest"
	"steelyard/internal/envoyid"
)

// watching waits until the cluster has these watchers, all on loopback.
func (b *testServer) watching(cluster string, nodes ...string) {
	b.t.Helper()
	want := make([]envoyid.ID, len(nodes))
	for i, n := range nodes {
		want[i] = envoyid.ID{NodeID: n, Host: "127.0.0.1"}
	}
	eventually(b.t, fmt.Sprintf("%s is watched by %v", cluster, nodes),
		func() bool { return slices.Equal(b.server.Watchers(cluster), want) })
}

func TestWatchersAreTheEnvoysOfAnyNameOfACluster(t *testing.T) {
	transports(t, func(t *testing.T, c xdstest.Config, _ string) {
		b := newTestServer(t)
		b.watching("llama")
		dial := func(node string, clusters ...string) *xdstest.Client {
			c.NodeID, c.Clusters = node, clusters
			return b.dial(c)
		}
		second := dial("envoy-2", "llama/failsafe", "llama/fallback", "mixtral")
		first := dial("envoy-1", "llama")
		again := dial("envoy-1", "llama") // a second stream of the same
		dial("envoy-3", "mixtral/fallback")
		b.watching("llama", "envoy-1", "envoy-2")
		b.watching("mixtral", "envoy-2", "envoy-3")
		b.watching("llama/failsafe") // no cluster of that name

		if err := second.Subscribe(nil, []string{"llama/failsafe"}); err != nil {
			t.Fatal(err)
		}
		first.Close()
		dial("envoy-4", "llama")
		b.watching("llama", "envoy-1", "envoy-2", "envoy-4")
		if err := second.Subscribe(nil, []string{"llama/fallback"}); err != nil {
			t.Fatal(err)
		}
		again.Close()
		b.watching("llama", "envoy-4")
		b.watching("mixtral", "envoy-2", "envoy-3")
	})
}

func TestTheWatchGenerationChangesWithTheWatchers(t *testing.T) {
	b := newTestServer(t)
	start := b.server.WatchGeneration()
	c := b.dial(xdstest.Config{Clusters: []string{"llama"}})
	b.watching("llama", "envoy-1")
	came := b.server.WatchGeneration()
	if came == start {
		t.Error("the same after an Envoy came")
	}
	b.publish("llama", equal(2))
	b.received(c, "llama", 1)
	if b.server.WatchGeneration() != came {
		t.Error("another after a push")
	}
	c.Close()
	b.watching("llama")
	if b.server.WatchGeneration() == came {
		t.Error("the same after the Envoy went")
	}
}

func TestAClusterIsShadowedWhileNoEnvoyAsksForItsWeights(t *testing.T) {
	b := newTestServer(t)
	shadowed := func(what string, want bool) {
		t.Helper()
		eventually(t, what, func() bool { return b.server.Shadowed("llama") == want })
	}
	followed := func(want bool) {
		t.Helper()
		if b.server.Followed("llama") != want {
			t.Errorf("followed: %t, want %t", !want, want)
		}
	}
	shadowed("no Envoy", false)
	followed(false)
	b.dial(xdstest.Config{NodeID: "envoy-1", Clusters: []string{"llama/members"}})
	shadowed("members only", true)
	followed(false)
	second := b.dial(xdstest.Config{NodeID: "envoy-2", Clusters: []string{"llama/failsafe", "llama/fallback"}})
	shadowed("another one follows", false)
	followed(true)
	second.Close()
	shadowed("it has left", true)
	followed(false)
}
