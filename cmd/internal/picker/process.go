package picker

import (
	"cmp"
	"context"
	"errors"
	"io"
	"math/rand/v2"
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

	"steelyard/picking"
	"steelyard/picking/prefix"
	"steelyard/xds/loads/follow"
)

// clusterKey is the gRPC metadata by which an Envoy names the cluster that it asks for.
const clusterKey = "x-steelyard-cluster"

// bodyLimitKey is the gRPC metadata by which an Envoy says up to which length it can hold a body until it is whole.
const bodyLimitKey = "x-steelyard-body-limit"

// buffer is how much of a body Envoy keeps, unless it is configured otherwise (per_connection_buffer_limit_bytes).
const buffer = 1 << 20

// processor is the external processor.
type processor struct {
	extprocv3.UnimplementedExternalProcessorServer
	loads    *follow.Follower
	waiters  map[string]*follow.Waiter // by cluster
	fallback string                    // the cluster of streams that name none; empty: they are refused
	strict   bool
	single   bool
	prefix   bool // choices wait for the first part of the body
	choices  func(cluster, reason string)
	unknown  func(cluster, reason string)
	unqueued func(cluster string)
}

// Why an endpoint is counted that is not in the loads: the proxy named it in a subset, or it gave an answer.
const (
	unknownSubset = "subset"
	unknownAnswer = "answer"
)

// Process serves the messages of one request.
func (s *processor) Process(stream extprocv3.ExternalProcessor_ProcessServer) error {
	cluster, err := s.cluster(stream)
	if err != nil {
		return err
	}
	x := exchange{processor: s, cluster: cluster, in: inbox{stream: stream}, leave: func() {},
		bodyLimit: bodyLimit(stream)}
	defer x.in.close()
	defer func() { x.leave() }()
	return ended(x.serve())
}

// ended is nil for an error that is a proxy's end of a stream.
func ended(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, context.Canceled) || status.Code(err) == codes.Canceled {
		return nil
	}
	return err
}

// serve answers messages until the stream ends.
func (x *exchange) serve() error {
	for {
		r, err := x.in.next()
		if err != nil {
			return err
		}
		x.modes.learn(r.GetProtocolConfig())
		x.observed = r.GetObservabilityMode()
		a, err := x.answer(r)
		if err != nil {
			return err
		}
		if a == nil || x.observed {
			continue
		}
		if err := x.in.stream.Send(a); err != nil {
			return err
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

// bodyLimit is the one that the stream's metadata names; 0 where it names none.
func bodyLimit(stream extprocv3.ExternalProcessor_ProcessServer) int64 {
	named := metadata.ValueFromIncomingContext(stream.Context(), bodyLimitKey)
	if len(named) == 0 {
		return 0
	}
	n, _ := strconv.ParseInt(named[0], 10, 64)
	return n
}

// modes are how the proxy sends bodies.
type modes struct {
	request, response bool // duplex: they have to be sent back piece by piece
	buffered          bool // the first part of the request's comes before the request goes on
	partial           bool // and of a body longer than the proxy's buffer no more than that
}

// learn takes in the first message's description of the modes.
func (d *modes) learn(c *extprocv3.ProtocolConfiguration) {
	if c == nil {
		return
	}
	d.request = c.GetRequestBodyMode() == modev3.ProcessingMode_FULL_DUPLEX_STREAMED
	d.response = c.GetResponseBodyMode() == modev3.ProcessingMode_FULL_DUPLEX_STREAMED
	d.partial = c.GetRequestBodyMode() == modev3.ProcessingMode_BUFFERED_PARTIAL
	d.buffered = d.partial || c.GetRequestBodyMode() == modev3.ProcessingMode_BUFFERED
}

// An exchange is one request, from its headers to the end of its stream.
type exchange struct {
	*processor
	cluster  string
	in       inbox
	leave    func() // the queue
	observed bool   // the proxy does not wait for answers
	modes    modes
	arrival  *follow.Arrival // of one that is to wait in the queue; nil: it does not
	waits    bool            // for the body, before there is a choice
	placed   bool            // it has a place in the queue
	path     string
	asked    picking.Request
	prompt   prefix.Prompt
	chosen   string

	bodyLimit int64 // bytes that the proxy holds of a body until it is whole; 0: unknown
}

// answer is the response to one message: the choice to request headers, or to the first part of the body, and to all
// else "go on".
func (x *exchange) answer(r *extprocv3.ProcessingRequest) (*extprocv3.ProcessingResponse, error) {
	switch m := r.GetRequest().(type) {
	case *extprocv3.ProcessingRequest_RequestHeaders:
		return x.headers(m.RequestHeaders, r.GetMetadataContext())
	case *extprocv3.ProcessingRequest_RequestBody:
		return x.body(m.RequestBody)
	}
	return x.further(r), nil
}

// further is the response to a message for which there is no choice.
func (x *exchange) further(r *extprocv3.ProcessingRequest) *extprocv3.ProcessingResponse {
	switch m := r.GetRequest().(type) {
	case *extprocv3.ProcessingRequest_ResponseHeaders:
		x.learn(m.ResponseHeaders, r)
		return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ResponseHeaders{
			ResponseHeaders: &extprocv3.HeadersResponse{}}}
	case *extprocv3.ProcessingRequest_ResponseBody:
		return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ResponseBody{
			ResponseBody: passed(m.ResponseBody, x.modes.response)}}
	case *extprocv3.ProcessingRequest_RequestTrailers:
		return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestTrailers{
			RequestTrailers: &extprocv3.TrailersResponse{}}}
	case *extprocv3.ProcessingRequest_ResponseTrailers:
		return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ResponseTrailers{
			ResponseTrailers: &extprocv3.TrailersResponse{}}}
	}
	return nil
}

