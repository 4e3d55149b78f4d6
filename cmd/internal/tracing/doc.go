// Package tracing makes OpenTelemetry traces of pushed decisions and exports them by OTLP: which scrapes came since the
// push before, how long the law took, how long the push took, and when each Envoy answered.
//
//	decision                 from the first of the scrapes to the last answer
//	├ scrape                 one for each page that was read since the push before, at most 32
//	├ decide                 one step of the weighting law
//	├ push                   until the streams have the assignment
//	└ ack                    one for each Envoy, from the push to its answer, at most 64; a NACK is an error
//
// Every part of a trace has happened when its spans are made, so the law, the loops and the streams hold no span and
// wait for no exporter: they record times and values, and [Recorder.Run] does the rest, two seconds after the push. A
// nil Recorder records nothing.
//
// It is no tracer of requests: none passes through Steelyard.
//
// # Bounds
//
// A share of the pushes is drawn, at most ten a second and 64 that wait for answers. What exceeds that is not traced.
// An export takes five seconds at most, and is not repeated; spans that it lost are counted ([Recorder.Status]).
package tracing
