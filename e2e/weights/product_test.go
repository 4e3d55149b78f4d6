package weights

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"steelyard/e2e/rig/load"
	"steelyard/e2e/rig/modelsim"
	"steelyard/e2e/rig/proc"
	"steelyard/e2e/rig/proc/proctest"
	"steelyard/e2e/rig/testbed"
	"steelyard/internal/api"
)

func TestFailsafeEnvoysFallBackWhenTheWeightsAreStaleAndReturn(t *testing.T) {
	t.Parallel()
	// Wide enough that what the fallback sends to the busy server is served too.
	pool := testbed.Pool(t, 3)
	f := start(t, testbed.Plan{Servers: pool, Cluster: "push: {heartbeat: 300ms, endpoint_stale_after: 1s}"})
	testbed.Flood(t, pool[0], 500)
	busy := pool[0].Address()
	f.AvoidsEverywhere(busy)

	traffic := f.Send(load.Plan{Rate: 50, Duration: 8 * time.Second, Work: load.Work{Mean: 5 * time.Millisecond},
		Seed: 3})
	if err := f.Control.Kill(); err != nil {
		t.Fatal(err)
	}
	f.Eventually("the weighted endpoints have expired", func() error {
		if hosts := f.Hosts(0); len(hosts) != 0 {
			return fmt.Errorf("%d hosts", len(hosts))
		}
		return nil
	})
	served := pool[1].Served()
	f.Eventually("the fallback serves", func() error {
		if got := pool[1].Served() - served; got < 20 {
			return fmt.Errorf("%d served", got)
		}
		return nil
	})
	f.Control = f.StartControl("steelyard-2")
	f.Everywhere("the weights are back",
		func(hosts map[string]proc.Host) bool { return len(hosts) == 3 && testbed.Avoided(hosts, busy) })
	if result := traffic.Wait(t); result.Errors != 0 {
		t.Errorf("%d errors: %v", result.Errors, result.Codes)
	}
}

func TestSheddingEnvoysRefuseAShareOfASaturatedPoolUntilTheControllerLeaves(t *testing.T) {
	pool := testbed.Servers(t, testbed.Same(2, modelsim.Options{Slots: 1})...)
	f := start(t, testbed.Plan{
		Servers: pool, Bootstrap: []string{"--mode", "shedding"},
		Cluster: "shedding: {enabled: true, target_wait: 10ms, max_drop: 0.5}",
	})
	for _, s := range pool {
		testbed.Flood(t, s, 6) // 5 wait for 1 slot
	}
	f.Eventually("the drop is in force", func() error {
		v, err := f.View()
		if err == nil && v.Decision.DropFraction.Or(0) != 0.5 {
			err = fmt.Errorf("drop fraction %v", v.Decision.DropFraction.Or(-1))
		}
		return err
	})
	dropped := 0 // of the requests that the test sends
	f.Eventually("Envoy drops with its own header", func() error {
		for range 20 {
			if refused(t, f.URLs[0]) {
				dropped++
			}
		}
		if dropped < 10 {
			return fmt.Errorf("%d dropped", dropped)
		}
		return nil
	})

	// The control plane stops: its drop fraction must not outlive it.
	if err := f.Control.Stop(); err != nil {
		t.Fatal(err)
	}
	for range 40 {
		if refused(t, f.URLs[0]) {
			t.Fatal("a request was refused after the control plane had left")
		}
	}
}

// refused sends one request with a short timeout, and reports whether Envoy itself refused it.
func refused(t *testing.T, url string) bool {
	t.Helper()
	client := http.Client{Timeout: 50 * time.Millisecond}
	resp, err := client.Get(url)
	if err != nil {
		return false // it waits in a queue
	}
	defer resp.Body.Close()
	return resp.StatusCode == http.StatusServiceUnavailable && resp.Header.Get("x-envoy-drop-overload") == "true"
}

func TestReloadAppliesWithoutAGapAndRefusesABadFile(t *testing.T) {
	t.Parallel()
	pool := testbed.Pool(t, 2)
	f := start(t, testbed.Plan{Servers: pool})
	traffic := f.Send(testbed.Steady(5 * time.Second))
	before, err := f.subscription("envoy-0")
	if err != nil {
		t.Fatal(err)
	}

	f.WriteConfig("capacity: 7")
	f.Eventually("the change of the file is applied", func() error { return f.slots(7) })
	f.WriteConfig("capcity: 9")
	f.Eventually("the bad file is reported", func() error {
		var s api.Status
		err := f.Get("/api/v1/status", &s)
		if err == nil && (s.LastReload.OK || !strings.Contains(s.LastReload.Error, `"capacity"`)) {
			err = fmt.Errorf("last reload %+v", s.LastReload)
		}
		return err
	})
	if err := f.slots(7); err != nil {
		t.Errorf("the running configuration did not stay: %v", err)
	}
	f.WriteConfig("capacity: 5")
	if err := f.Control.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	f.Eventually("the next good file is applied", func() error { return f.slots(5) })

	result := traffic.Wait(t)
	after, err := f.subscription("envoy-0")
	if err != nil {
		t.Fatal(err)
	}
	if result.Errors != 0 || after.Acks <= before.Acks {
		t.Errorf("%d errors, ACKs %d then %d; want none, and the same stream going on", result.Errors, before.Acks,
			after.Acks)
	}
	if n := f.EnvoyStat("cluster.steelyard_xds.upstream_cx_destroy"); n != 0 {
		t.Errorf("%v of the Envoy's connections to the control plane ended, want none", n)
	}
}

