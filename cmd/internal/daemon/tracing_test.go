package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"steelyard/internal/api"

	collectorv1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"

	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"steelyard/e2e/rig/grpctest"
	"steelyard/e2e/rig/xdstest"
)

// A traceCollector receives traces by OTLP, over gRPC and HTTP.
type traceCollector struct {
	collectorv1.UnimplementedTraceServiceServer
	mu      sync.Mutex
	service string
	header  string // authorization of the latest request over HTTP
	traces  map[string][]*tracev1.Span
}

func (c *traceCollector) Export(_ context.Context, r *collectorv1.ExportTraceServiceRequest) (
	*collectorv1.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, resource := range r.ResourceSpans {
		for _, a := range resource.Resource.Attributes {
			if a.Key == "service.name" {
				c.service = a.Value.GetStringValue()
			}
		}
		for _, scope := range resource.ScopeSpans {
			for _, s := range scope.Spans {
				c.traces[string(s.TraceId)] = append(c.traces[string(s.TraceId)], s)
			}
		}
	}
	return &collectorv1.ExportTraceServiceResponse{}, nil
}

func (c *traceCollector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var request collectorv1.ExportTraceServiceRequest
	if err = errors.Join(err, proto.Unmarshal(body, &request)); err != nil || r.URL.Path != "/v1/traces" {
		http.Error(w, fmt.Sprint(r.URL.Path, err), http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	c.header = r.Header.Get("Authorization")
	c.mu.Unlock()
	answer, _ := c.Export(r.Context(), &request)
	out, _ := proto.Marshal(answer)
	w.Header().Set("Content-Type", "application/x-protobuf")
	_, _ = w.Write(out)
}

// whole returns a trace that has each kind of span; nil while there is none.
func (c *traceCollector) whole() map[string][]*tracev1.Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, spans := range c.traces {
		byName := map[string][]*tracev1.Span{}
		for _, s := range spans {
			byName[s.Name] = append(byName[s.Name], s)
		}
		if len(byName) == 5 {
			return byName
		}
	}
	return nil
}

// collectTraces starts a collector and returns its URL.
func collectTraces(t *testing.T, protocol string) (c *traceCollector, endpoint string) {
	c = &traceCollector{traces: map[string][]*tracev1.Span{}}
	if protocol == "http/protobuf" {
		s := httptest.NewServer(c)
		t.Cleanup(s.Close)
		return c, s.URL
	}
	address, _ := grpctest.Serve(t, func(g *grpc.Server) { collectorv1.RegisterTraceServiceServer(g, c) })
	return c, "http://" + address
}

// tracedPool is a pool of one server.
func tracedPool(t *testing.T) string {
	return fmt.Sprintf("clusters:\n- name: llama\n  engine: vllm\n  scrape: {interval: 100ms, timeout: 90ms}\n"+
		"  endpoints: {static: [{address: %q}]}\n", strings.TrimPrefix(model(t).URL, "http://"))
}

// TestADecisionIsTracedFromTheScrapeToTheACK has a real collector service, a scraped server and an Envoy that answers.
func TestADecisionIsTracedFromTheScrapeToTheACK(t *testing.T) {
	for _, protocol := range []string{"grpc", "http/protobuf"} {
		t.Run(protocol, func(t *testing.T) {
			t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20secret")
			collector, endpoint := collectTraces(t, protocol)
			d, base := serve(t, parse(t, fmt.Sprintf("tracing: {endpoint: %q, protocol: %s, sample_ratio: 1}\n",
				endpoint, protocol)+tracedPool(t)))
			envoy, err := xdstest.Dial(xdstest.Config{Address: d.XDSAddress(), NodeID: "edge-1",
				Clusters: []string{"llama"}})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(envoy.Close)

			var trace map[string][]*tracev1.Span
			soon(t, "a whole trace", func() bool { trace = collector.whole(); return trace != nil })
			root := trace["decision"][0]
			values := map[string]string{}
			for _, a := range root.Attributes {
				values[a.Key] = a.Value.GetStringValue()
			}
			if values["steelyard.cluster"] != "llama" || values["steelyard.version"] == "" ||
				values["steelyard.reason"] == "" || collector.service != "steelyard" {
				t.Errorf("the decision of %q has %v", collector.service, values)
			}
			push, ack := trace["push"][0], trace["ack"][0]
			decide := trace["decide"][0]
			if decide.StartTimeUnixNano > push.StartTimeUnixNano || push.StartTimeUnixNano > ack.EndTimeUnixNano ||
				trace["scrape"][0].StartTimeUnixNano < root.StartTimeUnixNano ||
				ack.EndTimeUnixNano > root.EndTimeUnixNano {
				t.Errorf("the order of the spans: %v", trace)
			}
			if protocol == "http/protobuf" && collector.header != "Bearer secret" {
				t.Errorf("the header from the environment is %q", collector.header)
			}
			var s api.Status
			if err := get(base, "/api/v1/status", &s); err != nil || !s.Tracing.Enabled || s.Tracing.Exported == 0 ||
				s.Tracing.Error != "" {
				t.Errorf("status %+v, %v", s.Tracing, err)
			}
		})
	}
}

// TestTracingBeginsAndEndsWithAReload also shows what an operator sees of a collector that is away.
func TestTracingBeginsAndEndsWithAReload(t *testing.T) {
	pool := tracedPool(t)
	d, base := serve(t, parse(t, pool))
	tracing := func() api.Tracing {
		var s api.Status
		if err := get(base, "/api/v1/status", &s); err != nil {
			t.Fatal(err)
		}
		return s.Tracing
	}
	if got := tracing(); got.Enabled {
		t.Errorf("without a section: %+v", got)
	}
	apply := func(section string) {
		t.Helper()
		if err := d.Apply(parse(t, section+pool)); err != nil {
			t.Fatal(err)
		}
	}
	apply("tracing: {endpoint: \"http://127.0.0.1:1\", sample_ratio: 1}\n")
	soon(t, "an export that fails", func() bool { return tracing().Failed > 0 })
	if got := tracing(); !got.Enabled || got.Exported != 0 || got.Error == "" {
		t.Errorf("with a collector that is away: %+v", got)
	}
	collector, endpoint := collectTraces(t, "grpc")
	apply(fmt.Sprintf("tracing: {endpoint: %q, protocol: grpc, sample_ratio: 1}\n", endpoint))
	soon(t, "traces at another collector", func() bool {
		collector.mu.Lock()
		defer collector.mu.Unlock()
		return len(collector.traces) > 0
	})
	apply("")
	if got := tracing(); got.Enabled {
		t.Errorf("without the section again: %+v", got)
	}
}
