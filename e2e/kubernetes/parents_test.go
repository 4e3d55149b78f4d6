package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	rbac "k8s.io/api/rbac/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	source "steelyard/controlplane/discovery/kubernetes"
	"steelyard/e2e/rig/kube"
)

var writeParents = rbac.PolicyRule{APIGroups: []string{"inference.networking.k8s.io"},
	Resources: []string{"inferencepools/status"}, Verbs: []string{"patch"}}

// parents returns those in the status of a pool, as KIND NAMESPACE/NAME TYPE=STATUS(REASON)...
func (r room) parents(s *kube.Server, pool string) (out []string) {
	r.t.Helper()
	d, err := s.Dynamic()
	r.must(err)
	found, err := d.Resource(inferencePools).Namespace(r.name).Get(r.t.Context(), pool, meta.GetOptions{})
	r.must(err)
	all, _, _ := unstructured.NestedSlice(found.Object, "status", "parents")
	for _, p := range all {
		p := p.(map[string]any)
		ref := p["parentRef"].(map[string]any)
		text := fmt.Sprintf("%v %v/%v", ref["kind"], ref["namespace"], ref["name"])
		conditions, _ := p["conditions"].([]any)
		for _, c := range conditions {
			c := c.(map[string]any)
			text += fmt.Sprintf(" %v=%v(%v)", c["type"], c["status"], c["reason"])
		}
		out = append(out, text)
	}
	return out
}

// poolOf returns the only pool of the room, as the client finds it in a version that check takes.
func (r room) poolOf(c *source.Client, check func(*source.FoundPool) bool) (pool source.FoundPool) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), limit)
	defer cancel()
	found := false
	c.Pools(ctx, []string{r.name}, func(all map[string][]source.FoundPool, _ error) {
		if pools := all[r.name]; len(pools) == 1 && check(&pools[0]) {
			pool, found = pools[0], true
			cancel()
		}
	})
	if !found {
		r.t.Fatal("the pool is not found")
	}
	return pool
}

// TestTheParentsOfAPoolAreWrittenNextToThoseOfOthers, as the definition of the API allows them.
func TestTheParentsOfAPoolAreWrittenNextToThoseOfOthers(t *testing.T) {
	s := apiServer(t)
	r := newRoom(t, client(t, s))
	r.account()
	r.grant(r.name, readPools)
	installPools(t, s)
	r.pool(s, "llama", map[string]string{"app": "llama"}, 8000)
	c := connect(t, s, "", r.tokenFile(s))
	const ours, theirs = "steelyard.dev/steelyard/steelyard-xds", "example.com/other"
	gateway := func(name string) source.Parent {
		return source.Parent{ParentRef: source.ParentRef{Kind: source.GatewayKind, Namespace: "infra", Name: name}}
	}

	pool := r.poolOf(c.Client, func(*source.FoundPool) bool { return true })
	_, err := c.SetParents(t.Context(), ours, &pool, []source.Parent{gateway("eg")})
	if err == nil || !strings.Contains(err.Error(), "may not patch inferencepools/status in namespace "+r.name) {
		t.Errorf("without the right, it is %v", err)
	}
	r.grant(r.name, readPools, writeParents)
	eventually(t, "another controller has a parent", func() error {
		_, err := c.SetParents(t.Context(), theirs, &pool, []source.Parent{gateway("gw")})
		return err
	})
	if _, err := c.SetParents(t.Context(), ours, &pool, nil); err != nil {
		t.Errorf("of nothing to write, it is %v", err)
	}
	refused := gateway("eg")
	refused.Refused = "its appProtocol is kubernetes.io/h2c"
	service := source.Parent{ParentRef: source.ParentRef{Kind: source.ServiceKind, Namespace: "steelyard",
		Name: "steelyard-xds"}}
	if _, err := c.SetParents(t.Context(), ours, &pool, []source.Parent{refused}); !errors.Is(err, source.ErrChanged) {
		t.Errorf("of a pool that has changed, it is %v", err)
	}
	pool = r.poolOf(c.Client, func(p *source.FoundPool) bool { return p.ServedByOthers(ours) })
	if wrote, err := c.SetParents(t.Context(), ours, &pool, []source.Parent{refused, service}); err != nil || !wrote {
		t.Fatal(wrote, err)
	}
	const other = "Gateway infra/gw Accepted=True(Accepted) ResolvedRefs=True(ResolvedRefs)"
	if got, want := r.parents(s, "llama"), []string{other,
		"Gateway infra/eg Accepted=False(NotSupportedByParent) ResolvedRefs=True(ResolvedRefs)",
		"Service steelyard/steelyard-xds Accepted=True(Accepted) ResolvedRefs=True(ResolvedRefs)",
	}; !slices.Equal(got, want) {
		t.Errorf("the parents are %q, want %q", got, want)
	}

	// The API takes 32.
	pool = r.poolOf(c.Client, func(p *source.FoundPool) bool { return len(p.Parents(ours)) == 2 })
	var many []source.Parent
	for i := range 40 {
		many = append(many, gateway(fmt.Sprintf("eg-%d", i)))
	}
	if _, err := c.SetParents(t.Context(), ours, &pool, many); err != nil {
		t.Error(err)
	}
	pool = r.poolOf(c.Client, func(p *source.FoundPool) bool { return len(p.Parents(ours)) == 31 })
	if wrote, err := c.SetParents(t.Context(), ours, &pool, many); err != nil || wrote {
		t.Errorf("they are written again: %v", err)
	}
	if _, err := c.SetParents(t.Context(), ours, &pool, nil); err != nil {
		t.Error(err)
	}
	if got := r.parents(s, "llama"); !slices.Equal(got, []string{other}) {
		t.Errorf("without ours, the parents are %q", got)
	}
}

// TestAPoolThatEnvoysFollowWithoutAGatewayNamesSteelyardsService.
func TestAPoolThatEnvoysFollowWithoutAGatewayNamesSteelyardsService(t *testing.T) {
	s := apiServer(t)
	r := newRoom(t, client(t, s))
	r.account()
	r.grant(r.name, readPods, readPools, writeParents)
	installPools(t, s)
	r.pool(s, "llama", map[string]string{"app": "llama"}, 8000)
	r.pod(pod{name: "a", ips: []string{"127.0.0.1"}, labels: map[string]string{"app": "llama"}})
	p := r.serve(fmt.Sprintf("endpoints: {inferencePool: {namespace: %s, name: llama}}\n"+
		"replicas: {service: steelyard-xds}", r.name))
	p.startEnvoy()
	eventually(t, "the Service is its parent", func() error {
		got := r.parents(s, "llama")
		if !slices.Equal(got, []string{
			"Service default/steelyard-xds Accepted=True(Accepted) ResolvedRefs=True(ResolvedRefs)"}) {
			return fmt.Errorf("the parents are %q", got)
		}
		return nil
	})
}
