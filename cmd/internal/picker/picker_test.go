package picker

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	modev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"steelyard/weighting"
	"steelyard/xds/loads"
	"steelyard/xds/places"
)

const patience = 20 * time.Second

// quiet discards the log.
var quiet = slog.New(slog.DiscardHandler)

// A rig has the loads and the queues of steelyard serve, and a picker that follows them.
type rig struct {
	t      *testing.T
	loads  *loads.Server
	places *places.Server
	picker *Picker
	client extprocv3.ExternalProcessorClient
	health healthv1.HealthClient
}

// decision returns the decision of one step: idle endpoints under these addresses.
func decision(addresses ...string) weighting.Decision {
	var s weighting.Snapshot
	for _, a := range addresses {
		s.Endpoints = append(s.Endpoints, weighting.Endpoint{Address: a, Capacity: 1})
	}
	return weighting.NewLaw(weighting.DefaultParams()).Step(time.Now(), s)
}

func newRig(t *testing.T, o Options) *rig {
	t.Helper()
	r := &rig{t: t, loads: loads.New(quiet), places: places.New(unobserved{}, quiet, time.Time{})}
	o.Steelyard = serveGRPC(t, func(g *grpc.Server) {
		r.loads.Register(g)
		r.places.Register(g)
	}, func() {
		r.loads.Close()
		r.places.Close()
	})
	o.Listen, o.Admin = "127.0.0.1:0", "127.0.0.1:0"
	if o.Log == nil {
		o.Log = quiet
	}
	if o.Clusters == nil {
		o.Clusters = []string{"llama"}
	}
	p, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	r.picker = p
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	conn, err := grpc.NewClient(p.Address(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	r.client, r.health = extprocv3.NewExternalProcessorClient(conn), healthv1.NewHealthClient(conn)
	t.Cleanup(func() {
		conn.Close()
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run returned %v", err)
		}
		http.DefaultClient.CloseIdleConnections()
	})
	return r
}

// serveGRPC serves until the test ends, and returns the address.
func serveGRPC(t *testing.T, register func(*grpc.Server), close func()) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	register(g)
	var running sync.WaitGroup
	running.Go(func() { _ = g.Serve(listener) })
	t.Cleanup(func() {
		close()
		g.Stop()
		running.Wait()
	})
	return listener.Addr().String()
}

func (r *rig) eventually(what string, check func() bool) {
	r.t.Helper()
	for end := time.Now().Add(patience); !check(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// publish has the picker follow these endpoints.
func (r *rig) publish(cluster string, addresses ...string) {
	r.t.Helper()
	r.loads.Publish(cluster, decision(addresses...))
	r.places.Publish(cluster, decision(addresses...))
	r.eventually("the picker has the loads", func() bool {
		n, _, _ := r.picker.loads.Pool(cluster).State(time.Now())
		return n == len(addresses)
	})
}

// exchange sends messages on one stream, and returns the answer to each.
func (r *rig) exchange(ctx context.Context, messages ...*extprocv3.ProcessingRequest) (
	out []*extprocv3.ProcessingResponse, err error) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	stream, err := r.client.Process(ctx)
	if err != nil {
		return nil, err
	}
	for _, m := range messages {
		if err := stream.Send(m); err != nil && !errors.Is(err, io.EOF) {
			return out, err
		}
		a, err := stream.Recv()
		if err != nil {
			return out, err
		}
		out = append(out, a)
	}
	return out, stream.CloseSend()
}

func headers(m *corev3.Metadata) *extprocv3.ProcessingRequest {
	return &extprocv3.ProcessingRequest{MetadataContext: m, Request: &extprocv3.ProcessingRequest_RequestHeaders{
		RequestHeaders: &extprocv3.HttpHeaders{Headers: &corev3.HeaderMap{Headers: []*corev3.HeaderValue{
			{Key: "content-length", RawValue: []byte("1200")}}}}}}
}

// hint is the proxy's subset of endpoints.
func hint(addresses ...any) *corev3.Metadata {
	list, _ := structpb.NewList(addresses)
	return hinted(structpb.NewListValue(list))
}

// text is the subset of a proxy that sends a text instead of a list.
func text(addresses string) *corev3.Metadata { return hinted(structpb.NewStringValue(addresses)) }

func hinted(v *structpb.Value) *corev3.Metadata {
	return &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{subsetSpace: {
		Fields: map[string]*structpb.Value{subset: v}}}}
}

