package kubernetes

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	rbac "k8s.io/api/rbac/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"steelyard/e2e/rig/load"
	"steelyard/e2e/rig/modelsim"
	"steelyard/internal/api"
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

// fleet writes a pool of Pods a, b, … whose servers run here.
func (r room) fleet(n int) ([]*modelsim.Server, string) {
	r.t.Helper()
	var hosts []string
	for i := range n {
		hosts = append(hosts, fmt.Sprintf("127.0.0.%d", i+2))
	}
	servers, port := sameport(r.t.(*testing.T), hosts...)
	labels := map[string]string{"app": "llama"}
	for i, host := range hosts {
		r.pod(pod{name: string(rune('a' + i)), ips: []string{host}, labels: labels, node: "node-1"})
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

// TestAnEngineThatHangsIsReportedAndEvictedWithinItsBudget: two of four hang while their metrics pages are answered.
func TestAnEngineThatHangsIsReportedAndEvictedWithinItsBudget(t *testing.T) {
	s := apiServer(t)
	installPools(t, s)
	r := newRoom(t, client(t, s))
	r.account()
	r.grant(r.name, readPools, readPods)
	budget := r.budget(0)
	servers, endpoints := r.fleet(4)
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
	defer p.load(40, 20*time.Millisecond)()
	eventually(t, "requests are answered", func() error {
		for i, s := range servers {
			if s.Served() < 10 {
				return fmt.Errorf("%d by %d", s.Served(), i)
			}
		}
		return nil
	})
	servers[0].SetFrozen(true)
	servers[1].SetFrozen(true)
	inTwoMinutes(t, "both are reported", func() error { // the condition after 15 s, and not while one is tried again
		events, err := r.client.CoreV1().Events(r.name).List(t.Context(), meta.ListOptions{})
		r.must(err)
		a, err := p.actions()
		if len(events.Items) != 2 || events.Items[0].Reason != "EngineHangs" || len(a.Wedged) != 2 ||
			r.condition("a") != "False" || r.condition("b") != "False" || r.condition("c") != "" {
			return fmt.Errorf("%d events, condition %q, state %+v (%w)", len(events.Items), r.condition("a"), a, err)
		}
		return nil
	})
	inTwoMinutes(t, "the budget keeps the Pod", func() error { return p.eviction("PodDisruptionBudget") })
	budget(2)
	inTwoMinutes(t, "one Pod is evicted, and no other one within ten minutes", func() error {
		if err := p.eviction("another Pod of its cluster was evicted"); err != nil {
			return err
		}
		going := 0
		for _, name := range []string{"a", "b", "c", "d"} {
			one, err := r.client.CoreV1().Pods(r.name).Get(t.Context(), name, meta.GetOptions{})
			r.must(err)
			if one.DeletionTimestamp != nil {
				going++
			}
		}
		if going != 1 {
			return fmt.Errorf("%d Pods terminate", going)
		}
		return nil
	})
	if a, err := p.actions(); err != nil || a.Error != "" {
		t.Errorf("the state is %+v (%v)", a, err)
	}
}

// eviction waits for a Pod whose eviction has this state.
func (p *product) eviction(state string) error {
	a, err := p.actions()
	for _, w := range a.Wedged {
		if strings.Contains(w.Eviction, state) {
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
	servers, endpoints := r.fleet(4)
	p := r.serve(endpoints, "deletion_cost: true")
	p.startEnvoy()
	stop := p.load(20, 2*time.Second)
	costs := map[string]int{}
	eventually(t, "each Pod has a cost of its own", func() error {
		pods, err := r.client.CoreV1().Pods(r.name).List(t.Context(), meta.ListOptions{})
		r.must(err)
		clear(costs)
		seen := map[int]bool{}
		for _, one := range pods.Items {
			cost, err := strconv.Atoi(one.Annotations["controller.kubernetes.io/pod-deletion-cost"])
			if err != nil {
				return fmt.Errorf("%s has none", one.Name)
			}
			costs[one.Name], seen[cost] = cost, true
		}
		if len(seen) < 3 { // each is written at its own time
			return fmt.Errorf("the costs are %v", costs)
		}
		return nil
	})
	lowest := "a"
	for name, cost := range costs {
		if cost < costs[lowest] {
			lowest = name
		}
	}
	if costs[lowest] != 0 {
		t.Errorf("the lowest cost is %d", costs[lowest])
	}
	victim := servers[lowest[0]-'a']
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
