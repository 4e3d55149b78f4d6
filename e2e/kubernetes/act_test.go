package kubernetes

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	rbac "k8s.io/api/rbac/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"steelyard/e2e/rig/load"
	"steelyard/e2e/rig/modelsim"
	"steelyard/e2e/rig/proc"
	"steelyard/e2e/rig/proc/proctest"
	"steelyard/internal/api"
	"steelyard/sim/engine"
)

// component gives the service account of the room the rights of a component of the manifests.
func (r room) component(name string) {
	r.t.Helper()
	text, err := os.ReadFile(filepath.Join("../../manifests/components", name, "role.yaml"))
	r.must(err)
	first, _, _ := bytes.Cut(text, []byte("\n---\n"))
	var role rbac.Role
	r.must(yaml.UnmarshalStrict(first, &role))
	_, err = r.client.RbacV1().Roles(r.name).Create(r.t.Context(), &role, meta.CreateOptions{})
	r.must(err)
	_, err = r.client.RbacV1().RoleBindings(r.name).Create(r.t.Context(), &rbac.RoleBinding{
		ObjectMeta: meta.ObjectMeta{Name: role.Name},
		RoleRef:    rbac.RoleRef{APIGroup: rbac.GroupName, Kind: "Role", Name: role.Name},
		Subjects:   []rbac.Subject{{Kind: rbac.ServiceAccountKind, Namespace: r.name, Name: "steelyard"}},
	}, meta.CreateOptions{})
	r.must(err)
}

// actions returns what the product says that it writes about Pods.
func (p *product) actions() (a api.PodActions, err error) {
	var s api.Status
	resp, err := http.Get("http://" + p.admin + "/api/v1/status")
	if err != nil {
		return a, err
	}
	defer resp.Body.Close()
	err = json.NewDecoder(resp.Body).Decode(&s)
	return s.Pods, err
}

// fleet writes a pool of Pods a, b, … whose servers run here. Only a has no controller.
func (r room) fleet(n int, o modelsim.Options) ([]*modelsim.Server, string) {
	r.t.Helper()
	var hosts []string
	for i := range n {
		hosts = append(hosts, fmt.Sprintf("127.0.0.%d", i+2))
	}
	servers, port := sameport(r.t.(*testing.T), o, hosts...)
	labels := map[string]string{"app": "llama"}
	for i, host := range hosts {
		r.pod(pod{name: string(rune('a' + i)), ips: []string{host}, labels: labels, node: "node-1",
			controlled: i > 0})
	}
	r.pool(apiServer(r.t), "llama", labels, int64(port))
	return servers, fmt.Sprintf("endpoints: {inferencePool: {name: llama, namespace: %s}}", r.name)
}

// load sends requests until stop is called, which returns how many failed, except those under way then.
func (p *product) load(rate float64, mean time.Duration) (stop func() int) {
	ctx, cancel := context.WithCancel(p.t.Context())
	done := make(chan load.Result, 1)
	go func() {
		result, _ := load.Run(ctx, load.Plan{Targets: []string{p.url}, Rate: rate, Duration: time.Hour, Seed: 1,
			Work: load.Work{Mean: mean}})
		done <- result
	}()
	return func() (failed int) {
		cancel()
		for _, s := range (<-done).Samples {
			if s.Failed() && !strings.Contains(fmt.Sprint(s.Err), context.Canceled.Error()) {
				failed++
			}
		}
		return failed
	}
}

// condition returns the status of the condition steelyard.dev/serving.
func (r room) condition(name string) core.ConditionStatus {
	p, err := r.client.CoreV1().Pods(r.name).Get(r.t.Context(), name, meta.GetOptions{})
	r.must(err)
	for _, c := range p.Status.Conditions {
		if c.Type == "steelyard.dev/serving" {
			return c.Status
		}
	}
	return ""
}