// TestASubsetIsBounded, as a list and as a text.
func TestASubsetIsBounded(t *testing.T) {
	long := strings.TrimSuffix(strings.Repeat("10.0.0.1:80,", maxSubset+1), ",")
	list := strings.Split(long, ",")
	for name, m := range map[string]*corev3.Metadata{"text": text(long), "list": hint(anys(list)...)} {
		if got, limited := subsetOf(m); len(got) != maxSubset || !limited {
			t.Errorf("%s: %d addresses, limited %t; want %d", name, len(got), limited, maxSubset)
		}
	}
}

func anys(texts []string) (out []any) {
	for _, s := range texts {
		out = append(out, s)
	}
	return out
}

// namedBy are the endpoints in the header and in the metadata of an answer, to headers or to a body.
func namedBy(a *extprocv3.ProcessingResponse) (header, meta string) {
	response := cmp.Or(a.GetRequestHeaders().GetResponse(), a.GetRequestBody().GetResponse())
	for _, h := range response.GetHeaderMutation().GetSetHeaders() {
		if h.GetHeader().GetKey() == destination {
			header = string(h.GetHeader().GetRawValue())
		}
	}
	space := a.GetDynamicMetadata().GetFields()[destinationSpace].GetStructValue()
	return header, space.GetFields()[destination].GetStringValue()
}

func TestTheEndpointIsNamedInHeaderAndMetadata(t *testing.T) {
	r := newRig(t, Options{})
	r.publish("llama", "10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80", "10.0.0.4:80")
	got, err := r.exchange(t.Context(), headers(nil))
	if err != nil {
		t.Fatal(err)
	}
	header, meta := namedBy(got[0])
	if header == "" || header != meta {
		t.Errorf("header %q, metadata %q, want the same", header, meta)
	}
	if n := len(strings.Split(header, ",")); n != 3 {
		t.Errorf("%q names %d endpoints, want one and two for retries", header, n)
	}
	if !got[0].GetRequestHeaders().GetResponse().GetClearRouteCache() {
		t.Error("the route is not chosen again, although it may depend on the header")
	}
}

func TestAProxyThatReadsNoListGetsOneEndpoint(t *testing.T) {
	r := newRig(t, Options{Single: true})
	r.publish("llama", "10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80")
	got, err := r.exchange(t.Context(), headers(nil))
	if err != nil {
		t.Fatal(err)
	}
	header, meta := namedBy(got[0])
	if _, err := netip.ParseAddrPort(header); err != nil || header != meta {
		t.Errorf("header %q, metadata %q, want the same single address", header, meta)
	}
}

func TestASubsetOfTheProxyIsKept(t *testing.T) {
	r := newRig(t, Options{})
	r.publish("llama", "10.0.0.1:80", "10.0.0.2:80")
	for _, c := range []struct {
		name   string
		hint   *corev3.Metadata
		want   string
		status typev3.StatusCode
	}{
		{"all are known", hint("10.0.0.2:80"), "10.0.0.2:80", 0},
		{"one that is known", hint("10.0.0.2:80", "10.9.9.9:80"), "10.0.0.2:80", 0},
		{"none that is known", hint("10.9.9.9:80"), "", typev3.StatusCode_ServiceUnavailable},
		{"several in one text of a list", hint("10.9.9.9:80, 10.0.0.2:80"), "10.0.0.2:80", 0},
		{"one text, with a comma at its end", text("10.9.9.9:80, 10.0.0.2:80,"), "10.0.0.2:80", 0},
		{"an empty text", text(""), "", typev3.StatusCode_ServiceUnavailable},
		{"an empty list", hint(), "", typev3.StatusCode_ServiceUnavailable},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := r.exchange(t.Context(), headers(c.hint))
			if err != nil {
				t.Fatal(err)
			}
			header, _ := namedBy(got[0])
			if header != c.want || got[0].GetImmediateResponse().GetStatus().GetCode() != c.status {
				t.Errorf("got %v, want endpoint %q and status %v", got[0], c.want, c.status)
			}
		})
	}
	const counted = `steelyard_picker_unknown_endpoints_total{envoy_cluster_name="llama",reason="subset"} 4`
	if page := r.page(); !strings.Contains(page, counted) {
		t.Errorf("no %s in\n%s", counted, page)
	}
}

