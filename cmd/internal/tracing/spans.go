package tracing

import (
	"context"
	"math"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	oteltrace "go.opentelemetry.io/otel/trace"
)

// longestText bounds the texts of others in a span, in bytes.
const longestText = 1024

// text is an attribute that can be exported, whatever wrote it: OTLP refuses what is not UTF-8.
func text(key, value string) attribute.KeyValue { return attribute.String(key, clean(value)) }

func clean(s string) string { return strings.ToValidUTF8(s[:min(len(s), longestText)], "\uFFFD") }

// spans makes those of a trace.
func (t *trace) spans(tracer oteltrace.Tracer) {
	ctx, root := tracer.Start(context.Background(), "decision", oteltrace.WithTimestamp(t.began()),
		oteltrace.WithAttributes(t.attributes()...))
	for _, s := range t.scrapes {
		child(ctx, tracer, "scrape", s.began, s.end, s.failure, text("steelyard.endpoint", s.address))
	}
	if t.decided {
		child(ctx, tracer, "decide", t.at, t.pushBegan, "", attribute.Int("steelyard.endpoints", t.endpoints))
	}
	end := t.pushEnded
	child(ctx, tracer, "push", t.pushBegan, end, t.failure)
	for _, a := range t.answers {
		refusal := ""
		if a.nack {
			refusal = "NACK: " + a.message
		}
		child(ctx, tracer, "ack", t.pushBegan, a.at, refusal, text("steelyard.envoy", a.node))
		if a.at.After(end) {
			end = a.at
		}
	}
	if t.failure != "" {
		root.SetStatus(codes.Error, clean(t.failure))
	}
	root.End(oteltrace.WithTimestamp(end))
}

func (t *trace) began() time.Time {
	began := t.pushBegan
	if t.decided && t.at.Before(began) {
		began = t.at
	}
	for _, s := range t.scrapes {
		if s.began.Before(began) {
			began = s.began
		}
	}
	return began
}

func (t *trace) attributes() []attribute.KeyValue {
	out := []attribute.KeyValue{
		text("steelyard.cluster", t.cluster),
		text("steelyard.version", t.version),
		attribute.Int("steelyard.scrapes", t.scrapeSum),
		attribute.Int("steelyard.acks", t.acks),
		attribute.Int("steelyard.nacks", t.nacks),
	}
	if !t.decided {
		return out
	}
	out = append(out,
		text("steelyard.reason", t.reason),
		attribute.Int("steelyard.endpoints", t.endpoints),
		attribute.Int("steelyard.overloaded_endpoints", t.overloaded),
		attribute.Float64("steelyard.horizon_seconds", t.horizon.Seconds()),
		attribute.Float64("steelyard.drop_fraction", t.drop),
	)
	if !math.IsNaN(t.arrivals) {
		out = append(out, attribute.Float64("steelyard.arrival_rate", t.arrivals))
	}
	return out
}

func child(ctx context.Context, tracer oteltrace.Tracer, name string, began, ended time.Time, failure string,
	attributes ...attribute.KeyValue) {
	_, span := tracer.Start(ctx, name, oteltrace.WithTimestamp(began), oteltrace.WithAttributes(attributes...))
	if failure != "" {
		span.SetStatus(codes.Error, clean(failure))
	}
	span.End(oteltrace.WithTimestamp(ended))
}