// hangs has engines that batch, of which a, b and c hang while their metrics pages are answered.
func (p *product) hangs(servers []*modelsim.Server) {
	p.t.Helper()
	ctx, cancel := context.WithCancel(p.t.Context())
	done := make(chan struct{})
	var requests []load.Completion
	for i := range 40 * 300 {
		requests = append(requests, load.Completion{At: time.Duration(i) * 25 * time.Millisecond, Prompt: 100,
			Output: 10})
	}
	go func() {
		defer close(done)
		_, _ = load.Run(ctx, load.Plan{Targets: []string{p.url + "v1/completions"}, Completions: requests})
	}()
	p.t.Cleanup(func() { cancel(); <-done })
	eventually(p.t, "requests are answered", func() error {
		for i, s := range servers {
			if s.Served() < 10 {
				return fmt.Errorf("%d by %d", s.Served(), i)
			}
		}
		return nil
	})
	for _, s := range servers[:3] {
		s.SetFrozen(true)
	}
}

// TestAnEngineThatHangsIsReportedAndEvictedWithinItsBudget: three of six hang. The first is a Pod without a controller.
func TestAnEngineThatHangsIsReportedAndEvictedWithinItsBudget(t *testing.T) {
	s := apiServer(t)
	installPools(t, s)
	r := newRoom(t, client(t, s))
	r.account()
	r.grant(r.name, readPools, readPods)
	budget := r.budget(0)
	params := engine.Defaults()
	servers, endpoints := r.fleet(6, modelsim.Options{Batching: &params})
	p := r.serve(endpoints, "wedged: {event: true, condition: true, evict: true}")
	p.startEnvoy()
	eventually(t, "the rights that are missing are named, before they are needed", func() error {
		a, err := p.actions()
		for _, name := range []string{"pod-event", "pod-condition", "pod-eviction"} {
			if err == nil && !strings.Contains(a.Error, "manifests/components/"+name) {
				err = fmt.Errorf("the error is %q", a.Error)
			}
		}
		return err
	})
	for _, name := range []string{"pod-event", "pod-condition", "pod-eviction"} {
		r.component(name)
	}
	p.hangs(servers)
	inTwoMinutes(t, "all are reported", func() error { // the condition after 15 s, and not while one is tried again
		a, err := p.actions()
		if events := r.events(); len(events) != 3 || events[0].Reason != "EngineHangs" || len(a.Wedged) != 3 ||
			!strings.Contains(events[0].Message, "next to nothing") || r.condition("a") != "False" ||
			r.condition("b") != "False" || r.condition("d") != "" {
			return fmt.Errorf("%d events, condition %q, state %+v (%w)", len(events), r.condition("a"), a, err)
		}
		return p.eviction("no controller", "a")
	})
	inTwoMinutes(t, "the budget keeps the Pod", func() error { return p.eviction("PodDisruptionBudget", "b", "c") })
	budget(3)
	inTwoMinutes(t, "one Pod is evicted", func() error {
		if going := r.terminating(); len(going) != 1 {
			return fmt.Errorf("%v terminate", going)
		}
		return nil
	})
	if going := r.terminating(); slices.Contains(going, "a") {
		t.Errorf("%v terminate, and a has no controller", going)
	}
	if a, err := p.actions(); err != nil || a.Error != "" {
		t.Errorf("the state is %+v (%v)", a, err)
	}
}

// TestNoPodIsTakenOutWhileNoEnvoyFollowsTheWeights: whatever is sent to it, Steelyard has no part in.
func TestNoPodIsTakenOutWhileNoEnvoyFollowsTheWeights(t *testing.T) {
	s := apiServer(t)
	installPools(t, s)
	r := newRoom(t, client(t, s))
	r.account()
	r.grant(r.name, readPools, readPods)
	for _, name := range []string{"pod-event", "pod-condition", "pod-eviction"} {
		r.component(name)
	}
	params := engine.Defaults()
	servers, endpoints := r.fleet(6, modelsim.Options{Batching: &params})
	p := r.serve(endpoints, "wedged: {event: true, condition: true, evict: true}")
	p.startShadow(servers)
	p.hangs(servers)
	var seen time.Time
	inTwoMinutes(t, "one has hung for long enough to be evicted", func() error {
		if err := p.eviction("no Envoy follows", "b", "c"); err != nil && seen.IsZero() {
			return err
		} else if seen.IsZero() {
			seen = time.Now()
		}
		if long := time.Since(seen); long < 70*time.Second {
			return fmt.Errorf("for %v", long)
		}
		return nil
	})
	events := r.events()
	if going := r.terminating(); len(going) > 0 || len(events) != 3 || r.condition("b") != "" ||
		strings.Contains(events[0].Message, "next to nothing") {
		t.Errorf("%v terminate, the condition is %q, and the events are %+v", going, r.condition("b"), events)
	}
}

