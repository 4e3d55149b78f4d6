package modelsim

import (
	_ "embed" // the recordings
	"math"
	"slices"
	"strconv"
	"strings"
)

// The recorded metrics pages that the live ones are made from, untouched.
var (
	//go:embed recordings/vllm-0.32.0-loaded.prom
	vllmRecording string
	//go:embed recordings/triton-2.51.0-loaded.prom
	tritonRecording string
)

// A live is the current value of one series.
type live func(r state) float64

// A page is a metrics body as alternating text and live values. The text points
// into the recording, so that hundreds of servers share it.
type page struct {
	segments []segment
	number   func(dst []byte, v float64) []byte // formats as the engine does
}

type segment struct {
	text  string
	value live // printed after text; nil for none
}

// An engineFormat is how an engine's page is written.
type engineFormat struct {
	recording   string
	contentType string
	live        func(series string) live // nil for series that stay as recorded
	number      func(dst []byte, v float64) []byte
}

func formatOf(e Engine) engineFormat {
	if e == Triton {
		return engineFormat{tritonRecording, "text/plain; charset=utf-8", liveTriton, appendPlain}
	}
	return engineFormat{vllmRecording, "text/plain; version=1.0.0; charset=utf-8", liveVLLM, appendPython}
}

// newPage cuts a recording at its live values. With whole unset, families that
// have no live series are left out.
func newPage(f engineFormat, whole bool) page {
	p := page{number: f.number}
	for _, family := range families(f.recording) {
		segments, isLive := cut(family, f.live)
		if whole || isLive {
			p.segments = append(p.segments, segments...)
		}
	}
	return p
}

// families splits a body before every HELP line.
func families(body string) []string {
	var all []string
	for body != "" {
		end := strings.Index(body[1:], "\n# HELP ")
		if end < 0 {
			return append(all, body)
		}
		end += len("\n") + 1
		all = append(all, body[:end])
		body = body[end:]
	}
	return all
}

// cut replaces the values of a family's live series.
func cut(family string, liveOf func(string) live) (segments []segment, isLive bool) {
	begin, pos := 0, 0
	for line := range strings.Lines(family) {
		space := strings.LastIndexByte(line, ' ')
		if line[0] != '#' && space >= 0 {
			if value := liveOf(line[:space]); value != nil {
				segments = append(segments, segment{text: family[begin : pos+space+1], value: value})
				begin = pos + len(strings.TrimRight(line, "\n"))
			}
		}
		pos += len(line)
	}
	return append(segments, segment{text: family[begin:]}), len(segments) > 0
}

func (p page) render(r state) []byte {
	body := make([]byte, 0, 64<<10)
	for _, s := range p.segments {
		body = append(body, s.text...)
		if s.value != nil {
			body = p.number(body, s.value(r))
		}
	}
	return body
}

// liveVLLM returns the source of the value of each live vLLM series.
func liveVLLM(series string) live {
	name, labels, _ := strings.Cut(series, "{")
	switch name {
	case "vllm:num_requests_running":
		return func(r state) float64 { return float64(r.running) }
	case "vllm:num_requests_waiting":
		return func(r state) float64 { return float64(r.waiting) }
	case "vllm:num_requests_waiting_by_reason":
		return when(labels, `reason="capacity"`, func(r state) float64 { return float64(r.waiting) })
	case "vllm:kv_cache_usage_perc":
		return func(r state) float64 { return r.kvUsage }
	case "vllm:request_success_total":
		return vllmFinished(labels)
	case "http_requests_total":
		return func(r state) float64 { return float64(r.served) }
	}
	for base, of := range vllmHistograms {
		if suffix, ok := strings.CutPrefix(name, base); ok {
			return liveHistogram(suffix, labels, func(r state) *histogram { return of(&r.totals) })
		}
	}
	return nil
}

