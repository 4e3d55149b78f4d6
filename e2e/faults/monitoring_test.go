package faults

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v4"

	"steelyard/e2e/rig/load"
	"steelyard/e2e/rig/modelsim"
	"steelyard/e2e/rig/proc"
	"steelyard/e2e/rig/proc/proctest"
	"steelyard/e2e/rig/testbed"
	"steelyard/sim/engine"
)

// mayBeEmpty are the series of which a fleet that is well has none, with the reason.
var mayBeEmpty = map[string]string{
	"steelyard_certificate_expiry_timestamp_seconds":    "the xDS port of this fleet speaks plain text",
	"steelyard_refused_handshakes_total":                "the same",
	"steelyard_expected_wait_seconds":                   "engines that batch continuously have no slots to wait for",
	"steelyard_replicas_connected":                      "this fleet has one",
	"steelyard_kubernetes_requests_total":               "the endpoints of this fleet are a list",
	"steelyard_xds_port_refused_total":                  "counted from the first refusal on",
	"steelyard_endpoint_override_end_timestamp_seconds": "nothing is drained",
}

// TestEveryQueryOfTheRulesAndTheDashboardHasData: on a real Prometheus that scrapes a Steelyard with Envoys, engines
// and traffic. No alert fires.
func TestEveryQueryOfTheRulesAndTheDashboardHasData(t *testing.T) {
	t.Parallel()
	params := engine.Defaults()
	pool := testbed.Servers(t, testbed.Same(3, modelsim.Options{Batching: &params})...)
	redis := proctest.Redis(t, proc.RedisConfig{})
	f := start(t, testbed.Plan{Servers: pool, Envoys: 2, Top: "redis: {addresses: [" + redis.Address() + "]}",
		Cluster: "inflight: {redis_key: in-flight}"})
	for i := range f.URLs {
		f.URLs[i] += "v1/completions"
	}
	var requests []load.Completion
	for i := range 6000 {
		requests = append(requests, load.Completion{At: time.Duration(i) * 20 * time.Millisecond,
			Prompt: 400, Output: 20, Bytes: 1600})
	}
	f.Send(load.Plan{Completions: requests})
	p := startPrometheus(t, f.Admin)

	recording, alerts := rules(t, "recording.yaml"), rules(t, "alerts.yaml")
	panels := dashboard(t)
	if len(recording) < 10 || len(alerts) < 20 || len(panels) < 20 {
		t.Fatalf("only %d recording rules, %d alerts and %d queries of the dashboard were read",
			len(recording), len(alerts), len(panels))
	}
	// The rules of Prometheus itself record; that a series has no data yet is a matter of seconds.
	for _, name := range slices.Sorted(maps.Keys(recording)) {
		f.Eventually(name+" is recorded", func() error { return p.hasData(name) })
	}
	if result, err := p.query(`steelyard_endpoint_load{endpoint="http-admin"}`); err != nil || len(result) > 0 {
		t.Errorf("series of endpoints have the port in place of the endpoint: %v, %v", result, err)
	}
	for _, query := range panels {
		f.Eventually("the dashboard's query has data: "+query, func() error {
			return p.hasData(query)
		})
	}
	for _, name := range slices.Sorted(maps.Keys(alerts)) {
		for _, selector := range series.FindAllString(alerts[name], -1) {
			metric, _, _ := strings.Cut(selector, "{")
			if mayBeEmpty[metric] == "" {
				f.Eventually(name+" has data: "+selector, func() error { return p.hasData(metric) })
			}
		}
		// The whole expression is one that Prometheus evaluates; it holds for no moment long enough to fire.
		if _, err := p.query(alerts[name]); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	firing, err := p.query(`ALERTS{alertstate="firing"}`)
	if err != nil || len(firing) > 0 {
		t.Errorf("alerts of a fleet that is well: %v, %v", firing, err)
	}
}

// series are selectors in an expression, with their labels.
var series = regexp.MustCompile(`\b(?:\w+:)?steelyard_\w+(?::\w+)?(?:\{[^}]*\})?`)

// rules returns the expressions of a file of rules, by what they record or the alert.
func rules(t *testing.T, name string) map[string]string {
	t.Helper()
	var file struct {
		Groups []struct {
			Rules []struct{ Record, Alert, Expr string }
		}
	}
	if err := yaml.Unmarshal(deployed(t, "prometheus", name), &file); err != nil {
		t.Fatal(err)
	}
	out := make(map[string]string)
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			out[r.Record+r.Alert] = r.Expr
		}
	}
	return out
}

