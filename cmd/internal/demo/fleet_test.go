package demo

import (
	"math"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"steelyard/controlplane/config"
	"steelyard/e2e/rig/modelsim"
	"steelyard/e2e/rig/proc"
)

func someFleet(t *testing.T, n int) *fleet {
	t.Helper()
	f, err := startFleet(n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return f
}

func TestFleetIsMixed(t *testing.T) {
	f := someFleet(t, 6)
	type kind struct {
		engine modelsim.Engine
		speed  float64
	}
	want := []kind{{"vllm", 1}, {"triton", 1}, {"vllm", slowSpeed}, {"triton", 1}, {"vllm", 1}, {"triton", slowSpeed}}
	for i, e := range f.endpoints() {
		if got := (kind{e.engine, e.speed}); got != want[i] {
			t.Errorf("server %d is %v, want %v", i, got, want[i])
		}
		if e.slots != slots {
			t.Errorf("server %d has %d slots, want %d", i, e.slots, slots)
		}
	}
	if got, want := f.capacity(), 5*slots/meanService.Seconds(); math.Abs(got-want) > 1e-9 {
		t.Errorf("capacity %v requests per second, want that of five fast servers, %v", got, want)
	}
	if got, want := f.equalSplit(0.8*f.capacity()), 0.8*5/6/slowSpeed; math.Abs(got-want) > 1e-9 {
		t.Errorf("an equal split asks %v of the slowest server, want %v", got, want)
	}
}

func TestConfigurationOfTheDemoIsAccepted(t *testing.T) {
	f := someFleet(t, 4)
	c, err := config.Parse("demo.yaml", f.config("/tokens"))
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Clusters) != 1 || c.Clusters[0].Name != clusterName || c.Clusters[0].Capacity != slots {
		t.Fatalf("clusters %+v", c.Clusters)
	}
	var got []string
	for i, e := range c.Clusters[0].Endpoints.Static {
		got = append(got, e.Address)
		if wantTriton := i%2 == 1; (e.Engine == "triton") != wantTriton || (e.MetricsPort != 0) != wantTriton {
			t.Errorf("endpoint %d: engine %q, metrics port %d", i, e.Engine, e.MetricsPort)
		}
	}
	if !slices.Equal(got, f.servers.Addresses()) {
		t.Errorf("endpoints %v, want %v", got, f.servers.Addresses())
	}
}

// The phases differ in where the endpoints and their weights come from, and in
// nothing else.
func TestBootstrapHasTheClusterAsBootstrapMakesItAndWithoutWeights(t *testing.T) {
	text, err := bothPolicies("127.0.0.1:18000", []string{"127.0.0.1:1", "127.0.0.1:2"}, true)("demo-envoy-1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := proc.ValidateEnvoy(t.Context(), t.TempDir(), text); err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Static struct {
			Clusters []proc.Object
		} `yaml:"static_resources"`
	}
	if err := yaml.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	byName := make(map[any]proc.Object)
	for _, c := range doc.Static.Clusters {
		byName[c["name"]] = c
	}
	weighted, plain := byName[clusterName], byName[plainCluster]
	if weighted == nil || plain == nil {
		t.Fatalf("clusters are missing in\n%s", text)
	}
	if weighted["lb_policy"] != "LEAST_REQUEST" || plain["lb_policy"] != "ROUND_ROBIN" {
		t.Errorf("weighted is %v and plain %v, want bootstrap's own and Envoy's round robin", weighted["lb_policy"],
			plain["lb_policy"])
	}
	for key := range weighted {
		// What differs is where the endpoints come from, and what is compared.
		if slices.Contains([]string{"name", "type", "eds_cluster_config", "lb_policy", "least_request_lb_config"},
			key) {
			continue
		}
		a, b := mustYAML(t, weighted[key]), mustYAML(t, plain[key])
		if a != b {
			t.Errorf("%s differs:\n%s\n%s", key, a, b)
		}
	}
}

func mustYAML(t *testing.T, v any) string {
	t.Helper()
	text, err := yaml.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestBootstrapThatLostItsNamesIsAnError(t *testing.T) {
	text := []byte("static_resources: {listeners: [{name: other}]}")
	if _, err := withPlain(text, nil, false); err == nil || !strings.Contains(err.Error(), `"ingress"`) {
		t.Errorf("error %v, want one that names what is missing", err)
	}
}