func vllmFinished(labels string) live {
	switch {
	case strings.Contains(labels, `finished_reason="length"`):
		return func(r state) float64 { return float64(r.served) }
	case strings.Contains(labels, `finished_reason="abort"`):
		return func(r state) float64 { return float64(r.aborted) }
	case strings.Contains(labels, `finished_reason="error"`):
		return func(r state) float64 { return float64(r.failed) }
	}
	return zero
}

// vllmHistograms are the live histograms of vLLM, by the name of their family.
var vllmHistograms = map[string]func(*totals) *histogram{
	"vllm:request_queue_time_seconds":     func(t *totals) *histogram { return &t.queueTime },
	"vllm:request_inference_time_seconds": func(t *totals) *histogram { return &t.busyTime },
	"vllm:e2e_request_latency_seconds":    func(t *totals) *histogram { return &t.totalTime },
}

func liveHistogram(suffix, labels string, of func(state) *histogram) live {
	switch suffix {
	case "_count":
		return func(r state) float64 { return float64(of(r).n) }
	case "_sum":
		return func(r state) float64 { return of(r).sum.Seconds() }
	case "_bucket":
		bound := upperBound(labels)
		return func(r state) float64 { return float64(of(r).atMost(bound)) }
	}
	return nil // _created
}

// upperBound returns the value of the label le; NaN without it.
func upperBound(labels string) float64 {
	_, after, _ := strings.Cut(labels, `le="`)
	text, _, _ := strings.Cut(after, `"`)
	bound, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return math.NaN()
	}
	return bound
}

// bounds returns the finite bucket bounds of a histogram in a recording, ascending.
func bounds(recording, family string) []float64 {
	var all []float64
	for line := range strings.Lines(recording) {
		labels, ok := strings.CutPrefix(line, family+"_bucket{")
		if !ok {
			continue
		}
		if b := upperBound(labels); !math.IsInf(b, 1) && !math.IsNaN(b) {
			all = append(all, b)
		}
	}
	slices.Sort(all)
	return all
}

// liveTriton returns the source of the value of each live Triton series.
func liveTriton(series string) live {
	name, labels, _ := strings.Cut(series, "{")
	busy := `model="sleeper"`
	switch name {
	case "nv_inference_request_success":
		return when(labels, busy, func(r state) float64 { return float64(r.served) })
	case "nv_inference_request_failure":
		return when(labels, busy+`,reason="BACKEND"`, func(r state) float64 { return float64(r.failed) })
	case "nv_inference_count", "nv_inference_exec_count":
		return when(labels, busy, func(r state) float64 { return float64(r.served) })
	case "nv_inference_request_duration_us":
		return when(labels, busy, func(r state) float64 { return float64(r.totalTime.sum.Microseconds()) })
	case "nv_inference_queue_duration_us":
		return when(labels, busy, func(r state) float64 { return float64(r.queueTime.sum.Microseconds()) })
	case "nv_inference_compute_infer_duration_us":
		return when(labels, busy, func(r state) float64 { return float64(r.busyTime.sum.Microseconds()) })
	case "nv_inference_compute_input_duration_us", "nv_inference_compute_output_duration_us":
		return zero // there is no data to move
	case "nv_inference_pending_request_count":
		return when(labels, busy, func(r state) float64 { return float64(r.waiting) })
	}
	return nil
}

// when returns the value for series with these labels, and 0 for the others.
func when(labels, want string, v live) live {
	if strings.Contains(labels, want) {
		return v
	}
	return zero
}

func zero(state) float64 { return 0 }

// appendPlain writes whole numbers without a point, as Triton does.
func appendPlain(dst []byte, v float64) []byte { return strconv.AppendFloat(dst, v, 'f', -1, 64) }

// appendPython writes numbers as Python's client library does: always with a
// point, and with an exponent from a million on.
func appendPython(dst []byte, v float64) []byte {
	format := byte('f')
	if math.Abs(v) >= 1e6 {
		format = 'e'
	}
	at := len(dst)
	dst = strconv.AppendFloat(dst, v, format, -1, 64)
	if format == 'f' && !slices.Contains(dst[at:], '.') {
		dst = append(dst, ".0"...)
	}
	return dst
}