// dashboard returns the queries of the dashboard, with all namespaces and clusters chosen.
func dashboard(t *testing.T) (queries []string) {
	t.Helper()
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(deployed(t, "grafana", "steelyard.json"), &board); err != nil {
		t.Fatal(err)
	}
	for _, panel := range board.Panels {
		for _, target := range panel.Targets {
			metric := series.FindString(target.Expr)
			if name, _, _ := strings.Cut(metric, "{"); mayBeEmpty[name] == "" {
				queries = append(queries, strings.NewReplacer("$cluster", ".*", "$namespace", ".*").Replace(
					target.Expr))
			}
		}
	}
	return queries
}

// deployed reads a file below deploy.
func deployed(t *testing.T, path ...string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(append([]string{"..", "..", "deploy"}, path...)...))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// prometheus is a running one, by its URL.
type prometheus string

// startPrometheus runs one that scrapes a Steelyard every second and evaluates the rules as often. Its target has the
// labels that the Prometheus operator gives to those of the ServiceMonitor: the port is named "endpoint", as a model
// server is in Steelyard's series.
func startPrometheus(t *testing.T, target string) prometheus {
	t.Helper()
	program, err := proc.Find(proc.ProgramPrometheus)
	if err != nil {
		t.Fatal(err)
	}
	address, err := proc.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	here, err := filepath.Abs(filepath.Join("..", "..", "deploy", "prometheus"))
	if err != nil {
		t.Fatal(err)
	}
	dir := proctest.Dir(t)
	var monitor struct {
		Spec struct {
			Endpoints []struct {
				Port        string
				HonorLabels bool `yaml:"honorLabels"`
			}
		}
	}
	text, err := os.ReadFile(filepath.Join("..", "..", "manifests", "overlays", "monitoring", "servicemonitor.yaml"))
	if err == nil {
		err = yaml.Unmarshal(text, &monitor)
	}
	if err != nil || len(monitor.Spec.Endpoints) != 1 {
		t.Fatalf("the ServiceMonitor is %+v, %v", monitor, err)
	}
	as := monitor.Spec.Endpoints[0]
	config := fmt.Sprintf(`global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: ["%s/recording.yaml", "%s/alerts.yaml"]
scrape_configs:
- job_name: steelyard
  honor_labels: %t
  static_configs:
  - targets: ["%s"]
    labels: {endpoint: "%s", namespace: steelyard, service: steelyard-admin, pod: steelyard-0, container: steelyard}
`, here, here, as.HonorLabels, target, as.Port)
	path := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	process := proctest.Start(t, proc.Spec{Path: program, Dir: dir, Args: []string{"--config.file", path,
		"--storage.tsdb.path", filepath.Join(dir, "data"), "--web.listen-address", address}})
	if err := process.WaitReady(t.Context(), proc.AnswersHTTP("http://"+address+"/-/ready")); err != nil {
		t.Fatal(err)
	}
	return prometheus("http://" + address)
}

// query evaluates an expression at this moment.
func (p prometheus) query(expression string) ([]json.RawMessage, error) {
	resp, err := http.Get(string(p) + "/api/v1/query?query=" + url.QueryEscape(expression))
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var answer struct {
		Status, Error string
		Data          struct{ Result []json.RawMessage }
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return nil, err
	}
	if answer.Status != "success" {
		return nil, fmt.Errorf("%s: %s", expression, answer.Error)
	}
	return answer.Data.Result, nil
}

func (p prometheus) hasData(expression string) error {
	result, err := p.query(expression)
	if err == nil && len(result) == 0 {
		err = fmt.Errorf("no data")
	}
	return err
}
