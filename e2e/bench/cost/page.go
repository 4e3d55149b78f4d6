package main

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
)

// A reading is what a metrics page shows of its server.
type reading struct {
	running, waiting float64
	completed        float64 // requests since the start
	queued, busy     float64 // request-seconds since the start
}

type liveSeries struct {
	series string
	value  func(reading) float64
}

// live has the series of a vLLM page that follow the server, by name and labels
// as far as they show it. The buckets of histograms stay as recorded: they are not read.
var live = []liveSeries{
	{"vllm:num_requests_running{", func(r reading) float64 { return r.running }},
	{"vllm:num_requests_waiting{", func(r reading) float64 { return r.waiting }},
	{"vllm:kv_cache_usage_perc{", func(r reading) float64 { return min(0.9, (r.running+r.waiting)/64) }},
	{`vllm:request_success_total{engine="0",finished_reason="length"`, func(r reading) float64 { return r.completed }},
	{"vllm:request_queue_time_seconds_count{", func(r reading) float64 { return r.completed }},
	{"vllm:request_queue_time_seconds_sum{", func(r reading) float64 { return r.queued }},
	{"vllm:request_inference_time_seconds_count{", func(r reading) float64 { return r.completed }},
	{"vllm:request_inference_time_seconds_sum{", func(r reading) float64 { return r.busy }},
}

// A page is a recorded body, cut at the values that are live. All servers share it.
type page struct {
	texts  [][]byte // one more than values
	values []func(reading) float64
	length int // of the texts, in bytes
}

// newPage cuts a recording. Every live series must be in it once.
func newPage(recording string) (*page, error) {
	p := &page{}
	found := make([]int, len(live))
	begin, pos := 0, 0
	for line := range strings.Lines(recording) {
		for i, s := range live {
			if strings.HasPrefix(line, s.series) {
				found[i]++
				p.cut(recording[begin:pos+strings.LastIndexByte(line, ' ')+1], s.value)
				begin = pos + len(strings.TrimRight(line, "\n"))
			}
		}
		pos += len(line)
	}
	for i, n := range found {
		if n != 1 {
			return nil, fmt.Errorf("cutting the recorded page: %s} is in it %d times, want once", live[i].series, n)
		}
	}
	p.cut(recording[begin:], nil)
	return p, nil
}

// named keeps of a recording what a server prints that is asked for the live series by
// name, with ?name[]=…: their samples under the header of their family.
func named(recording string) string {
	var kept, header strings.Builder
	for line := range strings.Lines(recording) {
		if line[0] == '#' {
			if strings.HasPrefix(line, "# HELP") {
				header.Reset()
			}
			header.WriteString(line)
			continue
		}
		name, _, _ := strings.Cut(line, "{")
		if slices.ContainsFunc(live, func(s liveSeries) bool { return strings.HasPrefix(s.series, name+"{") }) {
			kept.WriteString(header.String())
			kept.WriteString(line)
			header.Reset()
		}
	}
	return kept.String()
}

func (p *page) cut(text string, value func(reading) float64) {
	p.texts = append(p.texts, []byte(text))
	p.length += len(text)
	if value != nil {
		p.values = append(p.values, value)
	}
}

// A writer renders pages for one connection; its memory is used again.
type writer struct {
	page    *page
	numbers []byte
	ends    []int // of each number in numbers
	header  []byte
	out     net.Buffers
}

// response returns the page with its header, as pieces to write. It holds until the next call.
func (w *writer) response(r reading) net.Buffers {
	w.numbers, w.ends = w.numbers[:0], w.ends[:0]
	for _, value := range w.page.values {
		w.numbers = strconv.AppendFloat(w.numbers, value(r), 'f', -1, 64)
		w.ends = append(w.ends, len(w.numbers))
	}
	w.header = append(w.header[:0], "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=1.0.0; "+
		"charset=utf-8\r\nContent-Length: "...)
	w.header = strconv.AppendInt(w.header, int64(w.page.length+len(w.numbers)), 10)
	w.header = append(w.header, "\r\n\r\n"...)
	w.out = append(w.out[:0], w.header)
	begin := 0
	for i, end := range w.ends {
		w.out = append(w.out, w.page.texts[i], w.numbers[begin:end])
		begin = end
	}
	return append(w.out, w.page.texts[len(w.ends)])
}
