package picker

import (
	"cmp"
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"steelyard/picking"
	"steelyard/xds/loads/follow"
)

// Names of the Endpoint Picker protocol.
const (
	destination      = "x-gateway-destination-endpoint"
	destinationSpace = "envoy.lb"
	served           = "x-gateway-destination-endpoint-served"
	subset           = "x-gateway-destination-endpoint-subset"
	subsetSpace      = "envoy.lb.subset_hint"
)

// Names of Envoy: the attribute that has the address of the endpoint that answered, and the group that it is in.
const (
	attributes = "envoy.filters.http.ext_proc"
	upstream   = "upstream.address"
)

const contentLength = "content-length"

// maxSubset bounds the addresses of a subset that are looked at.
const maxSubset = 10_000

// reasonShed is why a request is refused though there are endpoints: all are saturated.
const reasonShed picking.Reason = "shed"

// reasonStrict is the reason of a 503 because there is no choice.
const reasonStrict = "no_endpoint"

// passed lets a piece of a body pass. In full duplex it has to be sent back, as Envoy keeps no copy.
func passed(b *extprocv3.HttpBody, duplex bool) *extprocv3.BodyResponse {
	if !duplex {
		return &extprocv3.BodyResponse{}
	}
	return &extprocv3.BodyResponse{Response: &extprocv3.CommonResponse{BodyMutation: &extprocv3.BodyMutation{
		Mutation: &extprocv3.BodyMutation_StreamedResponse{StreamedResponse: &extprocv3.StreamedBodyResponse{
			Body: b.GetBody(), EndOfStream: b.GetEndOfStream()}}}}}
}

// named is what names the endpoints of a choice: a header and dynamic metadata, as proxies read one or the other.
// Without a choice it removes the header: a client must not choose. The route may depend on it.
func named(c picking.Choice) (*extprocv3.CommonResponse, *structpb.Struct) {
	out := &extprocv3.CommonResponse{ClearRouteCache: true}
	if c.Address == "" {
		out.HeaderMutation = &extprocv3.HeaderMutation{RemoveHeaders: []string{destination}}
		return out, nil
	}
	endpoints := strings.Join(append([]string{c.Address}, c.Others...), ",")
	out.HeaderMutation = &extprocv3.HeaderMutation{SetHeaders: []*corev3.HeaderValueOption{
		setting(destination, endpoints)}}
	return out, &structpb.Struct{Fields: map[string]*structpb.Value{
		destinationSpace: structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{
			destination: structpb.NewStringValue(endpoints)}})}}
}

// refusal refuses a request that no endpoint may serve, or that none is to serve now.
func refusal(reason picking.Reason) *extprocv3.ProcessingResponse {
	text, code := reasonStrict, typev3.StatusCode_ServiceUnavailable
	headers := [][2]string{{follow.DroppedReason, follow.DroppedNoEndpoints}}
	switch reason {
	case picking.ReasonSubset:
		text = "none of the endpoints in " + subset + " is known"
	case reasonShed:
		text, code = "all endpoints are saturated", typev3.StatusCode_TooManyRequests
		// Only a share is refused, so the next try may be served.
		headers = [][2]string{{follow.DroppedReason, follow.DroppedSaturated}, {"retry-after", "1"}}
	}
	return immediate(code, headers, "steelyard picker: "+text+"\n", "steelyard_picker_"+string(reason))
}

// immediate has the proxy answer a request by itself.
func immediate(code typev3.StatusCode, headers [][2]string, body, details string) *extprocv3.ProcessingResponse {
	var set []*corev3.HeaderValueOption
	for _, h := range headers {
		set = append(set, setting(h[0], h[1]))
	}
	return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ImmediateResponse{
		ImmediateResponse: &extprocv3.ImmediateResponse{
			Status:  &typev3.HttpStatus{Code: code},
			Headers: &extprocv3.HeaderMutation{SetHeaders: set},
			Body:    []byte(body), Details: details,
		}}}
}

// setting gives a header a value, whatever it was before.
func setting(name, value string) *corev3.HeaderValueOption {
	return &corev3.HeaderValueOption{Header: &corev3.HeaderValue{Key: name, RawValue: []byte(value)},
		AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD}
}

// sizeOf is the content-length of a request, -1 where it has none.
func sizeOf(h *extprocv3.HttpHeaders) int64 {
	if n, err := strconv.ParseInt(headerOf(h, contentLength), 10, 64); err == nil && n >= 0 {
		return n
	}
	return -1
}

// headerOf is the first value of a header; empty where there is none.
func headerOf(h *extprocv3.HttpHeaders, name string) string {
	for _, e := range h.GetHeaders().GetHeaders() {
		if e.GetKey() == name {
			return cmp.Or(e.GetValue(), string(e.GetRawValue()))
		}
	}
	return ""
}

// subsetOf is the proxy's list of the only endpoints for a request; limited is false where it sent none.
func subsetOf(m *corev3.Metadata) (addresses []string, limited bool) {
	field, ok := m.GetFilterMetadata()[subsetSpace].GetFields()[subset]
	if !ok {
		return nil, false
	}
	values := field.GetListValue().GetValues()
	if field.GetStringValue() != "" { // some proxies send one text
		values = []*structpb.Value{field}
	}
	for _, v := range values {
		for s := range strings.SplitSeq(v.GetStringValue(), ",") {
			if s = strings.TrimSpace(s); s != "" {
				addresses = append(addresses, s)
			}
			if len(addresses) == maxSubset {
				return addresses, true
			}
		}
	}
	return addresses, true
}

// expects reports whether the client sends the body only after the server has asked for it, so that nothing may wait
// for it. Envoy asks by itself, and removes the header, unless it is configured to leave that to the server
// (proxy_100_continue).
func expects(h *extprocv3.HttpHeaders) bool { return headerOf(h, "expect") != "" }
