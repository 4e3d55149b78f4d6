package simulate

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"steelyard/e2e/rig/golden"
	"steelyard/sim"
	"steelyard/sim/engine"
	"steelyard/sim/trace"
	"steelyard/weighting"
	"steelyard/weighting/push"
	"steelyard/xds/envoyspec"
)

// someConfig has a cluster for each way to name endpoints.
const someConfig = "testdata/steelyard.yaml"

func TestAFleetTakesThePlaceOfTheScenariosPods(t *testing.T) {
	f, err := newDeployment(someConfig, "llama")
	if err != nil {
		t.Fatal(err)
	}
	before := sim.Scenario{
		Envoys: 4, Load: 0.5, Service: sim.Service{Mean: time.Second}, Duration: time.Minute,
		Pods: []sim.PodGroup{{Count: 1, Slots: 2}, {Count: 1, Slots: 3, Speed: 0.5}},
		Events: []sim.Event{{At: time.Second, Kind: sim.Leave, Pods: []int{1}},
			{At: time.Second, Kind: sim.FlashCrowd, Factor: 2}},
	}
	after, err := f.place(before, 0)
	if err != nil {
		t.Fatal(err)
	}
	wantPods := []sim.PodGroup{
		{Count: 2, Slots: 4}, {Count: 1, Slots: 8, Speed: 0.5, Zone: "b"}, {Count: 1, Slots: 4, Speed: 0.5},
	}
	if diff := cmp.Diff(wantPods, after.Pods); diff != "" {
		t.Errorf("pods (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([][]int{{2, 3}, nil}, [][]int{after.Events[0].Pods, after.Events[1].Pods}); diff != "" {
		t.Errorf("pods of the events (-want +got):\n%s", diff)
	}
	if len(before.Events[0].Pods) != 1 || before.Pods[0].Slots != 2 {
		t.Error("the scenario before was changed")
	}
}

// The capacity of an engine is a relative speed, and may be a fraction.
func TestEnginesOfAFleetHaveItsCapacities(t *testing.T) {
	f, err := newDeployment(someConfig, "llama")
	if err != nil {
		t.Fatal(err)
	}
	for i := range f.cluster.Endpoints.Static {
		f.cluster.Endpoints.Static[i].Capacity = 0.5
	}
	p := engine.Defaults()
	s := sim.Scenario{Envoys: 1, Load: 0.5, Duration: time.Minute, Pods: []sim.PodGroup{{Count: 1, Engine: &p}},
		Prompts: &sim.Prompts{Trace: trace.Azure()}}
	after, err := f.place(s, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range after.Pods {
		if g.Capacity != 0.5 || g.Slots != 0 {
			t.Errorf("capacity %v and %d slots, want 0.5 and none", g.Capacity, g.Slots)
		}
	}
	if want := (note{"capacity", "0.5", filepath.Base(someConfig)}); !slices.Contains(f.notes, want) {
		t.Errorf("notes %v lack %v", f.notes, want)
	}
}

func TestAFleetsPolicyIsItsConfiguration(t *testing.T) {
	params := weighting.DefaultParams()
	params.Fresh, params.Hold, params.Decay, params.Floor = 2*time.Second, 4*time.Second, 8*time.Second, 0.02
	tests := []struct {
		config, cluster string
		want            sim.Steelyard
	}{
		{someConfig, "llama", sim.Steelyard{
			Source: sim.AccessLog, ScrapeInterval: 500 * time.Millisecond, ReportInterval: 2 * time.Second,
			Budget: push.Budget{MinInterval: 10 * time.Millisecond, BytesPerSecond: 1 << 20, ProxyCPU: 0.05,
				Cost: envoyspec.PushCost},
			Deadband: 0.03, Heartbeat: 2 * time.Second, FallbackAfter: 9 * time.Second, EnvoyPolicy: sim.LeastRequest,
			Capacity: true, Params: params,
		}},
		{someConfig, "listed", sim.Steelyard{
			Source: sim.AccessLog, ScrapeInterval: 500 * time.Millisecond, ReportInterval: 2 * time.Second,
			Budget: push.Budget{MinInterval: 5 * time.Millisecond, BytesPerSecond: 1 << 20, ProxyCPU: 0.02,
				Cost: envoyspec.PushCost},
			Deadband: 0.01, Heartbeat: time.Second, EnvoyPolicy: sim.LeastRequest, Params: params,
		}},
		{"testdata/log_alone.yaml", "", sim.Steelyard{
			Source: sim.AccessLog, Uncorrected: true, ScrapeInterval: time.Second,
			Budget: push.Budget{MinInterval: 5 * time.Millisecond, BytesPerSecond: 10 << 20, ProxyCPU: 0.02,
				Cost: envoyspec.PushCost},
			Deadband: 0.01, Heartbeat: time.Second, EnvoyPolicy: sim.LeastRequest, Params: params,
		}},
		{"testdata/redis.yaml", "", sim.Steelyard{
			Source: sim.Redis, ReportInterval: 20 * time.Millisecond,
			Budget: push.Budget{MinInterval: 5 * time.Millisecond, BytesPerSecond: 10 << 20, ProxyCPU: 0.02,
				Cost: envoyspec.PushCost},
			Deadband: 0.01, Heartbeat: time.Second, EnvoyPolicy: sim.LeastRequest, Params: params,
		}},
		{"testdata/scrapes.yaml", "", sim.Steelyard{
			Source: sim.Scrape, ScrapeInterval: time.Second,
			Budget: push.Budget{MinInterval: 5 * time.Millisecond, BytesPerSecond: 10 << 20, ProxyCPU: 0.02,
				Cost: envoyspec.PushCost},
			Deadband: 0.01, Heartbeat: time.Second, EnvoyPolicy: sim.LeastRequest, Params: params,
		}},
	}
	for _, tt := range tests {
		f, err := newDeployment(tt.config, tt.cluster)
		if err != nil {
			t.Fatal(err)
		}
		got := f.policy(sim.Scenario{Envoys: 10}, sim.LeastRequest)
		if diff := cmp.Diff(&tt.want, got.Steelyard); diff != "" || got.Name != f.name() {
			t.Errorf("%s %s: named %s (-want +got):\n%s", tt.config, tt.cluster, got.Name, diff)
		}
	}
}

func TestTheStandardRowsPushAsConfiguredByDefault(t *testing.T) {
	path := filepath.Join(t.TempDir(), "steelyard.yaml")
	text := "clusters: [{name: llama, engine: vllm, endpoints: {static: [{address: 10.0.0.1:80}]}}]"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := newDeployment(path, "")
	if err != nil {
		t.Fatal(err)
	}
	pushes := func(y *sim.Steelyard) sim.Steelyard {
		return sim.Steelyard{
			Budget: y.Budget, MinInterval: y.MinInterval, Deadband: y.Deadband, Heartbeat: y.Heartbeat,
			FallbackAfter: y.FallbackAfter,
		}
	}
	want := pushes(f.policy(sim.Scenario{Envoys: 10}, sim.LeastRequest).Steelyard)
	for _, p := range sim.Policies() {
		if p.Steelyard == nil {
			continue
		}
		if diff := cmp.Diff(want, pushes(p.Steelyard)); diff != "" {
			t.Errorf("%s (-configured by default +got):\n%s", p.Name, diff)
		}
	}
}

func TestADryRunListsWhatComesFromWhere(t *testing.T) {
	text := simulated(t, Options{Scenario: shortScenario, Config: someConfig, Cluster: "llama"})
	explanation, table, _ := strings.Cut(text, "\nshort: ")
	golden.Check(t, "testdata/fleet.txt", explanation)
	var rows []string
	for line := range strings.Lines(table) {
		if fields := strings.Fields(line); len(fields) == 9 {
			rows = append(rows, fields[0])
		}
	}
	if want := []string{"policy", "round_robin", "least_request", "steelyard.yaml:llama",
		"shortest_queue"}; !cmp.Equal(rows, want) {
		t.Errorf("rows of %v, want %v:\n%s", rows, want, table)
	}
	f, err := newDeployment(someConfig, "resolved")
	if err != nil {
		t.Fatal(err)
	}
	s, err := f.place(sim.Scenario{Envoys: 2, Rate: 5, Pods: []sim.PodGroup{{Count: 2, Slots: 3}},
		Service: sim.Service{Mean: time.Second}, Duration: time.Minute}, 7)
	if err != nil {
		t.Fatal(err)
	}
	f.policy(s, sim.RoundRobin)
	golden.Check(t, "testdata/resolved.txt", f.explanation())
}

func TestADryRunReportsThatABudgetDelaysTheFallback(t *testing.T) {
	for endpoints, want := range map[int]string{
		4:    "9s after the last push (mode failsafe) steelyard.yaml budgets",
		9000: "13s after the last push (mode failsafe) steelyard.yaml, stretched to the budgets budgets",
	} {
		f, err := newDeployment(someConfig, "llama")
		if err != nil {
			t.Fatal(err)
		}
		f.policy(sim.Scenario{Envoys: 16, Pods: []sim.PodGroup{{Count: endpoints}}}, sim.LeastRequest)
		if text := strings.Join(strings.Fields(f.explanation()), " "); !strings.Contains(text, want) {
			t.Errorf("%d endpoints: want %q in %s", endpoints, want, text)
		}
	}
}

func TestADryRunListsDelaysAndLossesOfSignals(t *testing.T) {
	tests := []struct {
		signals sim.Signals
		source  sim.Source
		want    []note
	}{
		{sim.Signals{}, sim.AccessLog, []note{{"delays", "of signals and pushes: as in one data center",
			fromNowhere}}},
		{sim.Signals{Delay: new(5 * time.Millisecond)}, sim.AccessLog, []note{
			{"delays", "5ms of signals", fromScenario}, {"other delays", "as in one data center", fromNowhere},
		}},
		{sim.Signals{ScrapeDelay: new(time.Second), Delay: new(5 * time.Millisecond), PushDelay: new(time.Duration(0))},
			sim.AccessLog, []note{
				{"delays", "1s of scrapes, 5ms of signals, 0s of pushes", fromScenario},
			}},
		{sim.Signals{Loss: new(0.001)}, sim.AccessLog, []note{
			{"delays", "of signals and pushes: as in one data center", fromNowhere},
			{"loss", "0.001 of the entries of the access log", fromScenario},
		}},
		{sim.Signals{Loss: new(0.001), PushDelay: new(time.Second)}, sim.Redis, []note{
			{"delays", "1s of pushes", fromScenario}, {"other delays", "as in one data center", fromNowhere},
			{"loss", "0.001 of the changes of the counts in Redis", fromScenario},
		}},
		{sim.Signals{Loss: new(0.5)}, sim.LoadReports, []note{
			{"delays", "of signals and pushes: as in one data center", fromNowhere},
			{"loss", "0.5 of the counts of an access log or Redis, which are not used here", fromScenario},
		}},
	}
	for _, tt := range tests {
		f := new(deployment)
		f.noteSignals(tt.signals, tt.source)
		if !cmp.Equal(f.notes, tt.want, cmp.AllowUnexported(note{})) {
			t.Errorf("%s by %s: got %v, want %v", section(signals(tt.signals), false), tt.source, f.notes, tt.want)
		}
	}
}

func TestEndpointsOfAFileAreCounted(t *testing.T) {
	text := simulated(t, Options{Scenario: shortScenario, Config: someConfig, Cluster: "listed", Print: true})
	for _, want := range []string{`{count: 2, slots: 2, speed: 1, slow_down: 0, zone: "a"}`,
		`{count: 1, slots: 6, speed: 1, slow_down: 0, zone: "b"}`} {
		if !strings.Contains(text, want) {
			t.Errorf("%s is not in\n%s", want, text)
		}
	}
}

// TestAFleetIsBoundedAsAFileIs, by the requests that its endpoints would get.
func TestAFleetIsBoundedAsAFileIs(t *testing.T) {
	scenario := filepath.Join(t.TempDir(), "join.yaml")
	text := "{pods: [{count: 20}], duration: 1m, events: [{at: 5s, kind: join, pods: [0]}]}"
	if err := os.WriteFile(scenario, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ scenario, address, want string }{
		{"photoroom", "10.0.0.1:80, capacity: 100000", "288 million requests would arrive in 1h: write a shorter " +
			"--duration"},
		{scenario, "10.0.0.1:80", "no endpoint is there at the start"},
	} {
		path := filepath.Join(t.TempDir(), "steelyard.yaml")
		config := "clusters: [{name: llama, engine: vllm, endpoints: {static: [{address: " + tt.address + "}]}}]"
		if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		err := Run(t.Context(), Options{Scenario: tt.scenario, Config: path, Policies: []string{"random"}, Out: &out,
			Err: &out})
		if !errors.As(err, &Usage{}) || !strings.Contains(err.Error(), tt.want) || out.Len() > 0 {
			t.Errorf("%s at %s: error %v, want usage and %q; printed %q", tt.scenario, tt.address, err, tt.want,
				out.String())
		}
	}
}

func TestFleetsThatCannotBeHad(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "steelyard.yaml")
	config := "clusters: [{name: gone, engine: vllm, endpoints: {file: gone.yaml}}]"
	if err := os.WriteFile(empty, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name  string
		o     Options
		usage bool
		want  string
	}{
		{"no file", Options{Config: "none.yaml"}, false, "none.yaml"},
		{"a bad file", Options{Config: shortScenario}, false, "short.yaml:"},
		{"which cluster", Options{Config: someConfig}, true, "has 3 clusters: write --cluster with one of llama, " +
			"listed, resolved"},
		{"no such cluster", Options{Config: someConfig, Cluster: "lama"}, true,
			"--cluster lama: testdata/steelyard.yaml has no such cluster: write one of llama, listed, resolved"},
		{"DNS", Options{Config: someConfig, Cluster: "resolved"}, true,
			"finds its endpoints by DNS, which is not queried here: write --pods"},
		{"pods that are known", Options{Config: someConfig, Cluster: "llama", Pods: 3}, true,
			"lists the endpoints of cluster llama: remove the flag"},
		{"no list", Options{Config: empty}, false, "endpoints of cluster gone: "},
	}
	for _, tt := range tests {
		var out bytes.Buffer
		tt.o.Scenario, tt.o.EnvoyPolicy, tt.o.Out, tt.o.Err = shortScenario, "round_robin", &out, &out
		err := Run(t.Context(), tt.o)
		if err == nil || errors.As(err, &Usage{}) != tt.usage || !strings.Contains(err.Error(), tt.want) ||
			out.Len() > 0 {
			t.Errorf("%s: error %v (%T), want %q, usage %v; printed %q", tt.name, err, err, tt.want, tt.usage,
				out.String())
		}
	}
}

func TestPodsAreStretchedOverEndpoints(t *testing.T) {
	tests := []struct {
		pods []int
		m, n int
		want []int
	}{
		{[]int{0}, 1, 3, []int{0, 1, 2}},
		{[]int{1}, 2, 5, []int{2, 3, 4}},
		{[]int{0, 1, 2, 3}, 4, 2, []int{0, 1}},
		{[]int{19}, 20, 3, []int{2}},
		{nil, 4, 8, nil},
	}
	for _, tt := range tests {
		if got := stretched(tt.pods, tt.m, tt.n); !cmp.Equal(got, tt.want) {
			t.Errorf("pods %v of %d stand for %v of %d, want %v", tt.pods, tt.m, got, tt.n, tt.want)
		}
	}
}

// TestAFleetShedsOrFallsBack: no Envoy does both.
func TestAFleetShedsOrFallsBack(t *testing.T) {
	for enabled, want := range map[bool]time.Duration{true: 0, false: 9 * time.Second} {
		f, err := newDeployment(someConfig, "llama")
		if err != nil {
			t.Fatal(err)
		}
		f.cluster.Shedding.Enabled = enabled
		got := f.policy(sim.Scenario{Envoys: 10}, sim.LeastRequest).Steelyard
		modes := strings.Count(f.explanation(), "(mode ")
		if got.FallbackAfter != want || got.Params.Shedding.Enabled != enabled || modes != 1 {
			t.Errorf("shedding %v: fallback after %v, want %v; %d modes in\n%s", enabled, got.FallbackAfter, want,
				modes, f.explanation())
		}
	}
}
