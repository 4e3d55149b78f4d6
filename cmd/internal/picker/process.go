package picker

import (
	"errors"
	"io"
	"strconv"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	modev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"steelyard/picking"
	"steelyard/xds/loads/follow"
)

// Names of the Endpoint Picker protocol.
const (
	destination      = "x-gateway-destination-endpoint"
	destinationSpace = "envoy.lb"
	subset           = "x-gateway-destination-endpoint-subset"
	subsetSpace      = "envoy.lb.subset_hint"
)

// clusterKey is the gRPC metadata by which an Envoy names the cluster that it asks for.
const clusterKey = "x-steelyard-cluster"

// maxSubset bounds the addresses of a subset that are looked at.
const maxSubset = 10_000

// reasonStrict is the reason of a 503 because there is no choice.
const reasonStrict = "no_endpoint"

// processor is the external processor.
type processor struct {
	extprocv3.UnimplementedExternalProcessorServer
	loads    *follow.Follower
	fallback string // the cluster of streams that name none; empty: they are refused
	strict   bool
	choices  func(cluster, reason string)
}

// Process serves the messages of one request.
func (s *processor) Process(stream extprocv3.ExternalProcessor_ProcessServer) error {
	cluster, err := s.cluster(stream)
	if err != nil {
		return err
	}
	var duplex duplexes
	for {
		r, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF), status.Code(err) == codes.Canceled:
			return nil
		case err != nil:
			return err
		}
		duplex.note(r.GetProtocolConfig())
		if a := s.answer(cluster, r, duplex); a != nil && !r.GetObservabilityMode() {
			if err := stream.Send(a); err != nil {
				return err
			}
		}
	}
}

// cluster is the one that the stream's metadata names, or the fallback.
func (s *processor) cluster(stream extprocv3.ExternalProcessor_ProcessServer) (string, error) {
	name := s.fallback
	if md, ok := metadata.FromIncomingContext(stream.Context()); ok {
		if named := md.Get(clusterKey); len(named) > 0 {
			name = named[0]
		}
	}
	switch {
	case name == "":
		return "", status.Error(codes.InvalidArgument, "no cluster is named: this picker has several, so the proxy "+
			"has to name one in the gRPC metadata "+clusterKey)
	case s.loads.Pool(name) == nil:
		return "", status.Errorf(codes.NotFound, "this picker does not follow a cluster %q", name)
	}
	return name, nil
}

// duplexes are the directions in which bodies have to be sent back piece by piece.
type duplexes struct{ request, response bool }

// note takes in the first message's description of the modes.
func (d *duplexes) note(c *extprocv3.ProtocolConfiguration) {
	if c != nil {
		d.request = c.GetRequestBodyMode() == modev3.ProcessingMode_FULL_DUPLEX_STREAMED
		d.response = c.GetResponseBodyMode() == modev3.ProcessingMode_FULL_DUPLEX_STREAMED
	}
}

// answer is the response to one message: the choice to request headers, and to all else "go on".
func (s *processor) answer(cluster string, r *extprocv3.ProcessingRequest, d duplexes) *extprocv3.ProcessingResponse {
	switch m := r.GetRequest().(type) {
	case *extprocv3.ProcessingRequest_RequestHeaders:
		return s.choose(cluster, m.RequestHeaders, r.GetMetadataContext())
	case *extprocv3.ProcessingRequest_ResponseHeaders:
		return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ResponseHeaders{
			ResponseHeaders: &extprocv3.HeadersResponse{}}}
	case *extprocv3.ProcessingRequest_RequestBody:
		return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestBody{
			RequestBody: passed(m.RequestBody, d.request)}}
	case *extprocv3.ProcessingRequest_ResponseBody:
		return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ResponseBody{
			ResponseBody: passed(m.ResponseBody, d.response)}}
	case *extprocv3.ProcessingRequest_RequestTrailers:
		return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestTrailers{
			RequestTrailers: &extprocv3.TrailersResponse{}}}
	case *extprocv3.ProcessingRequest_ResponseTrailers:
		return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ResponseTrailers{
			ResponseTrailers: &extprocv3.TrailersResponse{}}}
	}
	return nil
}

