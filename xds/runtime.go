package xds

import (
	"cmp"
	"errors"
	"io"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"steelyard/internal/api"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	runtimev3 "github.com/envoyproxy/go-control-plane/envoy/service/runtime/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"steelyard/internal/credentials"
	"steelyard/internal/envoyid"
	"steelyard/internal/loops"
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

// SetRuntime sets an Envoy's runtime layer: percentages by key, which it limits to 0..100; nil is the default,
// Options.Runtime. The server sends the layer if it differs from the previous one. It also keeps the layer of an Envoy
// that is not connected, until it is set to nil.
func (s *Server) SetRuntime(w envoyid.ID, layer map[string]float64) { s.runtimes.set(w, layer) }

// RuntimeClients returns the Envoys with a stream of runtime values, sorted by node id, host and peer. The caller may
// change the result.
func (s *Server) RuntimeClients() []RuntimeClient { return s.runtimes.clients() }

// runtimes serves each Envoy its layer over a stream of its own (state of the world). It answers the first request at
// once, because an Envoy waits for its runtime layers when it starts.
type runtimes struct {
	runtimev3.UnimplementedRuntimeDiscoveryServiceServer

	closing <-chan struct{}
	prefix  string
	normal  map[string]float64 // the layer of an Envoy without one of its own
	log     *slog.Logger

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

// A runtimeStream is one open stream. It has at most one unanswered response.
type runtimeStream struct {
	envoy   envoyid.ID
	peer    string
	changed loops.Signal // the layer may have changed

	names []string // of the layers it subscribes to
	asks  bool     // has to be answered even if the layer has not changed
	nonce uint64   // of the last response; zero if there was none
	open  bool     // the last response is not answered

	sent, acked uint64 // seq of the layer; valid if nonce or acks, respectively, are not zero
	acks        uint64
	nack        string // Envoy's message, while its last answer was a NACK; else empty
}

func newRuntimes(closing <-chan struct{}, prefix string, o Options) *runtimes {
	normal := map[string]float64{RuntimeImmediate: 100, RuntimeBatched: 0}
	if o.Runtime != nil {
		normal = percentages(o.Runtime)
	}
	return &runtimes{
		closing: closing, prefix: prefix, normal: normal, log: o.Log,
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
		r.mu.note(slog.LevelWarn, "too many Envoys have runtime values of their own, this one keeps the default",
			"node", w.NodeID, "host", w.Host, "limit", maxRuntimeEnvoys)
		return
	default:
		r.seq++
		r.layers[w] = layer{values: values, seq: r.seq}
	}
	for st := range r.streams {
		if st.envoy == w {
			st.changed.Set()
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
	st := r.opened(peerAddress(stream.Context()), credentials.PeerIdentity(stream.Context()).Name)
	defer r.closed(st)
	requests, ended := receive(stream)
	for {
		select {
		case <-r.closing:
			return nil
		case err := <-ended:
			return err
		case q := <-requests:
			if err := r.requested(st, q); err != nil {
				r.log.Warn("envoy's runtime stream refused", "node", st.envoy.NodeID, "peer", st.peer, "error", err)
				return err
			}
		case <-st.changed:
		}
		response, err := r.next(st)
		if err != nil {
			return err
		}
		if response == nil {
			continue
		}
		if err := stream.Send(response); err != nil {
			return err // the stream has ended
		}
	}
}

// receive reads the requests of a stream until it ends. Its goroutine ends with the stream, right after the handler
// that called it: nothing else can interrupt a read.
func receive(
	stream runtimev3.RuntimeDiscoveryService_StreamRuntimeServer,
) (<-chan *discoveryv3.DiscoveryRequest, <-chan error) {
	requests, ended := make(chan *discoveryv3.DiscoveryRequest), make(chan error, 1)
	go func() {
		for {
			q, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				err = nil
			}
			if q == nil {
				ended <- err
				return
			}
			select {
			case requests <- q:
			case <-stream.Context().Done():
				return
			}
		}
	}()
	return requests, ended
}

func (r *runtimes) opened(peer, certificate string) *runtimeStream {
	st := &runtimeStream{peer: peer, changed: loops.NewSignal()}
	st.envoy.Host, st.envoy.Certificate = hostOf(peer), certificate
	r.mu.Lock()
	defer r.mu.Unlock()
	r.streams[st] = struct{}{}
	return st
}

func (r *runtimes) closed(st *runtimeStream) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.streams, st)
}

// requested records a request. An error ends the stream.
func (r *runtimes) requested(st *runtimeStream, q *discoveryv3.DiscoveryRequest) error {
	if t := q.GetTypeUrl(); t != "" && t != resource.RuntimeType {
		return status.Error(codes.InvalidArgument, "this stream serves only runtime layers")
	}
	names := q.GetResourceNames()
	tooLong := func(name string) bool { return len(name) > maxNameBytes }
	if len(names) > maxRuntimeLayers || slices.ContainsFunc(names, tooLong) {
		return status.Errorf(codes.ResourceExhausted,
			"more than %d runtime layers, or a name of more than %d bytes: this server has only the layer %q",
			maxRuntimeLayers, maxNameBytes, RuntimeLayer)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if node := takeNode(q.GetNode()); st.envoy.NodeID == "" {
		st.envoy.NodeID = node.NodeID
	}
	if st.envoy.NodeID == "" {
		return errNoNode
	}
	if st.nonce > 0 && q.GetResponseNonce() != strconv.FormatUint(st.nonce, 10) {
		return nil // answers an earlier response than the last: stale, including its names
	}
	r.answered(st, q)
	if !slices.Equal(names, st.names) {
		st.names, st.asks = cloned(names), true
	}
	return nil
}

func cloned(names []string) []string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = strings.Clone(n)
	}
	return out
}

// answered records an ACK or a NACK.
func (r *runtimes) answered(st *runtimeStream, q *discoveryv3.DiscoveryRequest) {
	if !st.open {
		return
	}
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
	r.mu.note(level, "envoy refuses its runtime layer", "node", st.envoy.NodeID, "peer", st.peer, "message", st.nack)
}

// next returns the response to send on the stream, nil for none. While a response is unanswered, changes wait.
func (r *runtimes) next(st *runtimeStream) (*discoveryv3.DiscoveryResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.layer(st.envoy)
	if st.open || len(st.names) == 0 || !st.asks && l.seq == st.sent {
		return nil, nil
	}
	resources := make([]*anypb.Any, len(st.names))
	for i, name := range st.names {
		var err error
		if resources[i], err = runtimeResource(name, l.values); err != nil {
			return nil, status.Errorf(codes.Internal, "building runtime layer %q: %v", name, err)
		}
	}
	st.nonce++
	st.sent, st.open, st.asks = l.seq, true, false
	return &discoveryv3.DiscoveryResponse{
		TypeUrl: resource.RuntimeType, VersionInfo: r.prefix + strconv.FormatUint(l.seq, 10),
		Nonce: strconv.FormatUint(st.nonce, 10), Resources: resources,
	}, nil
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
