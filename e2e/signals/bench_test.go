package signals

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"steelyard/e2e/rig/load"
	"steelyard/e2e/rig/modelsim"
	"steelyard/e2e/rig/testbed"
	envoybootstrap "steelyard/envoy-bootstrap"
	"steelyard/sim/engine"
	"steelyard/xds"
)

// reportingWays are the ways in which an Envoy reports its requests; the first is the baseline.
var reportingWays = []struct {
	name    string
	options envoybootstrap.Options
	form    [2]float64    // immediate and batched, in percent
	reports time.Duration // interval
}{
	{name: "silent", options: envoybootstrap.Options{NoUpstreamLog: true, NoLoadReports: true, NoRuntime: true}},
	{name: "immediate", options: logOnly, form: [2]float64{100, 0}},
	{name: "batched", options: logOnly, form: [2]float64{0, 100}},
	{name: "off", options: logOnly, form: [2]float64{0, 0}},
	{name: "reports-1s", options: envoybootstrap.Options{NoUpstreamLog: true}, reports: time.Second},
	{name: "reports-100ms", options: envoybootstrap.Options{NoUpstreamLog: true}, reports: 100 * time.Millisecond},
}

// BenchmarkCostOfSignals measures what it costs an Envoy of one worker to report its requests to Steelyard: the CPU
// beyond that of an Envoy that does not report and gets the same load, in percent of a core, as the median over the
// rounds. In every round each Envoy is measured for a second.
//
//	go test ./e2e/signals -run '^$' -bench CostOfSignals -benchtime 10x
func BenchmarkCostOfSignals(b *testing.B) {
	pool := testbed.Pool(b, 10)
	envoys := make([]*receiverEnvoy, len(reportingWays))
	for i, way := range reportingWays {
		r := receive(b, testbed.Addresses(pool)...)
		r.interval.Store(int64(max(way.reports, time.Millisecond)))
		envoys[i] = r.envoy(way.options, 1)
		for _, w := range r.streams.Watchers(testbed.Cluster) {
			r.streams.SetRuntime(w, map[string]float64{xds.RuntimeImmediate: way.form[0],
				xds.RuntimeBatched: way.form[1]})
		}
	}
	for _, rate := range []float64{0, 50, 100, 200, 400} {
		b.Run(fmt.Sprintf("rate=%.0f", rate), func(b *testing.B) {
			used := make([][]float64, len(envoys)) // percent of a core, by way and round
			for round := 0; b.Loop(); round++ {
				for i := range envoys {
					i = (i + round) % len(envoys)
					used[i] = append(used[i], 100*measured(b, envoys[i], rate, uint64(round)))
				}
			}
			report(b, used)
		})
	}
}

// BenchmarkCostOfSizes measures what the content-length in the log's entries costs an Envoy of one worker: its CPU for
// a request with the header in the log, divided by that without, as the median over the rounds, and their quartiles.
//
//	go test ./e2e/signals -run '^$' -bench CostOfSizes -benchtime 30x
func BenchmarkCostOfSizes(b *testing.B) {
	params := engine.Defaults()
	params.Iteration, params.Sequence = time.Millisecond, 0
	pool := testbed.Servers(b, testbed.Same(4, modelsim.Options{Batching: &params})...)
	var envoys []*receiverEnvoy // with the header, and without
	for _, edits := range [][]testbed.Edit{nil, {{"additional_request_headers_to_log: [content-length]", ""}}} {
		r := receive(b, testbed.Addresses(pool)...)
		r.interval.Store(int64(time.Millisecond))
		envoys = append(envoys, r.envoy(logOnly, 1, edits...))
		for _, w := range r.streams.Watchers(testbed.Cluster) {
			r.streams.SetRuntime(w, map[string]float64{xds.RuntimeImmediate: 100, xds.RuntimeBatched: 0})
		}
	}
	var requests []load.Completion
	for i := range 1000 {
		at := time.Duration(i) * 2500 * time.Microsecond
		requests = append(requests, load.Completion{At: at, Prompt: 200, Output: 1, Bytes: 1000})
	}
	var ratios []float64
	for round := 0; b.Loop(); round++ {
		var used [2]time.Duration
		for i := range envoys {
			i = (i + round) % len(envoys)
			before := cpu(b, envoys[i].Pid())
			plan := load.Plan{Targets: []string{envoys[i].url + "v1/completions"}, Completions: requests}
			result, err := load.Run(b.Context(), plan)
			if err != nil || result.Errors != 0 {
				b.Fatalf("%d errors, %v", result.Errors, err)
			}
			used[i] = cpu(b, envoys[i].Pid()) - before
		}
		ratios = append(ratios, float64(used[0])/float64(used[1]))
	}
	slices.Sort(ratios)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(ratios), "of-without")
	b.ReportMetric(ratios[len(ratios)/4], "first-quartile")
	b.ReportMetric(ratios[len(ratios)*3/4], "third-quartile")
}

// measured sends an Envoy a second of load and returns the share of a core that it used.
func measured(b *testing.B, e *receiverEnvoy, rate float64, seed uint64) float64 {
	b.Helper()
	before, began := cpu(b, e.Pid()), time.Now()
	if rate == 0 {
		time.Sleep(time.Second)
	} else {
		p := load.Plan{Targets: []string{e.url}, Rate: rate, Duration: time.Second,
			Work: load.Work{Mean: 20 * time.Millisecond}, Seed: seed}
		if result, err := load.Run(b.Context(), p); err != nil || result.Errors != 0 {
			b.Fatalf("%d errors, %v", result.Errors, err)
		}
	}
	return (cpu(b, e.Pid()) - before).Seconds() / time.Since(began).Seconds()
}

// report gives the medians of the differences to the baseline of the same round.
func report(b *testing.B, used [][]float64) {
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(used[0]), reportingWays[0].name+"-%")
	for i := 1; i < len(used); i++ {
		more := make([]float64, len(used[i]))
		for round := range more {
			more[round] = used[i][round] - used[0][round]
		}
		b.ReportMetric(median(more), "+"+reportingWays[i].name+"-%")
	}
}

func median(x []float64) float64 {
	x = slices.Sorted(slices.Values(x))
	return (x[(len(x)-1)/2] + x[len(x)/2]) / 2
}

// cpu returns what all threads of a process have run, by the scheduler's own clock: the
// ticks of /proc/PID/stat are too coarse for a second.
func cpu(b *testing.B, pid int) time.Duration {
	b.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil || len(files) == 0 {
		b.Fatalf("no threads of process %d: %v", pid, err)
	}
	var sum time.Duration
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			b.Fatal(err)
		}
		nanoseconds, err := strconv.ParseInt(strings.Fields(string(text))[0], 10, 64)
		if err != nil {
			b.Fatal(err)
		}
		sum += time.Duration(nanoseconds)
	}
	return sum
}