// body is the answer to a part of the body: with the choice, if it waited for the first.
func (x *exchange) body(b *extprocv3.HttpBody) (*extprocv3.ProcessingResponse, error) {
	out := &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestBody{
		RequestBody: passed(b, x.modes.request)}}
	if !x.waits {
		return out, nil
	}
	x.waits = false
	var first prefix.First
	first.Add(b.GetBody(), prefix.MaxKeyBody)
	announced := x.asked.Size
	x.prompt, x.asked.Size = first.Read(x.loads.Pool(x.cluster).Reader(), x.path, announced, b.GetEndOfStream())
	choice, refusal, err := x.decide()
	if err != nil || refusal != nil {
		return refusal, err
	}
	out.GetRequestBody().Response, out.DynamicMetadata = named(choice)
	if announced < 0 && b.GetEndOfStream() {
		x.announce(out.GetRequestBody().Response)
	}
	return out, nil
}

// announce sets the content-length of a request whose size is known. Envoy 1.40 takes it away where a body is shown to
// the picker, though that changes none; and it is by this header that the access log has the size, when the request
// begins at its endpoint. In modes in which Envoy cannot know that the body stays as it is, it ignores this.
func (x *exchange) announce(r *extprocv3.CommonResponse) {
	if x.asked.Size < 0 || !x.modes.buffered {
		return
	}
	if r.HeaderMutation == nil {
		r.HeaderMutation = &extprocv3.HeaderMutation{}
	}
	r.HeaderMutation.SetHeaders = append(r.HeaderMutation.SetHeaders, setting(contentLength,
		strconv.FormatInt(x.asked.Size, 10)))
}

// learn records which endpoint answered the request; if the proxy does not report it, the chosen one is assumed.
func (x *exchange) learn(h *extprocv3.HttpHeaders, r *extprocv3.ProcessingRequest) {
	if strings.HasPrefix(headerOf(h, ":status"), "2") {
		reported := r.GetMetadataContext().GetFilterMetadata()[destinationSpace]
		endpoint := cmp.Or(reported.GetFields()[served].GetStringValue(),
			r.GetAttributes()[attributes].GetFields()[upstream].GetStringValue(), x.chosen)
		pool := x.loads.Pool(x.cluster)
		if endpoint != "" && pool.Unknown(endpoint) {
			x.unknown(x.cluster, unknownAnswer)
		}
		pool.Learn(&x.prompt, endpoint, time.Now())
	}
}

