package fleet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v4"

	"steelyard/e2e/rig/load"
	"steelyard/e2e/rig/proc"
	"steelyard/e2e/rig/proc/proctest"
)

func startRow(t *testing.T, p Policy, s Size) *Fleet {
	t.Helper()
	f, err := Start(t.Context(), Place{Dir: proctest.Dir(t)}, p, s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// clusterOf returns the pool's cluster in a bootstrap, and the rest of the document
// without the other clusters.
func clusterOf(t *testing.T, text []byte) (cluster, rest object) {
	t.Helper()
	if err := yaml.Unmarshal(text, &rest); err != nil {
		t.Fatal(err)
	}
	static := rest["static_resources"].(object)
	for _, c := range static["clusters"].([]any) {
		if c.(object)["name"] == clusterName {
			cluster = c.(object)
		}
	}
	delete(static, "clusters")
	return cluster, rest
}

// Rows with and without Steelyard differ in where endpoints come from and in the
// policy: nothing else may explain a difference.
func TestRowsDifferOnlyInWhatTheyCompare(t *testing.T) {
	servers := []string{"127.0.0.1:8001", "127.0.0.1:8002"}
	text := func(p Policy) []byte {
		b, err := p.bootstrap("envoy-1", "127.0.0.1:18000", "", servers)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	weighted, weightedRest := clusterOf(t, text(Policy{Control: &Control{Scrape: time.Second}}))
	for _, native := range []Native{RoundRobin, LeastRequest, CSWRR} {
		t.Run(string(native), func(t *testing.T) {
			cluster, rest := clusterOf(t, text(Policy{Native: native}))
			differ := []string{"type", "eds_cluster_config", "load_assignment", "lb_policy", "least_request_lb_config",
				"load_balancing_policy"}
			ignore := cmp.FilterPath(func(p cmp.Path) bool {
				key, ok := p.Last().(cmp.MapIndex)
				if !ok {
					return false
				}
				name := key.Key().String()
				return len(p) == 2 && slices.Contains(differ, name) ||
					native == CSWRR && name == "zone_aware_lb_config" // Envoy takes it with lb_policy only
			}, cmp.Ignore())
			if diff := cmp.Diff(weighted, cluster, ignore); diff != "" {
				t.Errorf("the clusters differ (-steelyard +native):\n%s", diff)
			}
			for _, r := range []object{rest, weightedRest} {
				if err := proc.Reroute(r, "same"); err != nil {
					t.Error(err)
				}
			}
			if diff := cmp.Diff(weightedRest, rest); diff != "" {
				t.Errorf("what is around the clusters differs (-steelyard +native):\n%s", diff)
			}
		})
	}
}

func TestTheBalancersOfEnvoyAreTheirOwn(t *testing.T) {
	cluster, _ := clusterOf(t, func() []byte {
		b, err := Policy{Native: CSWRR}.bootstrap("envoy-1", "", "", []string{"127.0.0.1:8001"})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}())
	if cluster["type"] != "STATIC" || cluster["lb_policy"] != nil || cluster["load_balancing_policy"] == nil ||
		cluster["eds_cluster_config"] != nil {
		t.Errorf("the cluster is %v", cluster)
	}
	if _, err := (Policy{Native: RoundRobin}).bootstrap("envoy-1", "", "", []string{"nonsense"}); err == nil {
		t.Error("a server without a port was accepted")
	}
}

func TestRowsHaveNamesAndVariants(t *testing.T) {
	for _, p := range Policies() {
		if got, err := Named(p.Name); err != nil || got.Title != p.Title {
			t.Errorf("%s is %+v, %v", p.Name, got, err)
		}
	}
	got, err := Named("steelyard_redis+round_robin+shedding")
	if err != nil || got.Name != "steelyard_redis+round_robin+shedding" || !got.Control.RoundRobin ||
		got.Control.TargetWait == 0 || got.Control.Redis == 0 {
		t.Errorf("%+v of %+v, %v", got, got.Control, err)
	}
	cluster, _ := clusterOf(t, func() []byte {
		b, err := got.bootstrap("envoy-1", "127.0.0.1:18000", "", nil)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}())
	if cluster["lb_policy"] != "ROUND_ROBIN" {
		t.Errorf("under the weights is %v", cluster["lb_policy"])
	}
	for _, wrong := range []string{"", "other", "round_robin+round_robin", "steelyard_redis+other",
		"steelyard_redis+", "steelyard_redis+queue", "round_robin+module+queue"} {
		if _, err := Named(wrong); err == nil {
			t.Errorf("there is a row %q", wrong)
		}
	}
}

func TestARowOfDefaultsConfiguresNothingButTheEndpoints(t *testing.T) {
	configured := func(c Control, slots int) string {
		f := &Fleet{Policy: Policy{Control: &c}, Size: Size{Slots: slots}}
		return f.config(&replica{xds: "127.0.0.1:1", admin: "127.0.0.1:2"}, "steelyard-1")
	}
	const want = "xds:\n  listen: 127.0.0.1:1\nadmin: {listen: 127.0.0.1:2}\n" +
		"clusters:\n- name: bench\n  engine: vllm\n  endpoints:\n    static:\n"
	if diff := cmp.Diff(want, configured(Control{Default: true}, 0)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, line := range []string{"capacity: 4", "access_log: {disabled: true}", "scrape: {interval: 1s}"} {
		if text := configured(Control{Scrape: time.Second}, 4); !strings.Contains(text, line) {
			t.Errorf("no %q in\n%s", line, text)
		}
	}
	with := func(c Control) string {
		text, err := Policy{Control: &c}.bootstrap("envoy-1", "127.0.0.1:1", "", nil)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if diff := cmp.Diff(with(Control{LoadReports: true, AccessLog: true}), with(Control{Default: true})); diff != "" {
		t.Errorf("the bootstrap lacks a source (-all +default):\n%s", diff)
	}
}

// Two replicas share the Envoys, and follow each other unless they are cut off.
func TestARowOfTwoReplicasHasHalfOfTheEnvoysAtEach(t *testing.T) {
	for variant, others := range map[string]int{variantReplicas: 1, variantCut: 0} {
		p, err := Named("steelyard_access_log" + variant)
		if err != nil {
			t.Fatal(err)
		}
		f := startRow(t, p, Size{Envoys: 2, Servers: 2, Slots: 1, Service: 20 * time.Millisecond})
		u, err := f.Usage(t.Context())
		if err != nil || u.Control.RSS == 0 || u.Control.Pushes < 2 {
			t.Errorf("%s: usage %+v, %v", p.Name, u.Control, err)
		}
		for _, r := range f.replicas {
			families, err := r.metrics(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if n := sum(families["steelyard_connected_envoys"]); n != 1 {
				t.Errorf("%s: %v Envoys at a replica, want 1", p.Name, n)
			}
			if n, err := r.follows(t.Context()); n != others || err != nil {
				t.Errorf("%s: a replica follows %d others, %v; want %d", p.Name, n, err, others)
			}
		}
		if result := send(t, f, 40); result.Errors > 0 {
			t.Errorf("%s: %d of %d requests failed", p.Name, result.Errors, result.Requests)
		}
	}
}

// A row whose requests went by the weights would measure something else under the name of the queue.
func TestTheRequestsOfARowWithAQueueAreSentByIt(t *testing.T) {
	p, err := Named("steelyard_access_log+module+queue")
	if err != nil || !p.Queued() {
		t.Fatalf("%+v, %v", p.Control, err)
	}
	f := startRow(t, p, Size{Envoys: 2, Servers: 2, Slots: 1, Service: 20 * time.Millisecond})
	const requests = 40
	granted := 0.0
	eventually(t, func(context.Context) error { // the first ones may come before the queue opens
		if result := send(t, f, requests); result.Errors > 0 {
			t.Fatalf("%d of %d requests failed", result.Errors, result.Requests)
		}
		families, err := f.replicas[0].metrics(t.Context())
		if err != nil {
			return err
		}
		before := granted
		if granted = sum(families["steelyard_queue_granted_total"]); granted-before != requests {
			return fmt.Errorf("%v of %d requests were sent by the queue", granted-before, requests)
		}
		return nil
	})
}

func TestASizeHasItsCapacityAndRate(t *testing.T) {
	s := Size{Envoys: 3, Servers: 4, Slots: 2, Slow: 3, Load: 0.5, Service: 100 * time.Millisecond}
	if got := s.Capacity(); math.Abs(got-4) > 1e-9 { // 2, and three times 2/3
		t.Errorf("capacity %v, want 4", got)
	}
	if got := s.Rate(); math.Abs(got-20) > 1e-9 {
		t.Errorf("rate %v, want 20 requests of 0.1 s: half of 4 seconds of work a second", got)
	}
	if got := s.shares(); got != nil {
		t.Errorf("shares %v, want equal ones", got)
	}
	s.Skew = true
	if got := s.shares(); !slices.Equal(got, []float64{2, 1, 1}) {
		t.Errorf("shares %v, want half for the first", got)
	}
}

// nice returns the niceness of each thread of a process.
func nice(t *testing.T, pid int) []int {
	t.Helper()
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	var all []int
	for _, task := range tasks {
		text, err := os.ReadFile(task)
		if err != nil {
			continue // it has ended
		}
		var n int
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		if _, err := fmt.Sscan(fields[19-3], &n); err != nil {
			t.Fatal(err)
		}
		all = append(all, n)
	}
	return all
}

func TestMeasuredProcessesHaveLowerPriorityThanTheLoad(t *testing.T) {
	f := startRow(t, Policy{Name: "scrape", Control: &Control{Scrape: time.Second}},
		Size{Envoys: 1, Servers: 2, Slots: 1, Load: 0.5, Service: 10 * time.Millisecond})
	own := slices.Max(nice(t, os.Getpid()))
	for name, pid := range map[string]int{"envoy": f.envoys[0].Pid(), "steelyard": f.replicas[0].process.Pid()} {
		all := nice(t, pid)
		if len(all) < 2 || slices.Min(all) != min(19, own+niceness) {
			t.Errorf("threads of %s have niceness %v with a load generator of %d, want %d more", name, all, own,
				niceness)
		}
	}
}

// send sends requests to a row, seven tenths of what it can carry.
func send(t *testing.T, f *Fleet, n int) load.Result {
	t.Helper()
	result, err := load.Run(t.Context(), f.Plan(load.Plan{
		Rate: 0.7 * f.Size.Capacity() / f.Size.Service.Seconds(), Count: n, Seed: 1,
		Work: load.Work{Mean: f.Size.Service},
	}))
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// The policy reads the servers' reports: a server that takes three times as long
// gets less weight. Without this its row would be round robin under another name.
func TestClientSideWeightsFollowTheReportsOfTheServers(t *testing.T) {
	f := startRow(t, Policy{Name: "cswrr", Native: CSWRR},
		Size{Envoys: 1, Servers: 3, Slots: 1, Slow: 1, Service: 20 * time.Millisecond})
	if result := send(t, f, 150); result.Errors > 0 {
		t.Fatalf("%d of %d requests failed", result.Errors, result.Requests)
	}
	eventually(t, func(ctx context.Context) error {
		hosts, err := f.Hosts(ctx, 0)
		if err != nil {
			return err
		}
		var weights []uint32 // of the slow one, then of the others
		for _, h := range hosts {
			weights = append(weights, h.Weight)
		}
		if len(weights) != 3 || 2*weights[0] > weights[1] || 2*weights[0] > weights[2] {
			return fmt.Errorf("weights %v, want the first, which is slow, far below the others", weights)
		}
		return nil
	})
}

func eventually(t *testing.T, check func(context.Context) error) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if err = check(t.Context()); err == nil {
			return
		}
	}
	t.Fatal(err)
}

func TestARowWithRedisCountsAndWeighs(t *testing.T) {
	p := Policy{Name: "redis", Control: &Control{Redis: 20 * time.Millisecond}}
	f := startRow(t, p, Size{Envoys: 1, Servers: 2, Slots: 1, Service: 20 * time.Millisecond})
	if result := send(t, f, 40); result.Errors > 0 {
		t.Fatalf("%d of %d requests failed", result.Errors, result.Requests)
	}
	eventually(t, func(ctx context.Context) error {
		u, err := f.Usage(ctx)
		if err == nil && !(u.Control != nil && u.Control.Pushes > 1 && u.Control.RSS > 1<<20) {
			err = fmt.Errorf("usage %+v of %+v, want pushes and memory", u, u.Control)
		}
		return err
	})
	counts, err := f.client.ZCard(t.Context(), "inflight:"+clusterName).Result()
	if err != nil || counts != 2 {
		t.Errorf("Redis knows %d servers, %v; want 2", counts, err)
	}
}

func TestARowThatCannotStartIsNamedAndLeavesNothing(t *testing.T) {
	dir := proctest.Dir(t)
	p := Policy{Name: "odd", Control: &Control{Scrape: time.Second, Push: []string{"no_such_key: 1"}}}
	_, err := Start(t.Context(), Place{Dir: dir}, p, Size{Envoys: 1, Servers: 1, Slots: 1})
	if err == nil || !strings.Contains(err.Error(), "the row odd") || !strings.Contains(err.Error(), "no_such_key") {
		t.Errorf("error %v, want one that names the row and the key", err)
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("it left %v", left)
	}
}

func TestUsageOfAProcessIsReadFromItsLine(t *testing.T) {
	line := "42 (a) b (c) S 1 42 42 0 -1 4194304 100 0 0 0 250 150 0 0 20 0 5 0 1000 2000000 300 " +
		"18446744073709551615 1\n"
	got, err := parseStat([]byte(line))
	if err != nil || got.cpu != 4 || got.rss != 300*float64(os.Getpagesize()) {
		t.Errorf("%+v, %v; want 4 s of CPU time and 300 pages", got, err)
	}
	for _, broken := range []string{"", "42 (name)", "42 (name) S 1 2"} {
		if _, err := parseStat([]byte(broken)); err == nil {
			t.Errorf("the line %q was accepted", broken)
		}
	}
	if got, err := readProcess(os.Getpid()); err != nil || !(got.rss > 0) {
		t.Errorf("this process is %+v, %v", got, err)
	}
	if _, err := readProcess(1 << 30); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a process that there is not: %v", err)
	}
}

func TestTheMachineIsBusyAndIdle(t *testing.T) {
	a, err := ReadMachine()
	if err != nil || !(a.Busy > 0) || !(a.Idle > 0) {
		t.Fatalf("%+v, %v", a, err)
	}
	m := Machine{Busy: 30, Idle: 70}.Minus(Machine{Busy: 10, Idle: 10})
	if got := m.Plus(Machine{Busy: 20}).Share(); got != 0.4 {
		t.Errorf("busy for a share of %v, want 40 s of 100 s", got)
	}
}
