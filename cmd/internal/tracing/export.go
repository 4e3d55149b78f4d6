package tracing

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"

	"steelyard/internal/api"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"steelyard/internal/loops"
)

// The protocols of OTLP, as OTEL_EXPORTER_OTLP_PROTOCOL names them.
const (
	ProtocolGRPC = "grpc"
	ProtocolHTTP = "http/protobuf"
)

// Options are how traces are drawn, and where they go. What is empty comes from the environment variables of
// OpenTelemetry (OTEL_EXPORTER_OTLP_*), which also have headers, certificates and compression.
type Options struct {
	Endpoint string // a URL
	Protocol string // one of the constants above
	// SampleRatio is the share of the pushes that are traced, 0..1.
	SampleRatio float64

	Version string // of Steelyard
	Replica string // identifies the process
	Log     *slog.Logger
}

// New makes a Recorder, which exports nothing before Run. The error names a protocol that is not known.
func New(o Options) (*Recorder, error) {
	client, err := newClient(o)
	if err != nil {
		return nil, err
	}
	return newRecorder(o, otlptrace.NewUnstarted(client)), nil
}

func newRecorder(o Options, exporter exporter) *Recorder {
	return &Recorder{
		draw:    func() bool { return rand.Float64() < o.SampleRatio },
		sink:    &sink{exporter: exporter, log: o.Log, resource: resourceOf(o)},
		scrapes: make(map[string]*recent),
	}
}

func newClient(o Options) (otlptrace.Client, error) {
	protocol := cmp.Or(o.Protocol, os.Getenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"),
		os.Getenv("OTEL_EXPORTER_OTLP_PROTOCOL"), ProtocolHTTP)
	switch protocol {
	case ProtocolGRPC:
		options := []otlptracegrpc.Option{otlptracegrpc.WithRetry(otlptracegrpc.RetryConfig{})}
		if o.Endpoint != "" {
			options = append(options, otlptracegrpc.WithEndpointURL(o.Endpoint))
		}
		return otlptracegrpc.NewClient(options...), nil
	case ProtocolHTTP:
		options := []otlptracehttp.Option{otlptracehttp.WithRetry(otlptracehttp.RetryConfig{})}
		if o.Endpoint != "" {
			options = append(options, otlptracehttp.WithEndpointURL(tracesURL(o.Endpoint)))
		}
		return otlptracehttp.NewClient(options...), nil
	}
	return nil, fmt.Errorf("traces cannot be exported by the protocol %q: write %s or %s", protocol, ProtocolGRPC,
		ProtocolHTTP)
}

// tracesURL is where a collector takes traces over HTTP: below its base, as the specification has it for
// OTEL_EXPORTER_OTLP_ENDPOINT.
func tracesURL(base string) string {
	const path = "/v1/traces"
	return strings.TrimSuffix(strings.TrimRight(base, "/"), path) + path
}

// resourceOf names this process. What the environment names (OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES) takes
// precedence.
func resourceOf(o Options) *resource.Resource {
	own := resource.NewSchemaless(
		attribute.String("service.name", "steelyard"),
		attribute.String("service.version", clean(o.Version)),
		attribute.String("service.instance.id", clean(o.Replica)),
	)
	merged, err := resource.Merge(own, resource.Environment())
	if err != nil { // of two schemas; this process's has none
		return own
	}
	return merged
}

// exporter is what the sink uses of one.
type exporter interface {
	sdktrace.SpanExporter
	Start(ctx context.Context) error
}

// A sink takes the spans from the SDK and exports them. Only Run uses it, except for status.
type sink struct {
	exporter exporter
	log      *slog.Logger
	resource *resource.Resource
	spans    []sdktrace.ReadOnlySpan

	mu     sync.Mutex
	status api.Tracing
}

// OnStart, OnEnd, ForceFlush and Shutdown make the sink a processor of the SDK.
func (s *sink) OnStart(context.Context, sdktrace.ReadWriteSpan) {}
func (s *sink) OnEnd(span sdktrace.ReadOnlySpan)                { s.spans = append(s.spans, span) }
func (s *sink) ForceFlush(context.Context) error                { return nil }
func (s *sink) Shutdown(context.Context) error                  { return nil }

// export sends the spans that have ended. Those of a failed export are lost.
func (s *sink) export(ctx context.Context, limit time.Duration) {
	if len(s.spans) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	s.note(len(s.spans), s.exporter.ExportSpans(ctx, s.spans), time.Now())
	clear(s.spans)
	s.spans = s.spans[:0]
}

func (s *sink) note(spans int, err error, now time.Time) {
	s.mu.Lock()
	failed := s.status.Error != ""
	if err != nil {
		s.status.Failed += uint64(spans)
		s.status.Error, s.status.ErrorAt = err.Error(), api.At(now)
	} else {
		s.status.Exported += uint64(spans)
		s.status.Error = ""
	}
	s.mu.Unlock()
	switch {
	case err != nil && !failed:
		s.log.Warn("traces cannot be exported", "error", err)
	case err == nil && failed:
		s.log.Info("traces are exported again")
	}
}

// Status returns what became of the traces since the Recorder was made.
func (r *Recorder) Status() api.Tracing {
	if r == nil {
		return api.Tracing{}
	}
	r.mu.Lock()
	skipped := r.skipped
	r.mu.Unlock()
	r.sink.mu.Lock()
	defer r.sink.mu.Unlock()
	out := r.sink.status
	out.Enabled, out.Skipped = true, skipped
	return out
}

// Run exports the traces until ctx is done, and then the rest.
func (r *Recorder) Run(ctx context.Context) error {
	const (
		pace     = 250 * time.Millisecond
		limit    = 5 * time.Second        // of an export
		farewell = 300 * time.Millisecond // of the last, and of the exporter's end
	)
	// The SDK reports to the process what it leaves out; it would write to standard error otherwise.
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { r.sink.log.Debug("tracing", "error", err) }))
	background := context.WithoutCancel(ctx)
	if err := r.sink.exporter.Start(background); err != nil {
		r.sink.note(0, err, time.Now())
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.AlwaysSample()),
		sdktrace.WithSpanProcessor(r.sink), sdktrace.WithResource(r.sink.resource))
	tracer := provider.Tracer("steelyard")
	export := func(ctx context.Context, until time.Time, limit time.Duration) {
		for _, t := range r.due(until) {
			t.spans(tracer)
		}
		r.sink.export(ctx, limit)
	}
	loops.Every(ctx, pace, func(now time.Time) { export(ctx, now.Add(-patience), limit) })
	last, cancel := context.WithTimeout(background, farewell)
	defer cancel()
	export(last, time.Now(), farewell)
	_ = r.sink.exporter.Shutdown(last) // nothing is left that it could lose
	return nil
}
