package signals

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"steelyard/e2e/rig/load"
	"steelyard/e2e/rig/modelsim"
	"steelyard/e2e/rig/proc"
	"steelyard/e2e/rig/proc/proctest"
	"steelyard/e2e/rig/testbed"
	"steelyard/internal/api"
	"steelyard/sim/engine"
)

// ownCluster is a cluster that an Envoy has without Steelyard, with the routes to it.
func ownCluster(servers []*modelsim.Server) string {
	var endpoints strings.Builder
	for _, s := range servers {
		host, port, _ := strings.Cut(s.Address(), ":")
		fmt.Fprintf(&endpoints, "        - endpoint: {address: {socket_address: {address: %s, port_value: %s}}}\n",
			host, port)
	}
	return `
  - name: own
    type: STATIC
    lb_policy: LEAST_REQUEST
    load_assignment:
      cluster_name: own
      endpoints:
      - lb_endpoints:
` + endpoints.String() + proctest.Listener + `          route_config:
            virtual_hosts:
            - {name: all, domains: ["*"], routes: [{match: {prefix: /}, route: {cluster: own, timeout: 0s}}]}
          http_filters:
` + proctest.RouterFilter
}

// startShadows starts Envoys that have a cluster of their own, and only report to Steelyard.
func startShadows(t *testing.T, f *testbed.Fleet, count int) {
	t.Helper()
	text := string(testbed.Run(t, "bootstrap", "--attach", "--shadow", "--cluster", testbed.Cluster, "--xds", f.XDS))
	var router strings.Builder
	for line := range strings.Lines(text) {
		if yaml, found := strings.CutPrefix(line, "#     "); found {
			router.WriteString(strings.Repeat(" ", 14) + yaml)
		}
	}
	for range count {
		name := fmt.Sprintf("envoy-%d", len(f.Envoys))
		bootstrap := strings.Replace(proctest.Existing, "id: mine", "id: "+name, 1) + text +
			ownCluster(f.Plan.Servers) + router.String()
		e := proctest.Envoy(t, proc.EnvoyConfig{Bootstrap: []byte(bootstrap), Dir: f.Dir, Name: name})
		listener, err := e.Listener(t.Context(), "ingress")
		if err != nil {
			t.Fatal(err)
		}
		f.Envoys, f.URLs = append(f.Envoys, e), append(f.URLs, "http://"+listener+"/")
	}
}

// onlyReports returns why not all Envoys are counted as such.
func onlyReports(f *testbed.Fleet, envoys int) error {
	clients, err := f.Clients()
	if err != nil {
		return err
	}
	for i := range clients {
		if clients[i].State != api.EnvoyShadow {
			return fmt.Errorf("%s is %q", clients[i].NodeID, clients[i].State)
		}
	}
	v, err := f.View()
	if v.ShadowEnvoys != envoys {
		return fmt.Errorf("%d of %d Envoys only report", v.ShadowEnvoys, envoys)
	}
	return err
}

// A shadowed is the answer of steelyard shadow.
type shadowed struct {
	NotSimulated string `json:"not_simulated"`
	Fitted       bool
	Measured     struct{ P50, P99 float64 }
	Own          struct{ P50, P99 float64 } `json:"simulated_own"`
	Steelyard    struct{ P50, P99 float64 } `json:"simulated_steelyard"`
	Endpoints    []struct {
		Address          string
		Share            float64
		ShareWeighted    float64 `json:"share_weighted"`
		InFlight         float64 `json:"in_flight"`
		InFlightWeighted float64 `json:"in_flight_weighted"`
	}
}

