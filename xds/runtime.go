package xds

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"steelyard/internal/api"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	runtimev3 "github.com/envoyproxy/go-control-plane/envoy/service/runtime/v3"
	cachev3 "github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/sotw/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"steelyard/internal/credentials"
	"steelyard/internal/envoyid"
)

// RuntimeLayer is the name of the runtime layer that an Envoy subscribes to. Its keys are the percentages of requests,
// 0 to 100, that each access logger logs.
const (
	RuntimeLayer     = "steelyard"
	RuntimeImmediate = "steelyard.access_log.immediate" // sends every entry at once
	RuntimeBatched   = "steelyard.access_log.batched"   // sends many entries at a time
)

const (
	maxRuntimeLayers = 8      // layers to which one stream subscribes; an Envoy subscribes to one
	maxRuntimeEnvoys = 16_384 // Envoys whose layer is not the default
)

// A RuntimeClient is one Envoy's stream of runtime values.
type RuntimeClient struct {
	envoyid.ID
	api.Runtime
	Peer string // remote address of the connection
	Acks uint64
}

// runtimes serves each Envoy its layer over a stream of its own (state of the world). It answers the first request at
// once, because an Envoy waits for its runtime layers when it starts.
type runtimes struct {
	runtimev3.UnimplementedRuntimeDiscoveryServiceServer

	ctx    context.Context // ends all streams
	prefix string
	normal map[string]float64 // the layer of an Envoy without one of its own
	log    *slog.Logger

	mu      loggingMutex // guards the fields below, and the streams
	seq     uint64       // of the last change of any layer
	layers  map[envoyid.ID]layer
	streams map[*runtimeStream]struct{}
}

// A layer is the runtime layer of one Envoy. seq identifies its content; that of the default is zero.
type layer struct {
	values map[string]float64
	seq    uint64
}

// A runtimeStream is one open stream: to go-control-plane, its callbacks and the cache that it watches. It has at most
// one unanswered response.
type runtimeStream struct {
	*runtimes
	envoy envoyid.ID
	peer  string

	watch func() error // passes the layer on; nil while a response is not answered
	names []string     // of the layers that were sent last
	nonce string       // of the last response; empty if there was none
	open  bool         // the last response is not answered

	next, sent, acked uint64 // seq of the layer that was passed on; sent (if any was); accepted (if any was)
	acks              uint64
	nack              string // Envoy's message, while its last answer was a NACK; else empty
}

func newRuntimes(ctx context.Context, prefix string, o Options) *runtimes {
	normal := map[string]float64{RuntimeImmediate: 100, RuntimeBatched: 0}
	if o.Runtime != nil {
		normal = percentages(o.Runtime)
	}
	return &runtimes{
		ctx: ctx, prefix: prefix, normal: normal, log: o.Log,
		mu:      loggingMutex{log: o.Log},
		layers:  make(map[envoyid.ID]layer),
		streams: make(map[*runtimeStream]struct{}),
	}
}

// set changes an Envoy's layer and wakes its streams.
func (r *runtimes) set(w envoyid.ID, values map[string]float64) {
	if values == nil {
		values = r.normal
	}
	values = percentages(values)
	r.mu.Lock()
	defer r.mu.Unlock()
	if maps.Equal(r.layer(w).values, values) {
		return
	}
	switch {
	case maps.Equal(values, r.normal):
		delete(r.layers, w)
	case r.layers[w].seq == 0 && len(r.layers) >= maxRuntimeEnvoys:
		r.mu.logLater(slog.LevelWarn, "too many Envoys have runtime values of their own, this one keeps the default",
			"node", w.NodeID, "host", w.Host, "limit", maxRuntimeEnvoys)
		return
	default:
		r.seq++
		r.layers[w] = layer{values: values, seq: r.seq}
	}
	for st := range r.streams {
		if st.envoy == w {
			_ = st.send() // its names were sent before, so it can be built
		}
	}
}

// percentages returns a copy with every value limited to 0..100, and without NaN.
func percentages(values map[string]float64) map[string]float64 {
	out := make(map[string]float64, len(values))
	for key, v := range values {
		if !math.IsNaN(v) {
			out[key] = min(max(v, 0), 100)
		}
	}
	return out
}

func (r *runtimes) layer(w envoyid.ID) layer {
	if l, ok := r.layers[w]; ok {
		return l
	}
	return layer{values: r.normal}
}

// StreamRuntime serves one stream until the stream or the server ends.
func (r *runtimes) StreamRuntime(stream runtimev3.RuntimeDiscoveryService_StreamRuntimeServer) error {
	st := &runtimeStream{runtimes: r, peer: peerAddress(stream.Context())}
	st.envoy.Host = hostOf(st.peer)
	st.envoy.Certificate = credentials.PeerIdentity(stream.Context()).Name
	return sotw.NewServer(r.ctx, st, st).StreamHandler(stream, resource.RuntimeType)
}

func (st *runtimeStream) OnStreamOpen(context.Context, int64, string) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.streams[st] = struct{}{}
	return nil
}

func (st *runtimeStream) OnStreamClosed(int64, *corev3.Node) {
	st.mu.Lock()
	defer st.mu.Unlock()
	delete(st.streams, st)
}

func (st *runtimeStream) OnStreamRequest(_ int64, q *discoveryv3.DiscoveryRequest) error {
	err := st.requested(q)
	if err != nil {
		st.log.Warn("envoy's runtime stream refused", "node", st.envoy.NodeID, "peer", st.peer, "error", err)
	}
	return err
}