func (f *fleet) slots(want float64) error {
	v, err := f.View()
	if err != nil {
		return err
	}
	for _, e := range v.Endpoints {
		if e.Slots.Or(0) != want {
			return fmt.Errorf("%s has %v slots, want %v", e.Address, e.Slots.Or(0), want)
		}
	}
	return nil
}

// Two real Tritons, one with a queue, which Steelyard reads from its metrics port, and one that is idle.
func TestARealTritonWithAQueueLosesTraffic(t *testing.T) {
	t.Parallel()
	busy := proctest.Triton(t, proc.TritonConfig{Name: "triton-busy"})
	free := proctest.Triton(t, proc.TritonConfig{Name: "triton-free"})
	endpoints := "engine: triton\nendpoints:\n  static:\n"
	for _, s := range []*proc.Triton{busy, free} {
		endpoints += fmt.Sprintf("  - {address: %s, metrics_port: %s}\n", s.HTTP,
			s.Metrics[strings.LastIndex(s.Metrics, ":")+1:])
	}
	f := start(t, testbed.Plan{Cluster: endpoints})

	ends := make(chan int, 12)
	for range cap(ends) {
		go func() { ends <- infer("http://"+busy.HTTP, 1000) }()
	}
	f.Everywhere("the Triton with a queue is avoided",
		func(hosts map[string]proc.Host) bool { return testbed.Avoided(hosts, busy.HTTP) })
	e, err := f.Endpoint(busy.HTTP)
	if err != nil {
		t.Fatal(err)
	}
	if e.Input("queue").Value.Or(0) < 1 || e.Input("running").State != "unknown" {
		t.Errorf("queue %v, running %s; want a queue, and a gauge that Triton does not have",
			e.Input("queue").Value.Or(-1), e.Input("running").State)
	}
	for range 20 {
		if status := infer(strings.TrimSuffix(f.URLs[0], "/"), 1); status != http.StatusOK {
			t.Errorf("a request through Envoy got %d", status)
		}
	}
	for range cap(ends) {
		if status := <-ends; status != http.StatusOK {
			t.Errorf("a request to the busy Triton got %d", status)
		}
	}
	var report struct{ Queue, Running, Completions *float64 }
	out := testbed.Run(t, "inspect", "--engine", "triton", "--json", "http://"+busy.Metrics+"/metrics")
	if err := json.Unmarshal(out, &report); err != nil {
		t.Fatal(err)
	}
	if report.Queue == nil || report.Running != nil || report.Completions == nil || *report.Completions < 12 {
		t.Errorf("inspect says %s", out)
	}
	table := testbed.Run(t, "inspect", "--engine", "triton", "http://"+busy.Metrics+"/metrics")
	if !bytes.Contains(table, []byte("nv_inference_pending_request_count")) {
		t.Errorf("inspect's table does not name the series:\n%s", table)
	}
}

// infer asks the model sleeper for a rest of so many milliseconds; 0 for no answer.
func infer(base string, milliseconds int) (status int) {
	body := fmt.Sprintf(`{"inputs":[{"name":"DELAY_MS","shape":[1],"datatype":"INT32","data":[%d]}]}`, milliseconds)
	resp, err := http.Post(base+"/v2/models/sleeper/infer", "application/json", strings.NewReader(body))
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	return resp.StatusCode
}

func TestCheckRefusesWhatServeWouldRefuse(t *testing.T) {
	dir := t.TempDir()
	bad := dir + "/bad.yaml"
	if err := os.WriteFile(bad, []byte("clusters:\n- name: llama\n  engnie: vllm\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	binary, err := proc.BuildSteelyard()
	if err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"check", "serve"} {
		out, err := exec.CommandContext(t.Context(), binary, command, "--config", bad).CombinedOutput()
		if err == nil || !strings.Contains(string(out), "bad.yaml:3") || !strings.Contains(string(out), "engine") {
			t.Errorf("%s ends with %v and says\n%s\nwant exit status 1, the line, and what to write", command, err, out)
		}
	}
}