// headers is the answer to the headers of a request: the choice, or none yet, if it waits for the body.
func (x *exchange) headers(h *extprocv3.HttpHeaders, m *corev3.Metadata) (*extprocv3.ProcessingResponse, error) {
	var limited bool
	x.asked.Subset, limited = subsetOf(m)
	x.path, x.asked.Size = headerOf(h, ":path"), sizeOf(h)
	if x.loads.Pool(x.cluster).Unknown(x.asked.Subset...) {
		x.unknown(x.cluster, unknownSubset)
	}
	if limited && len(x.asked.Subset) == 0 {
		x.choices(x.cluster, string(picking.ReasonSubset))
		return refusal(picking.ReasonSubset), nil
	}
	if !limited && !x.observed { // the queue grants any endpoint
		x.arrival = x.arrives(h)
	}
	response := &extprocv3.HeadersResponse{}
	out := &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestHeaders{
		RequestHeaders: response}}
	unread := x.tooLong() || x.modes.buffered && expects(h)
	if x.prefix && x.modes.buffered && !h.GetEndOfStream() && !unread {
		// For a body that came in pieces, Envoy 1.40 clears the route when the request has gone on. So it is cleared
		// here.
		x.waits = true
		response.Response, _ = named(picking.Choice{})
		x.announce(response.Response)
		out.ModeOverride = x.bodyMode()
		return out, nil
	}
	choice, refusal, err := x.decide()
	if err != nil || refusal != nil {
		return refusal, err
	}
	response.Response, out.DynamicMetadata = named(choice)
	x.announce(response.Response)
	switch {
	case x.placed: // and the body is not to be sent, as nobody looks at it any more
		out.ModeOverride = &modev3.ProcessingMode{ResponseHeaderMode: modev3.ProcessingMode_SKIP,
			ResponseTrailerMode: untilTheEnd}
	case unread && !h.GetEndOfStream():
		out.ModeOverride = &modev3.ProcessingMode{ResponseHeaderMode: modev3.ProcessingMode_SKIP}
	}
	return out, nil
}

// untilTheEnd is the mode for the trailers of the answer to a request with a place, which is held until then: Envoy
// ends the stream when it has no more to send on it.
const untilTheEnd = modev3.ProcessingMode_SEND

// bodyMode is how the proxy is to send a request whose body the choice waits for; nil: as it is configured.
func (x *exchange) bodyMode() *modev3.ProcessingMode {
	m := &modev3.ProcessingMode{RequestBodyMode: modev3.ProcessingMode_BUFFERED,
		ResponseHeaderMode: modev3.ProcessingMode_SEND}
	// Of a request with trailers, Envoy 1.40 sends some bodies twice in BUFFERED_PARTIAL. In BUFFERED from the start,
	// it would refuse longer bodies with a 413.
	whole := x.modes.partial && x.bodyLimit > 0
	switch {
	case x.arrival != nil:
		m.ResponseTrailerMode = untilTheEnd
		if x.modes.partial && !whole {
			m.RequestBodyMode = modev3.ProcessingMode_BUFFERED_PARTIAL
		}
	case !whole:
		return nil
	}
	return m
}

// decide has the request wait in the queue if there is one, and names its endpoint otherwise; or refuses it.
func (x *exchange) decide() (c picking.Choice, refusal *extprocv3.ProcessingResponse, err error) {
	o, err := x.wait()
	switch {
	case err != nil:
		return c, nil, err
	case o.Refused != "":
		r := o.Refusal() // as the module does
		return c, immediate(typev3.StatusCode(r.Status), r.Headers, r.Body, r.Details), nil
	case o.Endpoint != "":
		x.placed, x.chosen = true, o.Endpoint
		return picking.Choice{Address: o.Endpoint}, nil, nil
	}
	c = x.choose()
	return c, x.refused(c), nil
}

// tooLong reports whether the body is, or may be, longer than what the proxy keeps of it. Envoy 1.40 loses the end of
// such a body if it comes while the picker has the first part, and the request then hangs. So it is not looked at.
func (x *exchange) tooLong() bool {
	return x.modes.partial && (x.asked.Size < 0 || x.asked.Size > cmp.Or(x.bodyLimit, buffer))
}

// choose names the endpoint of the request, and counts the choice.
func (x *exchange) choose() picking.Choice {
	pool, now := x.loads.Pool(x.cluster), time.Now()
	c := picking.Choice{Reason: reasonShed}
	if !x.strict || rand.Float64() >= pool.Drop(now) {
		c = pool.Choose(now, x.asked, &x.prompt)
	}
	if x.single {
		c.Others = nil
	}
	x.choices(x.cluster, string(c.Reason))
	x.chosen = c.Address
	return c
}

// refused is the answer where there is no choice, and none is not good enough; else nil.
func (x *exchange) refused(c picking.Choice) *extprocv3.ProcessingResponse {
	if c.Address == "" && (c.Reason == picking.ReasonSubset || x.strict) {
		return refusal(c.Reason)
	}
	return nil
}
