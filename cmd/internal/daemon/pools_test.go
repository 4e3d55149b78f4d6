package daemon

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"steelyard/controlplane/discovery/kubernetes"
)

// poolsOf are n pools of a namespace, the first the oldest.
func poolsOf(namespace string, n int) (out []kubernetes.FoundPool) {
	for i := range n {
		out = append(out, kubernetes.FoundPool{Namespace: namespace, Name: fmt.Sprintf("p%d", i),
			Created: time.Unix(int64(i), 0)})
	}
	return out
}

func TestANamespaceWithManyPoolsTakesNoneFromTheOthers(t *testing.T) {
	cfg := parse(t, "pools: {namespaces: [flood, models]}\nclusters: [{name: mine, engine: vllm, endpoints: "+
		"{inferencePool: {namespace: models, name: p1}}}]")
	const share = (maxClusters - 1) / 2
	found := map[string][]kubernetes.FoundPool{"flood": poolsOf("flood", 2000), "models": poolsOf("models", 3)}
	found["flood"][0].Picker, found["flood"][1].AppProtocol = true, "kubernetes.io/h2c"
	served, unserved := shareOut(found, cfg, "steelyard")
	count := map[string]int{}
	for _, p := range served {
		count[p.Namespace]++
		if n := 0; p.Namespace == "flood" {
			if _, err := fmt.Sscanf(p.Name, "p%d", &n); err != nil || n > share+1 {
				t.Errorf("%s is served, and older pools are not (%v)", p.Name, err)
			}
		}
	}
	if count["flood"] != share || count["models"] != 2 { // p1 has a cluster
		t.Errorf("served are %v, want %d of flood and 2 of models", count, share)
	}
	for name, want := range map[string]string{"p0": "", "p1": "its appProtocol is kubernetes.io/h2c", "p2": "",
		"p1999": "older pools of its namespace have the 499 clusters", "": "older pools"} {
		if got := unserved[types.NamespacedName{Namespace: "flood", Name: name}]; !strings.HasPrefix(got, want) ||
			(got == "") != (want == "") {
			t.Errorf("%q is not served because %q, want %q", name, got, want)
		}
	}
	if len(unserved) != 2000-1-share+1 {
		t.Errorf("%d are named", len(unserved))
	}
}

// A gateway that has a pool's name for a cluster that never comes answers its requests with 503.
func TestAPoolWithoutAClusterHasNoneForGatewaysEither(t *testing.T) {
	d := newParentsTest(t, newPoolAPI(t))
	flood := poolsOf("models", 1000)
	flood[0].AppProtocol = "kubernetes.io/h2c"
	d.poolsFound(map[string][]kubernetes.FoundPool{"models": flood, "more": {}}, nil)
	for _, c := range []struct{ namespace, pool, cluster, reason string }{
		{"models", "p0", "", "only http is served"}, {"models", "p1", "models.p1", ""},
		{"models", "p999", "", "older pools"}, {"models", "not-yet-found", "", "older pools"},
		{"more", "not-yet-found", "more.not-yet-found", ""}, {"others", "p1", "", "pools.namespaces"}} {
		cluster, err := d.clusterOfPool(c.namespace, c.pool)
		if cluster != c.cluster || (err == nil) != (c.reason == "") ||
			err != nil && !strings.Contains(err.Error(), c.reason) {
			t.Errorf("%s/%s: %q, %v, want %q or an error with %q", c.namespace, c.pool, cluster, err, c.cluster,
				c.reason)
		}
	}
	s := d.poolsStatus().Complete()
	if len(s.Unserved) != 100 || s.Unserved[0].Name != "p0" || s.Found != 1000 {
		t.Errorf("the state has %d pools, and of %d without a cluster the first is %+v", s.Found, len(s.Unserved),
			s.Unserved[0])
	}
	d.poolsFound(map[string][]kubernetes.FoundPool{"models": flood[1:2]}, nil) // and nothing of the other namespace
	if s := d.poolsStatus(); len(s.Unserved) != 0 || s.Found != 1 || !s.Answered {
		t.Errorf("when they are gone, the state is %+v", s)
	}
}