// OnStreamResponse records a response. A request that comes after it was passed on, and before this, takes its place.
func (st *runtimeStream) OnStreamResponse(_ context.Context, _ int64, q *discoveryv3.DiscoveryRequest,
	response *discoveryv3.DiscoveryResponse) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.nonce, st.names, st.sent, st.open = response.GetNonce(), q.GetResourceNames(), st.next, true
}

// requested records a request. An error ends the stream.
func (st *runtimeStream) requested(q *discoveryv3.DiscoveryRequest) error {
	if q.GetTypeUrl() != resource.RuntimeType {
		return status.Error(codes.InvalidArgument, "this stream serves only runtime layers")
	}
	tooLong := func(name string) bool { return len(name) > maxNameBytes }
	if names := q.GetResourceNames(); len(names) > maxRuntimeLayers || slices.ContainsFunc(names, tooLong) {
		return status.Errorf(codes.ResourceExhausted,
			"more than %d runtime layers, or a name of more than %d bytes: this server has only the layer %q",
			maxRuntimeLayers, maxNameBytes, RuntimeLayer)
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if node := takeNode(q.GetNode()); st.envoy.NodeID == "" {
		st.envoy.NodeID = node.NodeID
	}
	if st.envoy.NodeID == "" {
		return errNoNode
	}
	if st.open && q.GetResponseNonce() == st.nonce {
		st.answered(q)
	}
	return nil
}

// CreateWatch sends the layer at once if the Envoy does not have it, or has asked for other names, and else when it
// changes. A layer that was refused is not repeated.
func (st *runtimeStream) CreateWatch(q *cachev3.Request, _ cachev3.Subscription, to chan cachev3.Response,
) (func(), error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	names := q.GetResourceNames()
	st.watch = func() error {
		response, err := st.response(names)
		if err == nil {
			to <- &cachev3.PassthroughResponse{Request: q, DiscoveryResponse: response}
		}
		return err
	}
	cancel := func() {
		st.mu.Lock()
		defer st.mu.Unlock()
		st.watch = nil
	}
	if len(names) > 0 && (st.nonce == "" || !slices.Equal(names, st.names) || st.layer(st.envoy).seq != st.sent) {
		return cancel, st.send()
	}
	return cancel, nil
}

// CreateDeltaWatch is not called: there is no delta here.
func (st *runtimeStream) CreateDeltaWatch(*cachev3.DeltaRequest, cachev3.Subscription, chan cachev3.DeltaResponse,
) (func(), error) {
	return nil, status.Error(codes.Unimplemented, "runtime layers are not served as delta")
}

// send answers the watch, if there is one.
func (st *runtimeStream) send() error {
	watch := st.watch
	if st.watch = nil; watch == nil {
		return nil
	}
	return watch()
}

// answered records an ACK or a NACK.
func (st *runtimeStream) answered(q *discoveryv3.DiscoveryRequest) {
	st.open = false
	failed := q.GetErrorDetail()
	if failed == nil {
		st.acks++
		st.acked, st.nack = st.sent, ""
		return
	}
	level := slog.LevelWarn
	if st.nack != "" {
		level = slog.LevelDebug // already logged: the state has not changed
	}
	st.nack = cmp.Or(refusal(failed.GetMessage()), "no reason given")
	st.mu.logLater(level, "envoy refuses its runtime layer",
		"node", st.envoy.NodeID, "peer", st.peer, "message", st.nack)
}

// response returns the layers with these names, which are sent next.
func (st *runtimeStream) response(names []string) (*discoveryv3.DiscoveryResponse, error) {
	l := st.layer(st.envoy)
	resources := make([]*anypb.Any, len(names))
	for i, name := range names {
		var err error
		if resources[i], err = runtimeResource(name, l.values); err != nil {
			return nil, status.Errorf(codes.Internal, "building runtime layer %q: %v", name, err)
		}
	}
	st.next = l.seq
	return &discoveryv3.DiscoveryResponse{TypeUrl: resource.RuntimeType,
		VersionInfo: st.prefix + strconv.FormatUint(l.seq, 10), Resources: resources}, nil
}

// runtimeResource returns a layer in Envoy's form. A layer with another name is empty: it sets nothing, and an Envoy
// that subscribes to it by mistake does not wait for it.
func runtimeResource(name string, values map[string]float64) (*anypb.Any, error) {
	fields := make(map[string]*structpb.Value, len(values))
	if name == RuntimeLayer {
		for key, v := range values {
			fields[key] = structpb.NewNumberValue(v)
		}
	}
	return anypb.New(&runtimev3.Runtime{Name: name, Layer: &structpb.Struct{Fields: fields}})
}

func (r *runtimes) clients() []RuntimeClient {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]RuntimeClient, 0, len(r.streams))
	for st := range r.streams {
		l := r.layer(st.envoy)
		out = append(out, RuntimeClient{
			ID: st.envoy, Peer: st.peer, Acks: st.acks,
			Runtime: api.Runtime{Subscribed: true, InSync: st.acks > 0 && st.acked == l.seq, Nack: st.nack},
		})
	}
	slices.SortFunc(out, func(a, b RuntimeClient) int {
		return cmp.Or(envoyid.Compare(a.ID, b.ID), strings.Compare(a.Peer, b.Peer))
	})
	return out
}
