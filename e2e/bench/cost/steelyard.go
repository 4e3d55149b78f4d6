package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"steelyard/e2e/rig/proc"
)

// A steelyard is the process that is measured.
type steelyard struct {
	*proc.Process
	xds, admin string
}

// start writes the configuration of a setting and runs the binary with it.
func start(ctx context.Context, binary, dir string, s Setting, f *fleet, env []string) (*steelyard, error) {
	addresses, err := proc.FreeAddresses(2)
	if err != nil {
		return nil, err
	}
	y := &steelyard{xds: addresses[0], admin: addresses[1]}
	path := filepath.Join(dir, "steelyard.yaml")
	if err := os.WriteFile(path, []byte(y.config(s, f)), 0o600); err != nil {
		return nil, fmt.Errorf("writing the configuration: %w", err)
	}
	for _, e := range env { // for this child only: proc passes the environment on
		name, value, _ := strings.Cut(e, "=")
		os.Setenv(name, value)
	}
	y.Process, err = proc.StartSteelyard(ctx,
		proc.SteelyardConfig{Path: binary, Config: path, Admin: y.admin, Dir: dir})
	return y, err
}

// config returns the default configuration, except for what the setting is about.
func (y *steelyard) config(s Setting, f *fleet) string {
	push := ""
	if s.Changes {
		// One endpoint of a thousand is less than the deadband, and a push a second is
		// to be one for the change, not for the heartbeat.
		push = "    push: {deadband: 0.0003, heartbeat: 3s, endpoint_stale_after: 10s}\n"
	}
	return fmt.Sprintf(`xds: {listen: %q, push_budget: 100MiB}
admin: {listen: %q}
clusters:
  - name: %s
    engine: vllm
    scrape: {interval: %s}
%s    endpoints:
      static:
%s`, y.xds, y.admin, clusterName, interval, push, f.yaml())
}

// ready waits until the cluster is served.
func (y *steelyard) ready(ctx context.Context) error {
	return y.WaitReady(ctx, proc.AnswersHTTP("http://"+y.admin+"/readyz"))
}

// counters are what the process counts of itself, since its start.
type counters struct {
	scrapes, failed, steps, pushes, acks, nacks float64
	heap, goroutines                            float64 // at the moment; bytes, number
	gcs                                         float64
}

// counters asks /metrics.
func (y *steelyard) counters(ctx context.Context) (counters, error) {
	var c counters
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+y.admin+"/metrics", nil)
	if err != nil {
		return c, err
	}
	client := http.Client{Timeout: 10 * time.Second}
	response, err := client.Do(request)
	if err != nil {
		return c, fmt.Errorf("asking steelyard for its counters: %w", err)
	}
	defer response.Body.Close()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(response.Body)
	if err != nil {
		return c, fmt.Errorf("reading steelyard's counters: %w", err)
	}
	sum := func(name, label, value string) (total float64) {
		for _, m := range families[name].GetMetric() {
			matches := label == ""
			for _, l := range m.GetLabel() {
				matches = matches || l.GetName() == label && l.GetValue() == value
			}
			if matches {
				total += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
		return total
	}
	c.scrapes = sum("steelyard_scrapes_total", "", "")
	c.failed = c.scrapes - sum("steelyard_scrapes_total", "result", "ok")
	c.steps = sum("steelyard_decisions_total", "", "")
	c.pushes = sum("steelyard_pushes_total", "", "")
	c.acks = sum("steelyard_acks_total", "", "")
	c.nacks = sum("steelyard_nacks_total", "", "")
	c.heap = sum("go_memstats_heap_inuse_bytes", "", "")
	c.goroutines = sum("go_goroutines", "", "")
	for _, m := range families["go_gc_duration_seconds"].GetMetric() {
		c.gcs += float64(m.GetSummary().GetSampleCount())
	}
	return c, nil
}

// resident returns the memory of a process, in bytes.
func resident(pid int) (float64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("reading the memory of process %d: %w", pid, err)
	}
	for line := range strings.Lines(string(status)) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == "VmRSS:" {
			kilobytes, err := strconv.ParseFloat(fields[1], 64)
			return kilobytes * 1024, err
		}
	}
	return 0, fmt.Errorf("reading the memory of process %d: no VmRSS in its status", pid)
}
