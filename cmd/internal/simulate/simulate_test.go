package simulate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"steelyard/e2e/rig/golden"
	"steelyard/sim"
)

// shortScenario takes a moment.
const shortScenario = "testdata/short.yaml"

// simulated runs the options and returns what is printed.
func simulated(t *testing.T, o Options) string {
	t.Helper()
	var out, progress bytes.Buffer
	o.Out, o.Err = &out, &progress
	if o.EnvoyPolicy == "" && o.Config != "" && !o.Print {
		o.EnvoyPolicy = string(sim.RoundRobin)
	}
	if err := Run(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if progress.Len() > 0 {
		t.Errorf("progress on what is no terminal: %q", progress.String())
	}
	return out.String()
}

func TestList(t *testing.T) {
	golden.Check(t, "testdata/simulated/list.txt", simulated(t, Options{List: true}))
}

func TestAScenario(t *testing.T) {
	o := Options{Scenario: shortScenario, Policies: []string{"least_request", "free_slots@1s", "shortest_queue"}}
	golden.Check(t, "testdata/simulated/short.txt", simulated(t, o))
}

func TestSteelyardIsAmongTheRows(t *testing.T) {
	o := Options{Scenario: shortScenario, Policies: []string{"least_request", "steelyard@20ms"}}
	text := simulated(t, o)
	if want := "\nsteelyard@20ms"; !strings.Contains(text, want) {
		t.Errorf("%q is not in\n%s", want, text)
	}
}

func TestAnIntervalIsTheSamePolicyHoweverItIsWritten(t *testing.T) {
	chosen, err := choose(sim.Policies(), []string{
		"steelyard@1000ms", "steelyard@1s", "steelyard@0.25s", "steelyard@20ms", "steelyard@0.02s", "steelyard@60s",
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"steelyard@1s", "steelyard@250ms", "steelyard@20ms", "steelyard@1m"}
	if got := policyNames(chosen); !slices.Equal(got, want) {
		t.Fatalf("chose %v, want %v", got, want)
	}
	for i, source := range []sim.Source{sim.Scrape, sim.Scrape, sim.AccessLog, sim.AccessLog} {
		if got := chosen[i].Steelyard.Source; got != source {
			t.Errorf("%s goes by %s, want %s", want[i], got, source)
		}
	}
}

func TestTheSameSeedGivesTheSameResult(t *testing.T) {
	o := Options{Scenario: shortScenario, JSONFile: "-"}
	first := simulated(t, o)
	checkRows(t, []byte(first), len(sim.Policies()))
	if again := simulated(t, o); again != first {
		t.Errorf("twice the same seed:\n%s\n%s", first, again)
	}
	o.Seed, o.Seeded = 2, true
	if other := simulated(t, o); strings.ReplaceAll(other, `"seed": 2`, `"seed": 1`) == first {
		t.Error("another seed gives the same")
	}
}

func TestAllPoliciesGetTheSameRequests(t *testing.T) {
	var got document
	if err := json.Unmarshal([]byte(simulated(t, Options{Scenario: shortScenario, JSONFile: "-"})), &got); err != nil {
		t.Fatal(err)
	}
	for _, row := range got.Rows {
		if row.Requests == 0 || row.Requests != got.Rows[0].Requests {
			t.Errorf("%s placed %d requests, %s %d", row.Policy, row.Requests, got.Rows[0].Policy, got.Rows[0].Requests)
		}
	}
	for i, p := range sim.Policies() {
		if got.Rows[i].Policy != p.Name {
			t.Errorf("row %d is of %s, want %s", i, got.Rows[i].Policy, p.Name)
		}
	}
}

// TestSignalsAreThoseOfEveryRowWithSteelyard, of a configuration's too, and of no other.
func TestSignalsAreThoseOfEveryRowWithSteelyard(t *testing.T) {
	before, err := os.ReadFile(shortScenario)
	if err != nil {
		t.Fatal(err)
	}
	late := filepath.Join(t.TempDir(), "short.yaml")
	if err := os.WriteFile(late, append(before, "signals: {scrape_delay: 1s, delay: 1s, push_delay: 1s}\n"...),
		0o600); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, p := range sim.Policies() {
		names = append(names, p.Name)
	}
	for _, o := range []Options{{}, {Config: someConfig, Cluster: "llama", Policies: names}} {
		rows := func(scenario string) []row {
			o.Scenario, o.JSONFile = scenario, "-"
			var d document
			if err := json.Unmarshal([]byte(simulated(t, o)), &d); err != nil {
				t.Fatal(err)
			}
			return d.Rows
		}
		usual, delayed := rows(shortScenario), rows(late)
		for i, r := range delayed {
			if steered := strings.HasPrefix(r.Policy, "steelyard"); (*r.P99 != *usual[i].P99) != steered {
				t.Errorf("%s: p99 of the wait is %.2f with late signals, %.2f without", r.Policy, *r.P99, *usual[i].P99)
			}
		}
	}
}

// TestAPrintedScenarioIsTheSameAgain, whatever seed it was given.
func TestAPrintedScenarioIsTheSameAgain(t *testing.T) {
	text := simulated(t, Options{Scenario: shortScenario, Print: true, Seed: largestSeed, Seeded: true})
	path := filepath.Join(t.TempDir(), "again.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if again := simulated(t, Options{Scenario: path, Print: true}); again != text {
		t.Errorf("printed once\n%s\nand again\n%s", text, again)
	}
}

func TestDurationIsChangedWithItsWarmUp(t *testing.T) {
	o := Options{Scenario: "photoroom", Duration: 10 * time.Second}
	s, err := o.scenario(t.Context())
	if err != nil || s.Duration != 10*time.Second || s.WarmUp != 2*time.Second {
		t.Errorf("%s with %s of warm-up, error %v; want 10s with 2s", s.Duration, s.WarmUp, err)
	}
}

func TestMistakesInTheCommandLineAreUsage(t *testing.T) {
	tests := []struct {
		name string
		o    Options
		want string // in the message
	}{
		{"no scenario", Options{}, "--scenario is missing: write one of photoroom"},
		{"an unknown one", Options{Scenario: "foto"}, "there is no such scenario: write one of photoroom"},
		{"an unknown policy", Options{Scenario: "photoroom", Policies: []string{"best"}},
			"--policy best: there is no such policy: write one of random"},
		{"an interval that is none", Options{Scenario: "photoroom", Policies: []string{"steelyard@soon"}},
			"or steelyard@ with another interval"},
		{"too short", Options{Scenario: "photoroom", Duration: time.Millisecond}, "write at least 1s"},
		{"too long", Options{Scenario: "photoroom", Duration: 25 * time.Hour},
			"--duration 25h is too long: write at most 24h"},
		{"ends before its event", Options{Scenario: "leave", Duration: time.Minute}, "ends before leave happens"},
		{"rows of a scenario that is printed", Options{Scenario: "photoroom", Print: true, JSONFile: "rows.json"},
			"--print shows the scenario, which has no trace, and exits: remove it, or --json"},
		{"policies of a scenario that is printed",
			Options{Scenario: "photoroom", Print: true, Policies: []string{"random"}}, "remove it, or --policy"},
		{"a duration in a list", Options{List: true, Duration: -5 * time.Second}, "remove it, or --duration"},
		{"a scenario in a list", Options{List: true, Scenario: "nope"}, "remove it, or --scenario"},
		{"a seed that no file can have", Options{Scenario: shortScenario, Seeded: true, Seed: 1 << 63},
			"seed 9223372036854775808 is too large: write --seed with 0 to 9223372036854775807"},
		{"a load that is none", Options{Scenario: "photoroom", Load: -1}, "--load -1: write 0.01 to 10"},
		{"a load in a list", Options{List: true, Load: 1}, "remove it, or --load"},
		{"a trace in a list", Options{List: true, Trace: "x.csv"}, "remove it, or --trace"},
		{"a trace in a file", Options{Scenario: "llm", Print: true, Trace: "x.csv"},
			"--print shows the scenario, which has no trace, and exits: remove it, or --trace"},
		{"a trace for slots", Options{Scenario: "photoroom", Trace: someTrace},
			"--trace and --spread need engines, and the pods of photoroom have slots: write --scenario llm"},
		{"spreading without engines", Options{Scenario: "photoroom", Spread: true},
			"--trace and --spread need engines"},
		{"spreading what is not rounded", Options{Scenario: "llm", Spread: true},
			"the times of azure-llm-2023-conv are not rounded to seconds: remove it"},
		{"slots of engines", Options{Scenario: "llm", Policies: []string{"shortest_queue"}},
			"there is no such policy: write one of round_robin, least_request"},
		{"prompts of slots", Options{Scenario: "photoroom", Policies: []string{"least_work"}},
			"there is no such policy: write one of random"},
		{"cluster alone", Options{Scenario: "photoroom", Cluster: "llama"}, "--cluster needs --config"},
		{"pods alone", Options{Scenario: "photoroom", Pods: 3}, "--pods needs --config"},
		{"too many pods", Options{Scenario: "photoroom", Pods: 1e6, Config: "x.yaml"}, "write 1 to 10000"},
		{"a policy that Envoy has not", Options{Scenario: "photoroom", EnvoyPolicy: "maglev", Config: "x.yaml"},
			"write one of round_robin"},
		{"a policy of no configuration", Options{Scenario: "photoroom", EnvoyPolicy: "round_robin"},
			"--envoy-policy needs --config"},
		{"rows into no directory", Options{Scenario: "photoroom", JSONFile: "testdata/none/rows.json"},
			"there is no such directory"},
		{"rows into a directory", Options{Scenario: "photoroom", JSONFile: "testdata"}, "write the name of a file"},
	}
	for _, tt := range tests {
		var out bytes.Buffer
		tt.o.Out, tt.o.Err = &out, &out
		err := Run(t.Context(), tt.o)
		if !errors.As(err, &Usage{}) || !strings.Contains(err.Error(), tt.want) || out.Len() > 0 {
			t.Errorf("%s: error %v (%T), want usage and %q; printed %q", tt.name, err, err, tt.want, out.String())
		}
	}
}

func TestAnInterruptEndsASimulation(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out bytes.Buffer
	err := Run(ctx, Options{Scenario: "photoroom", Out: &out, Err: &out})
	if !errors.Is(err, context.Canceled) || errors.As(err, &Usage{}) || out.Len() > 0 {
		t.Errorf("error %v, printed %q", err, out.String())
	}
}

func TestProgressOnATerminal(t *testing.T) {
	var out bytes.Buffer
	p := &progress{out: &out, all: 2}
	p.show()
	p.done()
	p.clear()
	const want = "\r\x1b[Ksimulating: 0 of 2 runs\r\x1b[Ksimulating: 1 of 2 runs\r\x1b[K"
	if got := out.String(); got != want {
		t.Errorf("wrote %q, want %q", got, want)
	}
}