// startShadow runs an Envoy that has its own cluster of these servers, and only reports.
func (p *product) startShadow(servers []*modelsim.Server) {
	p.t.Helper()
	binary, err := proc.BuildSteelyard()
	if err != nil {
		p.t.Fatal(err)
	}
	out, err := exec.CommandContext(p.t.Context(), binary, "bootstrap", "--attach", "--shadow", "--cluster", "llama",
		"--xds", p.xds).Output()
	if err != nil {
		p.t.Fatal(err)
	}
	text := proctest.Existing + string(out) + `
  - name: own
    type: STATIC
    lb_policy: ROUND_ROBIN
    load_assignment:
      cluster_name: own
      endpoints:
      - lb_endpoints:
`
	for _, s := range servers {
		host, port, _ := net.SplitHostPort(s.Address())
		text += fmt.Sprintf("        - endpoint: {address: {socket_address: {address: %s, port_value: %s}}}\n", host,
			port)
	}
	text += proctest.Listener + `          route_config:
            virtual_hosts:
            - {name: all, domains: ["*"], routes: [{match: {prefix: /}, route: {cluster: own, timeout: 0s}}]}
          http_filters:
` + proctest.RouterFilter
	for line := range strings.Lines(string(out)) {
		if yaml, found := strings.CutPrefix(line, "#     "); found {
			text += strings.Repeat(" ", 14) + yaml
		}
	}
	p.envoy = proctest.Envoy(p.t, proc.EnvoyConfig{Bootstrap: []byte(text), Dir: p.dir, Name: "envoy"})
	listener, err := p.envoy.Listener(p.t.Context(), "ingress")
	if err != nil {
		p.t.Fatal(err)
	}
	p.url = "http://" + listener + "/"
}

func (r room) events() []core.Event {
	events, err := r.client.CoreV1().Events(r.name).List(r.t.Context(), meta.ListOptions{})
	r.must(err)
	return events.Items
}

// terminating names the Pods that terminate.
func (r room) terminating() (names []string) {
	all, err := r.client.CoreV1().Pods(r.name).List(r.t.Context(), meta.ListOptions{})
	r.must(err)
	for _, one := range all.Items {
		if one.DeletionTimestamp != nil {
			names = append(names, one.Name)
		}
	}
	return names
}

// eviction returns nil if the eviction of one of these Pods has that state.
func (p *product) eviction(state string, pods ...string) error {
	a, err := p.actions()
	for _, w := range a.Wedged {
		if slices.Contains(pods, w.Pod) && strings.Contains(w.Eviction, state) {
			return nil
		}
	}
	return fmt.Errorf("the state is %+v (%w)", a, err)
}

func inTwoMinutes(t *testing.T, what string, check func() error) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		if err = check(); err == nil {
			return
		}
	}
	t.Fatalf("not within two minutes: %s: %v", what, err)
}

// budget writes a PodDisruptionBudget, with the status that a controller would write, and returns how to change it.
func (r room) budget(allowed int32) func(allowed int32) {
	r.t.Helper()
	budgets := r.client.PolicyV1().PodDisruptionBudgets(r.name)
	_, err := budgets.Create(r.t.Context(), &policy.PodDisruptionBudget{ObjectMeta: meta.ObjectMeta{Name: "llama"},
		Spec: policy.PodDisruptionBudgetSpec{
			Selector: &meta.LabelSelector{MatchLabels: map[string]string{"app": "llama"}}},
	}, meta.CreateOptions{})
	r.must(err)
	set := func(allowed int32) {
		b, err := budgets.Get(r.t.Context(), "llama", meta.GetOptions{})
		r.must(err)
		b.Status = policy.PodDisruptionBudgetStatus{ObservedGeneration: b.Generation, DisruptionsAllowed: allowed,
			CurrentHealthy: 4, DesiredHealthy: 4 - allowed, ExpectedPods: 4}
		_, err = budgets.UpdateStatus(r.t.Context(), b, meta.UpdateOptions{})
		r.must(err)
	}
	set(allowed)
	return set
}

