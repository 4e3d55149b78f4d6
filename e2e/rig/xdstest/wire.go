package xdstest

import (
	"context"
	"fmt"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	endpointservice "github.com/envoyproxy/go-control-plane/envoy/service/endpoint/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
)

// EndpointType is the type URL of an assignment.
const EndpointType = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"

// A wire implements one of the two protocols.
type wire interface {
	// subscribe sends the names after a change by added and removed.
	subscribe(all, added, removed []string) error
	// answer accepts the response, or refuses it when reason is not nil.
	answer(r response, all []string, reason error) error
	// ask opens a subscription to all resources of another type.
	ask(typeURL string) error
	receive() (response, error)
}

// A response in the terms that both protocols share.
type response struct {
	typeURL, nonce, version string
	parts                   []part
	removed                 []string
}

type part struct {
	name, version string // version is the resource's own, delta only
	message       []byte
}

func open(ctx context.Context, conn *grpc.ClientConn, c Config, node *corev3.Node) (wire, error) {
	if c.Delta {
		return openDelta(ctx, conn, c, node)
	}
	return openSotw(ctx, conn, c, node)
}

type sotwStream interface {
	Send(*discoveryv3.DiscoveryRequest) error
	Recv() (*discoveryv3.DiscoveryResponse, error)
}

type sotwWire struct {
	stream         sotwStream
	node           *corev3.Node // until it was sent
	version, nonce string       // accepted last, answered last
}

func openSotw(ctx context.Context, conn *grpc.ClientConn, c Config, node *corev3.Node) (wire, error) {
	var s sotwStream
	var err error
	if c.ADS {
		s, err = discoveryv3.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx)
	} else {
		s, err = endpointservice.NewEndpointDiscoveryServiceClient(conn).StreamEndpoints(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("opening a stream: %w", err)
	}
	return &sotwWire{stream: s, node: node, version: c.Version}, nil
}

func (w *sotwWire) send(r *discoveryv3.DiscoveryRequest) error {
	r.Node, w.node = w.node, nil
	return w.stream.Send(r)
}

func (w *sotwWire) subscribe(all, _, _ []string) error {
	return w.send(&discoveryv3.DiscoveryRequest{TypeUrl: EndpointType, VersionInfo: w.version, ResponseNonce: w.nonce,
		ResourceNames: all})
}

func (w *sotwWire) answer(r response, all []string, reason error) error {
	w.nonce = r.nonce
	if reason == nil {
		w.version = r.version
	}
	return w.send(&discoveryv3.DiscoveryRequest{
		TypeUrl: EndpointType, VersionInfo: w.version, ResponseNonce: r.nonce, ResourceNames: all,
		ErrorDetail: refusal(reason).Proto(),
	})
}

func (w *sotwWire) ask(typeURL string) error {
	return w.send(&discoveryv3.DiscoveryRequest{TypeUrl: typeURL})
}

func (w *sotwWire) receive() (response, error) {
	m, err := w.stream.Recv()
	if err != nil {
		return response{}, err
	}
	r := response{typeURL: m.GetTypeUrl(), nonce: m.GetNonce(), version: m.GetVersionInfo()}
	for _, res := range m.GetResources() {
		r.parts = append(r.parts, part{name: nameOf(res.GetValue()), message: res.GetValue()})
	}
	return r, nil
}

type deltaStream interface {
	Send(*discoveryv3.DeltaDiscoveryRequest) error
	Recv() (*discoveryv3.DeltaDiscoveryResponse, error)
}

type deltaWire struct {
	stream  deltaStream
	node    *corev3.Node      // until it was sent
	initial map[string]string // until it was sent
}

func openDelta(ctx context.Context, conn *grpc.ClientConn, c Config, node *corev3.Node) (wire, error) {
	var s deltaStream
	var err error
	if c.ADS {
		s, err = discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	} else {
		s, err = endpointservice.NewEndpointDiscoveryServiceClient(conn).DeltaEndpoints(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("opening a delta stream: %w", err)
	}
	return &deltaWire{stream: s, node: node, initial: c.InitialVersions}, nil
}

func (w *deltaWire) send(r *discoveryv3.DeltaDiscoveryRequest) error {
	r.Node, w.node = w.node, nil
	return w.stream.Send(r)
}

func (w *deltaWire) subscribe(_, added, removed []string) error {
	r := &discoveryv3.DeltaDiscoveryRequest{
		TypeUrl: EndpointType, ResourceNamesSubscribe: added, ResourceNamesUnsubscribe: removed,
		InitialResourceVersions: w.initial,
	}
	w.initial = nil
	return w.send(r)
}

func (w *deltaWire) answer(r response, _ []string, reason error) error {
	return w.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: EndpointType, ResponseNonce: r.nonce,
		ErrorDetail: refusal(reason).Proto()})
}

func (w *deltaWire) ask(typeURL string) error {
	return w.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: typeURL})
}

func (w *deltaWire) receive() (response, error) {
	m, err := w.stream.Recv()
	if err != nil {
		return response{}, err
	}
	r := response{typeURL: m.GetTypeUrl(), nonce: m.GetNonce(), version: m.GetSystemVersionInfo(),
		removed: m.GetRemovedResources()}
	for _, res := range m.GetResources() {
		r.parts = append(r.parts, part{name: res.GetName(), version: res.GetVersion(),
			message: res.GetResource().GetValue()})
	}
	return r, nil
}

// refusal returns what Envoy puts into a NACK, nil for an ACK.
func refusal(reason error) *status.Status {
	if reason == nil {
		return nil
	}
	return status.New(codes.Internal, reason.Error())
}

// nameOf reads the cluster's name, the first field, without parsing the rest: a benchmark should measure the server.
func nameOf(message []byte) string {
	number, kind, n := protowire.ConsumeTag(message)
	if n < 0 || number != 1 || kind != protowire.BytesType {
		return ""
	}
	name, _ := protowire.ConsumeString(message[n:])
	return name
}
