package demo

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"steelyard/e2e/rig/golden"
	"steelyard/e2e/rig/load"
)

func someReport() report {
	return report{
		endpoints: []endpoint{
			{"127.0.0.1:40001", "vllm", 1, 4},
			{"127.0.0.1:40002", "triton", 0.5, 4},
		},
		phases: []phase{
			{
				policy: roundRobin, served: []uint64{500, 502},
				queues: []samples{{sum: 10, count: 200, max: 3}, {sum: 5000, count: 200, max: 61}},
				result: load.Result{
					Requests: 1002, Errors: 3, Codes: map[int]int{200: 999, 503: 2, 404: 1},
					Wait: load.Summary{N: 999, Mean: 1.25, P50: 0.0123, P90: 4, P99: 6.789},
				},
			},
			{
				policy: steelyard, served: []uint64{700, 302},
				queues: []samples{{sum: 90, count: 200, max: 4}, {sum: 80, count: 200, max: 5}},
				result: load.Result{
					Requests: 1002, Codes: map[int]int{200: 1002},
					Wait:     load.Summary{N: 1002, Mean: 0.05, P50: 0, P90: 0.2, P99: 0.5},
					Lateness: load.Summary{P99: 0.123},
				},
			},
		},
	}
}

func TestReportForPeople(t *testing.T) { golden.Check(t, "testdata/report.txt", someReport().text()) }

func TestReportWithoutAnyWait(t *testing.T) {
	r := someReport()
	r.phases[1].result.Wait = load.Summary{N: 1002}
	if got := r.text(); !strings.Contains(got, "none under Steelyard") || strings.Contains(got, "Inf") {
		t.Errorf("a wait of zero is no divisor:\n%s", got)
	}
}

func TestReportForMachines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "figures.json")
	if err := someReport().writeJSON(path); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "testdata/report.json", string(got))
}

func someFrame() frame {
	return frame{
		title: "Steelyard", elapsed: 12 * time.Second, duration: 20 * time.Second,
		load: load.Snapshot{Sent: 640, Done: 630, Errors: 1, Wait: load.Summary{P50: 0.012, P99: 1.9}},
		servers: []gauge{
			{endpoint: endpoint{"127.0.0.1:40001", "vllm", 1, 4}, running: 3, weight: 0.7},
			{endpoint: endpoint{"127.0.0.1:40002", "triton", 0.5, 4}, running: 4, queue: 5, weight: 0.3},
			{endpoint: endpoint{"127.0.0.1:40003", "triton", 0.5, 4}, running: 4, queue: 99},
		},
	}
}

func TestPictureOfARunningPhase(t *testing.T) {
	f := someFrame()
	golden.Check(t, "testdata/picture.txt", f.picture())
	for line := range strings.Lines(f.picture()) {
		if n := len([]rune(line)); n > 81 {
			t.Errorf("%d columns would wrap and spoil the redrawing: %s", n-1, line)
		}
	}
}

func TestPictureFitsOnAScreen(t *testing.T) {
	f := someFrame()
	for len(f.servers) < 200 {
		f.servers = append(f.servers, f.servers[0])
	}
	f.elapsed = 21 * time.Second
	if n := strings.Count(f.picture(), "\n"); n > 22 {
		t.Errorf("%d lines, want at most 22", n)
	}
	if got := f.picture(); !strings.Contains(got, "and 184 more") ||
		!strings.Contains(got, "10 requests are outstanding") {
		t.Errorf("the picture does not say what it leaves out, or what it waits for:\n%s", got)
	}
}

func TestTerminalIsRedrawnInPlace(t *testing.T) {
	var out bytes.Buffer
	s := newScreen(&out)
	s.terminal = true
	s.show(someFrame())
	first := out.String()
	out.Reset()
	s.show(someFrame())
	if got, want := out.String(), "\x1b[4A\x1b[J"+first; got != want {
		t.Errorf("second frame %q, want it over the first, %q", got, want)
	}
	out.Reset()
	s.settle("done\n")
	if got := out.String(); got != "\x1b[4A\x1b[Jdone\n" {
		t.Errorf("the end of the phase is written as %q", got)
	}
	out.Reset()
	s.show(someFrame())
	if got := out.String(); got != first {
		t.Errorf("the next phase begins with %q, want no erasing", got)
	}
}

func TestPlainOutputIsOneLineForEachFrame(t *testing.T) {
	var out bytes.Buffer
	s := newScreen(&out)
	s.show(someFrame())
	s.show(someFrame())
	line := "Steelyard    12 s  sent 640   wait p50    12 ms  p99   1.90 s  errors 1  queues 0 5 99\n"
	if got := out.String(); got != line+line {
		t.Errorf("wrote %q, want %q twice", got, line)
	}
	out.Reset()
	s.calm()
	for range 60 {
		s.show(someFrame())
	}
	if got := out.String(); got != line {
		t.Errorf("a minute of a phase without end wrote %q, want one line", got)
	}
}

func TestSpansHaveTheUnitThatSuitsThem(t *testing.T) {
	tests := []struct {
		seconds float64
		want    string
	}{{0, "0 ms"}, {0.0004, "0 ms"}, {0.4567, "457 ms"}, {1, "1.00 s"}, {12.345, "12.35 s"}}
	for _, tt := range tests {
		if got := span(tt.seconds); got != tt.want {
			t.Errorf("span(%v) is %q, want %q", tt.seconds, got, tt.want)
		}
	}
}