func TestWithoutLoadsTheProxyDecidesOrStrictRefuses(t *testing.T) {
	for _, strict := range []bool{false, true} {
		r := newRig(t, Options{Strict: strict})
		got, err := r.exchange(t.Context(), headers(nil))
		if err != nil {
			t.Fatal(err)
		}
		header, meta := namedBy(got[0])
		refused := got[0].GetImmediateResponse().GetStatus().GetCode() == typev3.StatusCode_ServiceUnavailable
		if header != "" || meta != "" || refused != strict {
			t.Errorf("strict %v: %v", strict, got[0])
		}
		removed := got[0].GetRequestHeaders().GetResponse().GetHeaderMutation().GetRemoveHeaders()
		if !strict && (len(removed) != 1 || removed[0] != destination) {
			t.Errorf("a client could name the endpoint: %v is removed", removed)
		}
	}
}

// TestWhileSteelyardShedsStrictAnswers429, as the protocol asks; otherwise the proxy has the share by itself.
func TestWhileSteelyardShedsStrictAnswers429(t *testing.T) {
	for _, strict := range []bool{false, true} {
		r := newRig(t, Options{Strict: strict})
		d := decision("10.0.0.1:80")
		d.DropFraction = 1
		r.loads.Publish("llama", d)
		pool := r.picker.loads.Pool("llama")
		r.eventually("the picker has the loads", func() bool { return pool.Drop(time.Now()) == 1 })
		got, err := r.exchange(t.Context(), headers(nil))
		if err != nil {
			t.Fatal(err)
		}
		header, _ := namedBy(got[0])
		code := got[0].GetImmediateResponse().GetStatus().GetCode()
		if strict && (header != "" || code != typev3.StatusCode_TooManyRequests) || !strict && header != "10.0.0.1:80" {
			t.Errorf("strict %v: endpoint %q, status %v", strict, header, code)
		}
		d.DropFraction = 0
		r.loads.Publish("llama", d)
		r.eventually("requests are sent again", func() bool {
			got, err := r.exchange(t.Context(), headers(nil))
			if err != nil {
				t.Fatal(err)
			}
			header, _ := namedBy(got[0])
			return header == "10.0.0.1:80"
		})
	}
}