// mustBring checks what weights would have brought, for so many requests: less waiting, and less for the slow server.
func mustBring(t *testing.T, f *testbed.Fleet, requests uint64, slow string) (got shadowed) {
	t.Helper()
	f.Eventually("all requests are recorded", func() error {
		var v api.Shadow
		if err := f.Get("/api/v1/clusters/"+testbed.Cluster+"/shadow", &v); err != nil || v.Requests != requests {
			return fmt.Errorf("%d requests: %w", v.Requests, err)
		}
		return nil
	})
	t.Logf("%s", testbed.Run(t, "shadow", testbed.Cluster, "--admin", "http://"+f.Admin))
	answer := testbed.Run(t, "shadow", testbed.Cluster, "--admin", "http://"+f.Admin, "-o", "json")
	if err := json.Unmarshal(answer, &got); err != nil {
		t.Fatal(err)
	}
	if got.NotSimulated != "" || got.Measured.P99 < got.Own.P99/3 || got.Measured.P99 > got.Own.P99*3 {
		t.Errorf("the p99 is %.3f s, and %.3f s in the simulation: %s", got.Measured.P99, got.Own.P99,
			got.NotSimulated)
	}
	if got.Steelyard.P99 >= got.Own.P99 {
		t.Errorf("weights do not bring down the p99: %.3f s, from %.3f s", got.Steelyard.P99, got.Own.P99)
	}
	seen := 0
	for _, e := range got.Endpoints {
		if e.Address != slow {
			continue
		}
		seen++
		if e.Share <= e.ShareWeighted || e.InFlight <= e.InFlightWeighted {
			t.Errorf("the slow server has %.3f of the requests and %.2f at once, and would have %.3f and %.2f", e.Share,
				e.InFlight, e.ShareWeighted, e.InFlightWeighted)
		}
	}
	if seen != 1 || len(got.Endpoints) != len(f.Plan.Servers) {
		t.Errorf("endpoints %+v", got.Endpoints)
	}
	return got
}

// TestAShadowShowsWhatWeightsWouldBringAndNoRequestChanges: two Envoys balance a slow server and three fast ones by
// their own clusters. Their requests are counted, whichever cluster they go through.
func TestAShadowShowsWhatWeightsWouldBringAndNoRequestChanges(t *testing.T) {
	t.Parallel()
	servers := testbed.Servers(t, modelsim.Options{Speed: 0.4}, modelsim.Options{}, modelsim.Options{},
		modelsim.Options{})
	f := testbed.WithoutEnvoys(t, testbed.Plan{Servers: servers, Cluster: "capacity: 1"})
	startShadows(t, f, 2)
	f.Eventually("both Envoys only report", func() error { return onlyReports(f, 2) })
	allAnswered(t, f, load.Plan{Rate: 40, Count: 1200, Work: load.Work{Mean: 60 * time.Millisecond}, Seed: 3}, 1200)
	if got := mustBring(t, f, 1200, servers[0].Address()); got.Fitted {
		t.Error("times of service are measured, and yet fitted")
	}
	if err := f.Control.Kill(); err != nil {
		t.Fatal(err)
	}
	startShadows(t, f, 1) // an Envoy that starts meanwhile serves, too
	allAnswered(t, f, load.Plan{Rate: 40, Count: 150, Work: load.Work{Mean: 10 * time.Millisecond}}, 150)
}

// TestAShadowOfEnginesThatBatchIsFitted: they have no slots. One is half as fast.
func TestAShadowOfEnginesThatBatchIsFitted(t *testing.T) {
	t.Parallel()
	params := engine.Defaults()
	servers := testbed.Servers(t, modelsim.Options{Batching: &params, Speed: 0.4}, modelsim.Options{Batching: &params},
		modelsim.Options{Batching: &params})
	f := testbed.WithoutEnvoys(t, testbed.Plan{Servers: servers})
	startShadows(t, f, 2)
	f.Eventually("both Envoys only report", func() error { return onlyReports(f, 2) })
	for i := range f.URLs {
		f.URLs[i] += "v1/completions"
	}
	const requests = 1200
	random := rand.New(rand.NewPCG(5, 5))
	var at float64 // seconds
	p := load.Plan{}
	for range requests {
		at += random.ExpFloat64() / 25
		tokens := 1 + int(700*random.ExpFloat64())
		p.Completions = append(p.Completions, load.Completion{At: time.Duration(at * float64(time.Second)),
			Prompt: tokens, Output: 1 + int(20*random.ExpFloat64()), Bytes: 4 * tokens})
	}
	allAnswered(t, f, p, requests)
	if got := mustBring(t, f, requests, servers[0].Address()); !got.Fitted {
		t.Error("engines without slots are simulated without a fit")
	}
}

// allAnswered sends requests, none of which may fail.
func allAnswered(t *testing.T, f *testbed.Fleet, p load.Plan, count int) {
	t.Helper()
	r := f.Send(p).Wait(t)
	if len(r.Samples) != count {
		t.Fatalf("%d requests, want %d", len(r.Samples), count)
	}
	for _, s := range r.Samples {
		if s.Failed() {
			t.Fatalf("a request failed: %v", s.Err)
		}
	}
}
