package daemon

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"steelyard/internal/api"
)

// TestAnEnvoyThatMovedIsShownWhereItIs, and not at the replica that is silent.
func TestAnEnvoyThatMovedIsShownWhereItIs(t *testing.T) {
	at := func(replica, name, address string, state api.EnvoyState) api.OtherEnvoy {
		return api.OtherEnvoy{Kind: api.FollowerEnvoy, Replica: replica, NodeID: name, Address: address, State: state}
	}
	picker := at("b", "edge-1", "10.0.0.1:7", api.EnvoyUnheard)
	picker.Kind = api.FollowerPicker
	others := []api.OtherEnvoy{
		at("b", "edge-1", "10.0.0.1:4000", api.EnvoyUnheard), // is here now
		at("b", "edge-2", "10.0.0.2:4000", api.EnvoyUnheard), // is at c now
		at("b", "edge-3", "10.0.0.3:4000", api.EnvoyUnheard),
		at("b", "edge-1", "10.0.0.9:4000", api.EnvoyUnheard), // another one with this node id
		picker,
		at("c", "edge-1", "10.0.0.1:5000", api.EnvoyFollows), // has two connections
		at("c", "edge-2", "10.0.0.2:5000", api.EnvoyFollows)}
	here := map[anyEnvoy]bool{anyEnvoyOf(api.FollowerEnvoy, "edge-1", "10.0.0.1:6000"): true}
	var got []string
	for _, e := range withoutMoved(others, here) {
		got = append(got, fmt.Sprint(e.Replica, " ", e.Kind, " ", e.NodeID, " ", e.Address))
	}
	want := []string{"b envoy edge-3 10.0.0.3:4000", "b envoy edge-1 10.0.0.9:4000", "b picker edge-1 10.0.0.1:7",
		"c envoy edge-1 10.0.0.1:5000", "c envoy edge-2 10.0.0.2:5000"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