func TestBodiesPassInEveryMode(t *testing.T) {
	r := newRig(t, Options{})
	r.publish("llama", "10.0.0.1:80")
	first := headers(nil)
	body := &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestBody{
		RequestBody: &extprocv3.HttpBody{Body: []byte("a prompt"), EndOfStream: true}}}
	answered := &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_ResponseBody{
		ResponseBody: &extprocv3.HttpBody{Body: []byte("an answer")}}}
	others := []*extprocv3.ProcessingRequest{
		{Request: &extprocv3.ProcessingRequest_ResponseHeaders{ResponseHeaders: &extprocv3.HttpHeaders{}}},
		{Request: &extprocv3.ProcessingRequest_RequestTrailers{RequestTrailers: &extprocv3.HttpTrailers{}}},
		{Request: &extprocv3.ProcessingRequest_ResponseTrailers{ResponseTrailers: &extprocv3.HttpTrailers{}}},
	}
	for _, mode := range []modev3.ProcessingMode_BodySendMode{modev3.ProcessingMode_STREAMED,
		modev3.ProcessingMode_BUFFERED, modev3.ProcessingMode_FULL_DUPLEX_STREAMED} {
		t.Run(mode.String(), func(t *testing.T) {
			first.ProtocolConfig = &extprocv3.ProtocolConfiguration{RequestBodyMode: mode, ResponseBodyMode: mode}
			got, err := r.exchange(t.Context(), append([]*extprocv3.ProcessingRequest{first, body, answered},
				others...)...)
			if err != nil {
				t.Fatal(err)
			}
			sent := got[1].GetRequestBody().GetResponse().GetBodyMutation().GetStreamedResponse()
			back := got[2].GetResponseBody().GetResponse().GetBodyMutation().GetStreamedResponse()
			if mode != modev3.ProcessingMode_FULL_DUPLEX_STREAMED {
				if got[1].GetRequestBody() == nil || got[2].GetResponseBody() == nil || sent != nil || back != nil {
					t.Errorf("bodies were answered with %v and %v, want to go on unchanged", got[1], got[2])
				}
			} else if string(sent.GetBody()) != "a prompt" || !sent.GetEndOfStream() ||
				string(back.GetBody()) != "an answer" || back.GetEndOfStream() {
				t.Errorf("bodies came back as %v and %v", sent, back)
			}
			if got[3].GetResponseHeaders() == nil || got[4].GetRequestTrailers() == nil ||
				got[5].GetResponseTrailers() == nil {
				t.Errorf("answers do not fit their messages: %v", got[3:])
			}
		})
	}
}

func TestTheStreamNamesItsCluster(t *testing.T) {
	r := newRig(t, Options{Clusters: []string{"llama", "flux"}})
	r.publish("llama", "10.0.0.1:80")
	r.publish("flux", "10.0.0.2:80")
	named := metadata.AppendToOutgoingContext(t.Context(), clusterKey, "flux")
	got, err := r.exchange(named, headers(nil))
	if err != nil {
		t.Fatal(err)
	}
	if header, _ := namedBy(got[0]); header != "10.0.0.2:80" {
		t.Errorf("the endpoint is %q, want that of the named cluster", header)
	}
	if _, err := r.exchange(t.Context(), headers(nil)); status.Code(err) != codes.InvalidArgument {
		t.Errorf("with several clusters and none named: %v", err)
	}
	unknown := metadata.AppendToOutgoingContext(t.Context(), clusterKey, "lama")
	if _, err := r.exchange(unknown, headers(nil)); status.Code(err) != codes.NotFound {
		t.Errorf("an unknown cluster: %v", err)
	}
}

func TestHealthAndReadinessFollowTheLoads(t *testing.T) {
	r := newRig(t, Options{})
	check := func(service string) healthv1.HealthCheckResponse_ServingStatus {
		a, err := r.health.Check(t.Context(), &healthv1.HealthCheckRequest{Service: service})
		if err != nil {
			t.Fatal(err)
		}
		return a.GetStatus()
	}
	ready := func() int {
		resp, err := http.Get("http://" + r.picker.AdminAddress() + "/readyz")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	processor := extprocv3.ExternalProcessor_ServiceDesc.ServiceName
	if ready() != http.StatusServiceUnavailable || check(processor) != healthv1.HealthCheckResponse_NOT_SERVING ||
		check(serviceLiveness) != healthv1.HealthCheckResponse_SERVING {
		t.Error("without loads it is ready, or not alive")
	}
	r.publish("llama", "10.0.0.1:80")
	r.eventually("it is ready", func() bool {
		return ready() == http.StatusOK && check(processor) == healthv1.HealthCheckResponse_SERVING &&
			check(serviceReadiness) == healthv1.HealthCheckResponse_SERVING
	})
	r.loads.Close()
	r.eventually("it is not ready any more", func() bool {
		return ready() == http.StatusServiceUnavailable && check(processor) == healthv1.HealthCheckResponse_NOT_SERVING
	})
}
