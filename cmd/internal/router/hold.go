package router

import (
	"cmp"
	"errors"
	"io"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"
	alsv3 "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"steelyard/picking"
)

const (
	// headerBackend is the IP:port by which Envoy connects. It replaces any that a client sent.
	headerBackend = "x-steelyard-backend"
	// headerStream is Envoy's id of the request, which Envoy sets; it is in the headers and in the access log.
	headerStream = "x-steelyard-stream"
)

// Process holds one request until its verdict. What becomes of the request then is in the access log.
func (r *Router) Process(stream extprocv3.ExternalProcessor_ProcessServer) error {
	m, err := stream.Recv()
	if err != nil {
		return ended(err)
	}
	id := valueOf(m.GetRequestHeaders().GetHeaders(), headerStream)
	verdict, ok := r.queue.arrive(time.Now(), id)
	if !ok {
		return nil
	}
	select {
	case <-stream.Context().Done():
		r.queue.leave(id)
		return nil
	case v := <-verdict:
		return ended(stream.Send(r.verdict(v)))
	}
}

// valueOf is the value of a header, empty where there is none.
func valueOf(headers *corev3.HeaderMap, key string) string {
	for _, h := range headers.GetHeaders() {
		if h.GetKey() == key {
			return cmp.Or(string(h.GetRawValue()), h.GetValue())
		}
	}
	return ""
}

// ended is nil for a stream that its peer closed.
func ended(err error) error {
	if errors.Is(err, io.EOF) || status.Code(err) == codes.Canceled {
		return nil
	}
	return err
}

// verdict is what becomes of a request, for Envoy.
func (r *Router) verdict(v picking.Verdict) *extprocv3.ProcessingResponse {
	address := r.names.of(v.Backend)
	if address == "" {
		return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ImmediateResponse{
			ImmediateResponse: &extprocv3.ImmediateResponse{
				Status:  &typev3.HttpStatus{Code: typev3.StatusCode_ServiceUnavailable},
				Headers: &extprocv3.HeaderMutation{SetHeaders: []*corev3.HeaderValueOption{header("retry-after", "1")}},
				Body:    []byte(refusals[v.Refused]), Details: "steelyard_router_" + string(v.Refused),
			}}}
	}
	return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestHeaders{
		RequestHeaders: &extprocv3.HeadersResponse{Response: &extprocv3.CommonResponse{
			HeaderMutation: &extprocv3.HeaderMutation{SetHeaders: []*corev3.HeaderValueOption{
				header(headerBackend, address)}}}}}}
}

// refusals are the answers to requests that are refused.
var refusals = map[picking.Refusal]string{
	picking.RefusedEvicted: "the queue is full, and this request had waited for longest\n",
	picking.RefusedTimeout: "no backend was free within the time that a request may wait\n",
}

func header(key, value string) *corev3.HeaderValueOption {
	return &corev3.HeaderValueOption{Header: &corev3.HeaderValue{Key: key, RawValue: []byte(value)},
		AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD}
}

// StreamAccessLogs takes the ends of requests from Envoy's access log.
func (r *Router) StreamAccessLogs(stream alsv3.AccessLogService_StreamAccessLogsServer) error {
	for {
		m, err := stream.Recv()
		if err != nil {
			return ended(err)
		}
		for _, e := range m.GetHttpLogs().GetLogEntry() {
			if id := e.GetRequest().GetRequestHeaders()[headerStream]; id != "" {
				r.queue.done(time.Now(), id, outcome(e))
			}
		}
	}
}

// outcome is how a request ended, by its entry in the access log.
func outcome(e *accesslogv3.HTTPAccessLogEntry) picking.Outcome {
	const tooMany, serverError = 429, 500
	flags := e.GetCommonProperties().GetResponseFlags()
	code := e.GetResponse().GetResponseCode().GetValue()
	switch {
	case flags.GetDownstreamConnectionTermination() || flags.GetDownstreamRemoteReset():
		return picking.Abandoned
	case code == 0 || code == tooMany || code >= serverError || flags.GetUpstreamConnectionTermination() ||
		flags.GetUpstreamRemoteReset() || flags.GetUpstreamProtocolError():
		return picking.Failed
	}
	return picking.Answered
}