// TestAPodWithTheReadinessGateGetsReadyByItself: the condition that the gate waits for is there before the Pod is an
// endpoint, and before any other one is.
func TestAPodWithTheReadinessGateGetsReadyByItself(t *testing.T) {
	s := apiServer(t)
	installPools(t, s)
	r := newRoom(t, client(t, s))
	r.account()
	r.grant(r.name, readPools, readPods)
	r.component("pod-condition")
	r.pool(s, "llama", map[string]string{"app": "llama"}, 8000)
	for name, gates := range map[string][]core.PodReadinessGate{"plain": nil,
		"gated": {{ConditionType: "steelyard.dev/serving"}}} {
		_, err := r.client.CoreV1().Pods(r.name).Create(t.Context(), &core.Pod{ObjectMeta: meta.ObjectMeta{Name: name},
			Spec: core.PodSpec{Containers: []core.Container{{Name: "server", Image: "vllm"}}, ReadinessGates: gates}},
			meta.CreateOptions{})
		r.must(err)
	}
	p := r.serve(fmt.Sprintf("endpoints: {inferencePool: {name: llama, namespace: %s}}", r.name),
		"wedged: {condition: true}")
	eventually(t, "the gate is open", func() error {
		if is := r.condition("gated"); is != core.ConditionTrue {
			a, err := p.actions()
			return fmt.Errorf("the condition is %q, and the state %+v (%w)", is, a, err)
		}
		return nil
	})
	if is := r.condition("plain"); is != "" {
		t.Errorf("a Pod without the gate has the condition %q", is)
	}
}

// TestAPoolThatShrinksLosesTheLeastBusyPodAndNoRequest: the Pod with the lowest deletion cost is the one that a
// ReplicaSet removes first. It terminates, its requests of seconds end, and then its server does.
func TestAPoolThatShrinksLosesTheLeastBusyPodAndNoRequest(t *testing.T) {
	s := apiServer(t)
	installPools(t, s)
	r := newRoom(t, client(t, s))
	r.account()
	r.grant(r.name, readPools, readPods)
	r.component("pod-deletion-cost")
	servers, endpoints := r.fleet(4, modelsim.Options{Slots: 64})
	const annotation = `{"metadata": {"annotations": {"steelyard.dev/capacity": "%d"}}}`
	for name, slots := range map[string]int{"a": 40, "b": 4, "c": 40, "d": 40} { // so that b has the least to do
		_, err := r.client.CoreV1().Pods(r.name).Patch(t.Context(), name, types.MergePatchType,
			fmt.Appendf(nil, annotation, slots), meta.PatchOptions{})
		r.must(err)
	}
	p := r.serve(endpoints, "deletion_cost: true")
	p.startEnvoy()
	stop := p.load(20, 2*time.Second)
	inTwoMinutes(t, "the Pod with the least work costs the least", func() error { // each is written once a minute
		pods, err := r.client.CoreV1().Pods(r.name).List(t.Context(), meta.ListOptions{})
		r.must(err)
		costs := map[string]string{}
		for _, one := range pods.Items {
			costs[one.Name] = one.Annotations["controller.kubernetes.io/pod-deletion-cost"]
		}
		for _, other := range []string{"a", "c", "d"} {
			if costs["b"] == "" || costs["b"] >= costs[other] {
				return fmt.Errorf("the costs are %v", costs)
			}
		}
		return nil
	})
	const lowest = "b"
	victim := servers[1]
	host, _, _ := net.SplitHostPort(victim.Address())
	r.terminate(lowest)
	eventually(t, "its requests have ended", func() error { // as a preStop of that length waits for
		if n := victim.InFlight(); n > 0 {
			return fmt.Errorf("%d requests are in flight at %s", n, host)
		}
		return nil
	})
	victim.Close()
	r.remove(lowest)
	eventually(t, "the pool has three", func() error {
		if v, err := p.view(); err != nil || v.Counts.Total != 3 {
			return fmt.Errorf("%d endpoints (%w)", v.Counts.Total, err)
		}
		return nil
	})
	if failed := stop(); failed > 0 {
		t.Errorf("%d requests failed", failed)
	}
}
