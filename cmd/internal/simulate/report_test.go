package simulate

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"steelyard/e2e/rig/golden"
	"steelyard/sim"
)

// someRun is a run with given results: what is shown of it hangs on no law.
func someRun() run {
	r := run{
		scenario: sim.Scenario{
			Name: "two-cards", Seed: 7, Duration: 10 * time.Minute, WarmUp: 30 * time.Second,
			Envoys: 10, EnvoyShares: []float64{2, 1, 1, 1, 1, 1, 1, 1, 1, 1}, Workers: 2,
			Pods: []sim.PodGroup{{Count: 2, Slots: 4}, {Count: 1, Slots: 4, Speed: 1.0 / 3}},
			Load: 0.8, Service: sim.Service{Kind: sim.LogNormal, Mean: 1500 * time.Millisecond, Sigma: 1},
			Events: []sim.Event{{At: 3 * time.Minute, Kind: sim.Leave, Pods: []int{1}, For: time.Minute},
				{At: 5 * time.Minute, Kind: sim.Leave, Pods: []int{1}}},
		},
		policies: []sim.Policy{
			{Name: "round_robin", Balancer: sim.RoundRobin},
			{Name: "least_request", Balancer: sim.LeastRequest},
			{Name: "steelyard@5ms", Steelyard: &sim.Steelyard{Source: sim.AccessLog}},
			{Name: "steelyard.yaml:llama", Steelyard: &sim.Steelyard{Source: sim.Redis}},
			{Name: "shortest_queue", Balancer: sim.ShortestQueue},
		},
		results: []sim.Result{
			{Requests: 3000, Wait: sim.Quantiles{P50: 1.3, P90: 6.25, P99: 13.2, Max: 30}, Hunting: 0.94},
			{Requests: 3000, Wait: sim.Quantiles{P50: 1.2, P90: 5.1, P99: 10.004, Max: 12}, Hunting: 0.95},
			{Requests: 2990, Dropped: 10, Pushes: 17_010, Wait: sim.Quantiles{P90: 0.71, P99: 2.804, Max: 5.5},
				Hunting: 0.82},
			{Dropped: 3000, Pushes: 0},
			{Requests: 3000, Wait: sim.Quantiles{P90: 0.02, P99: 2.63, Max: 4}, Hunting: 0.8},
		},
	}
	return r
}

func TestTable(t *testing.T) { golden.Check(t, "testdata/table.txt", someRun().table()) }

func TestTheBestIsMarkedAmongWhatOneCanSwitchOn(t *testing.T) {
	r := someRun()
	p99 := columns(r.scenario)[3]
	tests := []struct {
		name string
		p99  [5]float64
		want string
	}{
		{"one", [5]float64{9, 5, 3, 8, 1}, "  *  "},
		{"a tie as it is shown", [5]float64{9, 3.001, 3.004, 8, 1}, " **  "},
		{"all alike", [5]float64{3, 3, 3, 3, 1}, "     "},
	}
	for _, tt := range tests {
		for i := range r.results {
			r.results[i].Requests, r.results[i].Wait.P99 = 1, tt.p99[i]
		}
		if got := strings.Join(r.best(p99), ""); got != tt.want {
			t.Errorf("%s: marks %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestRatiosOfWaitsTooShortToNoticeAreOne(t *testing.T) {
	tests := []struct{ p99, other, want float64 }{
		{0, 0, 1}, {0.05, 0, 1}, {0.1, 0, 2}, {0, 0.1, 0.5}, {3, 10, 0.3},
	}
	for _, tt := range tests {
		if got := ratio(tt.p99, tt.other); math.Abs(got-tt.want) > 1e-12 {
			t.Errorf("ratio(%v, %v) is %v, want %v", tt.p99, tt.other, got, tt.want)
		}
	}
}

func TestRowsForMachines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rows.json")
	var out bytes.Buffer
	if err := writeJSON(path, &out, someRun().document()); err != nil || out.Len() > 0 {
		t.Fatalf("error %v, and on standard output %q", err, out.String())
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "testdata/rows.json", string(got))
	checkRows(t, got, len(someRun().policies))
	if err := writeJSON(t.TempDir(), &out, 1); err == nil || !strings.Contains(err.Error(), "writing the rows") {
		t.Errorf("writing to a folder: %v", err)
	}
}

// checkRows holds a document to its schema: exactly these keys, of these types.
func checkRows(t *testing.T, text []byte, rows int) {
	t.Helper()
	var got struct {
		Header map[string]any
		Rows   []map[string]any
	}
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"scenario", "seed", "duration_seconds", "warm_up_seconds", "service_seconds",
		"summary"} {
		if got.Header[key] == nil {
			t.Errorf("the header has no %s", key)
		}
	}
	if len(got.Rows) != rows {
		t.Errorf("%d rows, want %d", len(got.Rows), rows)
	}
	for _, row := range got.Rows {
		kinds := map[string]string{}
		for key, value := range row {
			switch value.(type) {
			case string:
				kinds[key] = "text"
			case float64, nil:
				kinds[key] = "number"
			}
		}
		want := map[string]string{"policy": "text", "requests": "number", "wait_p50": "number", "wait_p90": "number",
			"wait_p99": "number"}
		if diff := cmp.Diff(want, kinds); diff != "" {
			t.Errorf("a row (-want +got):\n%s", diff)
		}
		if placed := row["requests"] != 0.0; placed != (row["wait_p99"] != nil) {
			t.Errorf("%v requests and a p99 of %v", row["requests"], row["wait_p99"])
		}
	}
}