// A reload must not take the Envoys of all pools away because of one namespace.
func TestANamespaceThatAReloadAddsKeepsNoReplicaFromItsEnvoys(t *testing.T) {
	d := newParentsTest(t, newPoolAPI(t))
	d.poolsFound(map[string][]kubernetes.FoundPool{"models": poolsOf("models", 1)}, nil)
	if s := d.poolsStatus(); s.Answered {
		t.Errorf("before the first answer for %q: %+v", "more", s)
	}
	d.poolsFound(map[string][]kubernetes.FoundPool{"models": poolsOf("models", 1), "more": {}}, nil)
	if s := d.poolsStatus(); !s.Answered {
		t.Errorf("with all answers: %+v", s)
	}
	next := parse(t, fmt.Sprintf("kubernetes: {kubeconfig: %q}\nreplicas: {lease: none}\n"+
		"pools: {namespaces: [models, more, typo]}", d.Daemon.config.Kubernetes.Kubeconfig))
	if err := d.Apply(next); err != nil {
		t.Fatal(err)
	}
	d.poolsFound(map[string][]kubernetes.FoundPool{"models": poolsOf("models", 1), "more": {}}, forbidden("typo"))
	if s := d.poolsStatus(); !s.Answered || !strings.Contains(s.Error, "typo") {
		t.Errorf("after the reload: %+v", s)
	}
}

func forbidden(namespace string) error {
	return fmt.Errorf("Steelyard may not list inferencepools in namespace %s: %w", namespace,
		apierrors.NewForbidden(schema.GroupResource{Resource: "inferencepools"}, "", nil))
}

func TestAStartWaitsAMomentForANamespaceThatIsRefused(t *testing.T) {
	d := newParentsTest(t, newPoolAPI(t))
	models := map[string][]kubernetes.FoundPool{"models": poolsOf("models", 1)}
	for _, c := range []struct {
		since time.Duration
		found map[string][]kubernetes.FoundPool
		err   error
		want  bool
	}{
		{0, models, forbidden("more"), false},
		{time.Hour, models, errors.New("connection refused"), false},
		{time.Hour, nil, forbidden("more"), false}, // a rollout without its Role stops here
		{refusedPatience, models, forbidden("more"), true},
	} {
		d.started = time.Now().Add(-c.since)
		d.pools.found = nil
		d.poolsFound(c.found, c.err)
		if s := d.poolsStatus(); s.Answered != c.want || s.Error == "" {
			t.Errorf("%v after the start, with %v: %+v", c.since, c.err, s)
		}
	}
}

func TestASectionPoolsThatAReloadAddsKeepsNoReplicaFromItsEnvoys(t *testing.T) {
	d, _ := serve(t, parse(t, twoPools))
	eventually(t, "a ready process waits for no pools", func() error {
		if s := d.poolsStatus(); s.Enabled {
			return fmt.Errorf("the state is %+v", s)
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		if !d.pools.settled {
			return errors.New("it would wait")
		}
		return nil
	})
}

func TestAConfigurationWithPoolsIsComparedBeforeThereIsAnAPI(t *testing.T) {
	d, _ := serve(t, parse(t, twoPools))
	diff, err := d.operate.Diff("next.yaml", []byte("xds: {listen: 127.0.0.1:0}\nadmin: {listen: 127.0.0.1:0}\n"+
		"kubernetes: {kubeconfig: /nowhere}\npools: {namespaces: [models]}\n"))
	if err != nil || len(diff.Removed) == 0 {
		t.Errorf("the difference is %+v, %v", diff, err)
	}
}

// One translation asks for the members of each of its clusters, and one hangs after the other.
func TestCallsWaitForMembersTwoSecondsAllTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p patience
		waits := func() time.Duration {
			began := time.Now()
			time.Sleep(p.left(began))
			p.spend(time.Now(), time.Since(began))
			return time.Since(began)
		}
		began := time.Now()
		for range 1000 {
			waits()
		}
		if all := time.Since(began); all > 3*time.Second {
			t.Errorf("1000 clusters cost %v", all)
		}
		time.Sleep(membersRest)
		if got := waits(); got != membersPatience {
			t.Errorf("after a rest, a call waits %v", got)
		}
	})
}
