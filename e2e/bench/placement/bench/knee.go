package bench

import (
	"fmt"
	"time"

	"steelyard/e2e/bench/placement/fleet"
	"steelyard/e2e/bench/placement/report"
)

// Knee turns a bench into one of the price of freshness: the row of the access
// log with other paces of its pushes, between LEAST_REQUEST and the bound. Each
// sweep changes one setting; where a budget is not what is swept, there is none.
func Knee(o Options) (Options, []report.Sweep) {
	o.Services = []time.Duration{time.Second, 250 * time.Millisecond}
	o.Policies = nil
	for _, p := range fleet.Policies() {
		if p.Name == "least_request" || p.Name == "shortest_queue" {
			o.Policies = append(o.Policies, p)
		}
	}
	var sweeps []report.Sweep
	for _, s := range []struct {
		title  string
		values []string
		push   func(value string) []string
	}{
		{"min_interval", []string{"5ms", "10ms", "20ms", "50ms", "100ms", "250ms"}, func(v string) []string {
			return []string{"envoy_cpu: 0", "min_interval: " + v}
		}},
		{"deadband", []string{"0", "0.02", "0.05", "0.1"}, func(v string) []string {
			return []string{"envoy_cpu: 0", "deadband: " + v}
		}},
		{"envoy_cpu", []string{"0.005", "0.01", "0.02", "0.04"}, func(v string) []string {
			return []string{"envoy_cpu: " + v}
		}},
	} {
		sweep := report.Sweep{Title: s.title}
		for _, v := range s.values {
			p := knee(s.title, v, s.push(v))
			o.Policies = append(o.Policies, p)
			sweep.Policies = append(sweep.Policies, p.Name)
		}
		sweeps = append(sweeps, sweep)
	}
	return o, sweeps
}

// knee returns the row of the access log with other lines of the push section.
func knee(setting, value string, push []string) fleet.Policy {
	return fleet.Policy{
		Name:    fmt.Sprintf("%s=%s", setting, value),
		Title:   fmt.Sprintf("%s %s", setting, value),
		Control: &fleet.Control{Scrape: 250 * time.Millisecond, LoadReports: true, AccessLog: true, Push: push},
	}
}
