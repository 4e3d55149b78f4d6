package xds

import (
	"context"
	"errors"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	serverv3 "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/encoding/protowire"
)

// callbacks passes the events of go-control-plane's streams to the tracker. go-control-plane calls it from the
// goroutine of the stream, in order.
type callbacks struct{ t *tracker }

var _ serverv3.Callbacks = callbacks{}

func (c callbacks) OnStreamOpen(ctx context.Context, id int64, typeURL string) error {
	return c.t.opened(ctx, streamKey{id: id}, transport(typeURL, TransportEDS, TransportADS), peerAddress(ctx))
}

func (c callbacks) OnDeltaStreamOpen(ctx context.Context, id int64, typeURL string) error {
	key := streamKey{delta: true, id: id}
	return c.t.opened(ctx, key, transport(typeURL, TransportEDSDelta, TransportADSDelta), peerAddress(ctx))
}

func (c callbacks) OnStreamClosed(id int64, _ *corev3.Node) { c.t.closed(streamKey{id: id}) }

func (c callbacks) OnDeltaStreamClosed(id int64, _ *corev3.Node) {
	c.t.closed(streamKey{delta: true, id: id})
}

// OnStreamRequest records a request.
func (c callbacks) OnStreamRequest(id int64, r *discoveryv3.DiscoveryRequest) error {
	return c.t.requested(streamKey{id: id}, request{
		node:      takeNode(r.GetNode()),
		typeURL:   r.GetTypeUrl(),
		nonce:     r.GetResponseNonce(),
		refused:   r.GetErrorDetail() != nil,
		message:   r.GetErrorDetail().GetMessage(),
		subscribe: r.GetResourceNames(),
		replace:   true,
	})
}

// OnStreamDeltaRequest does the same for delta. A request on an EDS stream may leave out the type.
func (c callbacks) OnStreamDeltaRequest(id int64, r *discoveryv3.DeltaDiscoveryRequest) error {
	return c.t.requested(streamKey{delta: true, id: id}, request{
		node:        takeNode(r.GetNode()),
		typeURL:     r.GetTypeUrl(),
		nonce:       r.GetResponseNonce(),
		refused:     r.GetErrorDetail() != nil,
		message:     r.GetErrorDetail().GetMessage(),
		subscribe:   r.GetResourceNamesSubscribe(),
		unsubscribe: r.GetResourceNamesUnsubscribe(),
	})
}

func (c callbacks) OnStreamResponse(
	_ context.Context, id int64, _ *discoveryv3.DiscoveryRequest, r *discoveryv3.DiscoveryResponse,
) {
	parts := make([]part, 0, len(r.GetResources()))
	for _, res := range r.GetResources() {
		parts = append(parts, part{cluster: clusterName(res.GetValue())})
	}
	c.t.sent(streamKey{id: id}, r.GetNonce(), r.GetVersionInfo(), parts)
}

func (c callbacks) OnStreamDeltaResponse(
	id int64, _ *discoveryv3.DeltaDiscoveryRequest, r *discoveryv3.DeltaDiscoveryResponse,
) {
	parts := make([]part, 0, len(r.GetResources()))
	for _, res := range r.GetResources() {
		parts = append(parts, part{cluster: res.GetName()})
	}
	c.t.sent(streamKey{delta: true, id: id}, r.GetNonce(), r.GetSystemVersionInfo(), parts)
}

func (c callbacks) OnFetchRequest(context.Context, *discoveryv3.DiscoveryRequest) error {
	return errors.New("polling is not served; use a gRPC stream")
}

func (c callbacks) OnFetchResponse(*discoveryv3.DiscoveryRequest, *discoveryv3.DiscoveryResponse) {}

// transport returns eds or ads, depending on the type for which the stream was opened.
func transport(typeURL, eds, ads string) string {
	if typeURL == resource.AnyType {
		return ads
	}
	return eds
}

func peerAddress(ctx context.Context) string {
	p, ok := peer.FromContext(ctx)
	if !ok || p.Addr == nil {
		return ""
	}
	return p.Addr.String()
}

// clusterName reads the name from a marshalled ClusterLoadAssignment. It is the first field, so the cost does not
// depend on the number of endpoints.
func clusterName(message []byte) string {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return ""
		}
		message = message[n:]
		if number == 1 && kind == protowire.BytesType {
			name, _ := protowire.ConsumeString(message)
			return name
		}
		if n = protowire.ConsumeFieldValue(number, kind, message); n < 0 {
			return ""
		}
		message = message[n:]
	}
	return ""
}