// passed lets a piece of a body pass. In full duplex it has to be sent back, as Envoy keeps no copy.
func passed(b *extprocv3.HttpBody, duplex bool) *extprocv3.BodyResponse {
	if !duplex {
		return &extprocv3.BodyResponse{}
	}
	return &extprocv3.BodyResponse{Response: &extprocv3.CommonResponse{BodyMutation: &extprocv3.BodyMutation{
		Mutation: &extprocv3.BodyMutation_StreamedResponse{StreamedResponse: &extprocv3.StreamedBodyResponse{
			Body: b.GetBody(), EndOfStream: b.GetEndOfStream()}}}}}
}

// choose names the endpoint of a request.
func (s *processor) choose(cluster string, h *extprocv3.HttpHeaders, m *corev3.Metadata) *extprocv3.ProcessingResponse {
	allowed, limited := subsetOf(m)
	choice := picking.Choice{Reason: picking.ReasonSubset}
	if !limited || len(allowed) > 0 {
		choice = s.loads.Pool(cluster).Choose(time.Now(), picking.Request{Size: sizeOf(h), Subset: allowed})
	}
	s.choices(cluster, string(choice.Reason))
	switch {
	case choice.Address != "":
		return named(strings.Join(append([]string{choice.Address}, choice.Others...), ","))
	case choice.Reason == picking.ReasonSubset || s.strict:
		return unavailable(choice.Reason)
	}
	return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestHeaders{
		RequestHeaders: &extprocv3.HeadersResponse{Response: &extprocv3.CommonResponse{
			// A client must not choose.
			ClearRouteCache: true, HeaderMutation: &extprocv3.HeaderMutation{RemoveHeaders: []string{destination}}}}}}
}

// named is the answer with endpoints: in a header and in dynamic metadata, as proxies read one or the other.
func named(endpoints string) *extprocv3.ProcessingResponse {
	return &extprocv3.ProcessingResponse{
		Response: &extprocv3.ProcessingResponse_RequestHeaders{RequestHeaders: &extprocv3.HeadersResponse{
			// The route may depend on the header.
			Response: &extprocv3.CommonResponse{ClearRouteCache: true, HeaderMutation: &extprocv3.HeaderMutation{
				SetHeaders: []*corev3.HeaderValueOption{{
					Header:       &corev3.HeaderValue{Key: destination, RawValue: []byte(endpoints)},
					AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
				}}}}}},
		DynamicMetadata: &structpb.Struct{Fields: map[string]*structpb.Value{
			destinationSpace: structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{
				destination: structpb.NewStringValue(endpoints)}})}},
	}
}

// unavailable refuses a request that no endpoint may serve.
func unavailable(reason picking.Reason) *extprocv3.ProcessingResponse {
	text := reasonStrict
	if reason == picking.ReasonSubset {
		text = "none of the endpoints in " + subset + " is known"
	}
	return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ImmediateResponse{
		ImmediateResponse: &extprocv3.ImmediateResponse{
			Status: &typev3.HttpStatus{Code: typev3.StatusCode_ServiceUnavailable},
			Body:   []byte("steelyard picker: " + text + "\n"), Details: "steelyard_picker_" + string(reason),
		}}}
}

// sizeOf is the content-length of a request, -1 where it has none.
func sizeOf(h *extprocv3.HttpHeaders) int64 {
	for _, e := range h.GetHeaders().GetHeaders() {
		if e.GetKey() != "content-length" {
			continue
		}
		value := e.GetValue()
		if value == "" {
			value = string(e.GetRawValue())
		}
		if n, err := strconv.ParseInt(value, 10, 64); err == nil && n >= 0 {
			return n
		}
	}
	return -1
}

// subsetOf is the proxy's list of the only endpoints for a request; limited is false where it sent none.
func subsetOf(m *corev3.Metadata) (addresses []string, limited bool) {
	field, ok := m.GetFilterMetadata()[subsetSpace].GetFields()[subset]
	if !ok {
		return nil, false
	}
	values := field.GetListValue().GetValues()
	for _, v := range values[:min(len(values), maxSubset)] {
		if s := v.GetStringValue(); s != "" {
			addresses = append(addresses, s)
		}
	}
	if text := field.GetStringValue(); text != "" { // some proxies send one text
		for s := range strings.SplitSeq(text, ",") {
			addresses = append(addresses, strings.TrimSpace(s))
		}
	}
	return addresses, true
}
