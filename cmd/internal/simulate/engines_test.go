package simulate

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"steelyard/e2e/rig/golden"
	"steelyard/sim"
	"steelyard/sim/trace"
)

// someTrace has requests whose times are rounded to seconds, and two that failed.
const someTrace = "testdata/burst.csv"

// blind are policies that hang on no law.
var blind = []string{"least_request", "fewest_in_flight", "least_work"}

func TestATrace(t *testing.T) {
	o := Options{Trace: someTrace, Policies: blind, Duration: time.Minute, Load: 0.9}
	golden.Check(t, "testdata/simulated/burst.txt", simulated(t, o))
}

// TestBunchesThatRoundingMadeCanBeSpread: the output names them, and without
// them the first token comes sooner.
func TestBunchesThatRoundingMadeCanBeSpread(t *testing.T) {
	o := Options{Trace: someTrace, Policies: []string{"least_work"}, Duration: 2 * time.Minute, Load: 0.05}
	mean := func(says string) float64 {
		o.JSONFile = ""
		if text := simulated(t, o); !strings.Contains(text, says) {
			t.Errorf("%q is not in\n%s", says, text)
		}
		o.JSONFile = "-"
		d := rowsOf(t, o)
		if d.Header.Spread != o.Spread || d.Header.RoundedSeconds != 3 {
			t.Errorf("header %+v", d.Header)
		}
		return *d.Rows[0].FirstMean
	}
	bunched := mean("the times of the trace are rounded to 3s, so requests may arrive in bunches")
	o.Spread = true
	if spread := mean("are rounded to 3s: requests are spread over that"); spread > 0.9*bunched {
		t.Errorf("mean time to first token is %.3f s spread, %.3f s in bunches", spread, bunched)
	}
}

func rowsOf(t *testing.T, o Options) (d document) {
	t.Helper()
	if err := json.Unmarshal([]byte(simulated(t, o)), &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// TestRowsOfEnginesForMachines holds the document to its keys, of the built-in trace
// and of a file.
func TestRowsOfEnginesForMachines(t *testing.T) {
	for _, o := range []Options{
		{Scenario: "llm"}, {Trace: someTrace, Policies: blind},
		{Scenario: "llm-mixed-speed", Trace: someTrace, Policies: blind},
	} {
		o.JSONFile, o.Duration = "-", 5*time.Second
		var got struct {
			Header map[string]any
			Rows   []map[string]any
		}
		if err := json.Unmarshal([]byte(simulated(t, o)), &got); err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"scenario", "summary", "seed", "duration_seconds", "trace",
			"requests_per_second"} {
			if got.Header[key] == nil {
				t.Errorf("%+v: the header has no %s", o, key)
			}
		}
		if source := got.Header["source"]; (source == trace.AzureSource) != (o.Trace == "") {
			t.Errorf("%+v: the source is %v", o, source)
		}
		if got.Header["service_seconds"] != nil {
			t.Errorf("%+v: a service time in the header", o)
		}
		if rows := len(o.Policies); len(got.Rows) != rows && (rows > 0 || len(got.Rows) != len(sim.EnginePolicies())) {
			t.Errorf("%+v: %d rows", o, len(got.Rows))
		}
		for _, row := range got.Rows {
			checkTimes(t, row)
		}
	}
}

// checkTimes holds a row of engines to its keys, and to what must be so.
func checkTimes(t *testing.T, row map[string]any) {
	t.Helper()
	for _, key := range []string{"ttft_p50", "ttft_p90", "ttft_p99", "ttft_mean", "tpot_p99", "e2e_p50", "e2e_p99"} {
		if v, ok := row[key].(float64); !ok || v <= 0 {
			t.Errorf("%s: %s is %v", row["policy"], key, row[key])
			return
		}
	}
	if len(row) != 9 {
		t.Errorf("other keys in %v", row)
	}
	least := 0.0
	for _, key := range []string{"ttft_p50", "ttft_p90", "ttft_p99"} {
		if v := row[key].(float64); v < least {
			t.Errorf("%s: %s is %v, less than %v", row["policy"], key, v, least)
		}
		least = row[key].(float64)
	}
}

// TestLoadReplacesThatOfTheScenario, on slots and on engines.
func TestLoadReplacesThatOfTheScenario(t *testing.T) {
	for _, name := range []string{"photoroom", "llm"} {
		usual, err := (&Options{Scenario: name}).scenario(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		half, err := (&Options{Scenario: name, Load: 0.4}).scenario(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := half.ArrivalRate() / usual.ArrivalRate(); got < 0.499 || got > 0.501 {
			t.Errorf("%s: %.3f of the requests at load 0.4, want half of those at 0.8", name, got)
		}
	}
}

// TestAFleetOfEngines: a configuration takes the place of the engines as it does of
// pods with slots.
func TestAFleetOfEngines(t *testing.T) {
	text := simulated(t, Options{
		Scenario: "llm-mixed-speed", Trace: someTrace, Duration: 20 * time.Second, Config: someConfig, Cluster: "llama",
	})
	for _, want := range []string{
		"requests  ", "prompts of " + someTrace, "steelyard.yaml:llama", "fewest_in_flight", "least_work",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	if strings.Contains(text, "shortest_queue") || strings.Contains(text, "service time") {
		t.Errorf("of slots:\n%s", text)
	}
}

func TestTracesThatCannotBePlayed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bad.csv")
	if err := os.WriteFile(path, []byte("TIMESTAMP,ContextTokens,GeneratedTokens\nnoon,1,1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	huge := filepath.Join(t.TempDir(), "huge.csv")
	if err := os.WriteFile(huge, []byte("Timestamp,Request tokens,Response tokens\n1,500000,1\n2,1,1\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ path, says string }{
		{path, path + `:2: TIMESTAMP: "noon": want a date and a time`},
		{huge, "does not fit into the KV cache: it has to be of 500001 tokens at least"},
		{filepath.Join(t.TempDir(), "none.csv"), "reading the trace: "},
	} {
		_, err := (&Options{Trace: c.path}).scenario(t.Context())
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("error %v, want it to say %q", err, c.says)
		}
		if strings.HasSuffix(c.path, "none.csv") && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("error %v has lost its cause", err)
		}
	}
}

func TestBoundsAreNotTheBest(t *testing.T) {
	for _, p := range sim.EnginePolicies() {
		chooses := slices.Contains([]sim.Balancer{sim.FewestInFlight, sim.LeastWork, sim.LeastWorkGuessed}, p.Balancer)
		if isBound(p) != chooses {
			t.Errorf("%s is a bound: %t", p.Name, isBound(p))
		}
	}
}
