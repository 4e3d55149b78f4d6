package main

import (
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// weighted returns an assignment of endpoints on the ports from 1 on.
func weighted(t *testing.T, weights ...uint32) []byte {
	t.Helper()
	l := &endpointv3.LocalityLbEndpoints{}
	for i, w := range weights {
		l.LbEndpoints = append(l.LbEndpoints, &endpointv3.LbEndpoint{
			LoadBalancingWeight: wrapperspb.UInt32(w),
			HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{
				Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
					Address: "127.0.0.1", PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(i + 1)},
				}}},
			}},
		})
	}
	b, err := proto.Marshal(&endpointv3.ClusterLoadAssignment{Endpoints: []*endpointv3.LocalityLbEndpoints{l}})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestWeightsThatShowAChangeIncludeIt follows two changes on two streams, of which the
// second skips a version.
func TestWeightsThatShowAChangeIncludeIt(t *testing.T) {
	before, lowered, both, raised := weighted(t, 100, 100, 100, 100, 100), weighted(t, 10, 90, 100, 110, 100),
		weighted(t, 10, 90, 10, 110, 100), weighted(t, 100, 90, 10, 110, 100)
	start := time.Now()
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	w := newWatch(2)
	w.accepted(0, "v0", before, at(0))
	first := w.begin("127.0.0.1:1", true, at(1))
	w.seen(first, at(2))
	w.accepted(0, "v0", before, at(2)) // older than the change
	w.accepted(0, "v1", lowered, at(3))
	second := w.begin("127.0.0.1:3", true, at(4))
	if w.done() {
		t.Error("done, and a stream has acknowledged nothing")
	}
	w.accepted(1, "v2", both, at(6))
	w.accepted(0, "v2", both, at(8))
	if !w.done() || first.left != 0 || second.left != 0 {
		t.Errorf("left %d and %d", first.left, second.left)
	}
	third := w.begin("127.0.0.1:1", false, at(10))
	w.accepted(0, "v3", raised, at(11))
	a := w.acks()
	want := Acks{Changes: 3, Missing: 1, All: Quantiles{5, 2, 5, 5}, Last: Quantiles{2, 4, 5, 5},
		Scraped: Quantiles{1, 1, 1, 1}}
	if a != want || third.left != 1 {
		t.Errorf("%+v\nwant %+v", a, want)
	}
}

func TestABrokenAssignmentIncludesNoChange(t *testing.T) {
	for _, lower := range []bool{true, false} {
		if read([]byte{0xff}).includes(&change{address: "127.0.0.1:1", lower: lower}) {
			t.Error("it knows a change")
		}
	}
}
