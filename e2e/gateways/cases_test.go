package gateways

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"steelyard/e2e/rig/golden"
	"steelyard/internal/api"
)

// cases are what happens to a gateway, in this order. No request may fail in any; after is what is seen at the end.
var cases = []struct {
	name  string
	run   func(*rig)
	after string
}{
	{"a Gateway gets its first pool, under load of another route", (*rig).attach, "weights followed"},
	{"a route moves from a Service to a pool", (*rig).moveToPool, "weights followed"},
	{"a route moves back to its Service", (*rig).moveBack, "weights of the Service"},
	{"Steelyard is killed and started again", (*rig).killSteelyard, "weights followed"},
	{"the gateway's control plane is killed and started again", (*rig).killGateway, "weights followed"},
	{"both are killed, and a route changes before Steelyard is back", (*rig).changeAlone, "weights followed"},
	{"an Envoy starts while Steelyard is away", (*rig).startAlone, "weights followed"},
	{"a pool is scaled to zero and back", (*rig).scaleToZero, "weights followed"},
	{"a pool grows and shrinks", (*rig).scale, "weights followed"},
	{"a canary over two pools, with the weights of the route", (*rig).canary, "weights followed"},
	{"a canary from a Service to a pool, with the weights of the route", (*rig).fromService, "weights followed"},
	{"a pool with a picker is left to it", (*rig).picker, "weights of other pools followed"},
	{"the last pool goes, under load of another route", (*rig).detach, "nothing follows"},
}

func TestEnvoyGateway(t *testing.T) {
	r := newRig(t)
	r.service("shop", servers[5])
	r.route("shop", ofService("shop", 1))
	r.pods("llama", servers[:3]...)
	r.answers("shop")
	var table strings.Builder
	fmt.Fprintf(&table, "| case | Envoy Gateway 1.9.1, Envoy 1.40 |\n|---|---|\n")
	for _, c := range cases {
		if !t.Run(strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) {
			r.t = t
			c.run(r)
		}) {
			r.t = t
			s, err := r.status()
			t.Fatalf("the state after it: %+v %+v, %v", s.Pools, s.EnvoyGateway, err)
		}
		r.t = t
		fmt.Fprintf(&table, "| %s | 0 requests failed, %s |\n", c.name, c.after)
	}
	golden.CheckBlock(t, "../../docs/gateways.md", "cases", table.String())
}

// attach is the listener's first change: the log is added to it. Requests of others are not reported to Steelyard.
func (r *rig) attach() {
	shop := r.send("shop")
	shop.more(20)
	r.pool("llama")
	r.route("llama", ofPool("llama", 1))
	r.answers("llama")
	r.eventually("the pool has its Gateway as a parent", func() error { return r.parent("llama", "True", "Accepted") })
	l := r.send("llama")
	r.follows(l, "llama", servers[0])
	shop.more(20)
	sent := l.end()
	shop.end()
	r.eventually("the requests of the pool's route, and no others, were logged", func() error {
		s, err := r.status()
		e := s.Signals.Entries
		if n := int(api.Counted(e)); err == nil && (n < 2*sent-10 || e.Ignored > 10) {
			err = fmt.Errorf("the entries are %+v, of %d requests", e, sent)
		}
		return err
	})
}

func (r *rig) moveToPool() {
	r.service("moved", servers[:3]...)
	r.route("moved", ofService("moved", 1))
	r.answers("moved")
	l := r.send("moved")
	l.more(40)
	r.route("moved", ofPool("llama", 1))
	r.follows(l, "llama", servers[1])
	l.end()
}

func (r *rig) moveBack() {
	l := r.send("moved")
	l.more(40)
	r.route("moved", ofService("moved", 1))
	r.steelyard("drain", "models.llama", servers[0]+":8000", "--reason", "the route does not follow any more")
	r.eventually("the route follows no weights", func() error {
		l.reset()
		l.more(40)
		if l.reset()[servers[0]] == 0 {
			return errors.New("a server that is drained gets none of its requests")
		}
		return nil
	})
	r.steelyard("undrain", "models.llama", servers[0]+":8000")
	l.end()
	r.remove("gateway.networking.k8s.io/v1", "HTTPRoute", "moved")
}

func (r *rig) killSteelyard() {
	l := r.send("llama")
	l.more(40)
	r.must(r.control.Kill())
	for end := time.Now().Add(8 * time.Second); time.Now().Before(end); { // longer than push.endpoint_stale_after
		l.more(20)
	}
	r.serve()
	r.follows(l, "llama", servers[2])
	l.end()
}

func (r *rig) killGateway() {
	l := r.send("llama")
	l.more(40)
	r.must(r.eg.Kill())
	l.more(100)
	r.follows(l, "llama", servers[0])
	r.runGateway()
	r.route("other", ofPool("llama", 1))
	r.answers("other")
	r.follows(l, "llama", servers[1])
	l.end()
	r.remove("gateway.networking.k8s.io/v1", "HTTPRoute", "other")
}

// changeAlone has Envoy Gateway start and translate without an answer: it gives its Envoys nothing new, until something
// changes when Steelyard is back.
func (r *rig) changeAlone() {
	l := r.send("llama")
	l.more(40)
	r.must(r.control.Kill())
	r.must(r.eg.Kill())
	r.runGateway()
	r.route("late", ofPool("llama", 1))
	l.more(200)
	r.serve()
	r.eventually("the pool is known", func() error { return r.member("llama", servers[0]) })
	r.route("later", ofPool("llama", 1))
	r.answers("later")
	r.answers("late")
	r.follows(l, "llama", servers[0])
	l.end()
	r.remove("gateway.networking.k8s.io/v1", "HTTPRoute", "late")
	r.remove("gateway.networking.k8s.io/v1", "HTTPRoute", "later")
}

func (r *rig) startAlone() {
	r.must(r.control.Kill())
	r.must(r.envoy.Kill())
	r.runEnvoy()
	r.answers("llama")
	l := r.send("llama")
	l.more(100)
	r.serve()
	r.follows(l, "llama", servers[0])
	l.end()
}

// scaleToZero has no request in between: without a server there is nobody to answer.
func (r *rig) scaleToZero() {
	r.removePods("llama", servers[:3]...)
	r.eventually("the pool is empty", func() error { return r.members("llama") })
	shop := r.send("shop")
	shop.more(40)
	r.pods("llama", servers[:3]...)
	r.eventually("the pool is back", func() error { return r.members("llama", servers[:3]...) })
	r.answers("llama")
	l := r.send("llama")
	r.follows(l, "llama", servers[1])
	l.end()
	shop.end()
}

func (r *rig) scale() {
	l := r.send("llama")
	l.more(40)
	r.pods("llama", servers[3])
	r.eventually("the new server gets requests", func() error {
		l.reset()
		l.more(20)
		if l.reset()[servers[3]] == 0 {
			return errors.New("none of 20 went there")
		}
		return nil
	})
	r.removePods("llama", servers[3])
	r.eventually("the server that is gone gets no requests", func() error {
		l.reset()
		l.more(20)
		if n := l.reset()[servers[3]]; n > 0 {
			return fmt.Errorf("%d of 20 went there", n)
		}
		return nil
	})
	r.follows(l, "llama", servers[2])
	l.end()
}

func (r *rig) canary() {
	r.pods("next", servers[3:5]...)
	r.pool("next")
	r.route("canary", ofPool("llama", 1))
	r.answers("canary")
	l := r.send("canary")
	l.more(40)
	r.route("canary", ofPool("llama", 3), ofPool("next", 1))
	r.eventually("the new pool gets requests", func() error {
		l.reset()
		l.more(20)
		if got := l.reset(); got[servers[3]]+got[servers[4]] == 0 {
			return errors.New("none of 20 went there")
		}
		return nil
	})
	r.divides(l, 0.25, servers[3:5]...)
	r.follows(l, "next", servers[3])
	r.follows(l, "llama", servers[0])
	r.divides(l, 0.25, servers[3:5]...)
	l.end()
	r.remove("gateway.networking.k8s.io/v1", "HTTPRoute", "canary")
	r.remove("inference.networking.k8s.io/v1", "InferencePool", "next")
	r.eventually("the cluster of a pool that is gone ends", func() error {
		s, err := r.status()
		if err == nil && s.Pools.Found != 1 {
			err = fmt.Errorf("%d pools are found", s.Pools.Found)
		}
		return err
	})
}

func (r *rig) fromService() {
	r.service("old", servers[3:5]...)
	r.route("canary", ofService("old", 1))
	r.answers("canary")
	l := r.send("canary")
	l.more(20)
	r.route("canary", ofService("old", 3), ofPool("llama", 1))
	r.eventually("the pool gets requests", func() error {
		l.reset()
		l.more(20)
		if got := l.reset(); got[servers[3]]+got[servers[4]] == 20 {
			return errors.New("none of 20 went there")
		}
		return nil
	})
	r.divides(l, 0.25, servers[:3]...)
	r.follows(l, "llama", servers[0])
	l.end()
	r.remove("gateway.networking.k8s.io/v1", "HTTPRoute", "canary")
}

// divides measures the part of a route's requests that some servers get: the mean of 400 draws, within four standard
// deviations.
func (r *rig) divides(l *load, want float64, ips ...string) {
	r.t.Helper()
	l.reset()
	l.more(400)
	got := l.reset()
	var part, all float64
	for ip, n := range got {
		all += float64(n)
		if slices.Contains(ips, ip) {
			part += float64(n)
		}
	}
	if part /= all; part < want-0.09 || part > want+0.09 {
		r.t.Errorf("%v get %.2f of the requests, want %.2f: %v", ips, part, want, got)
	}
}

func (r *rig) picker() {
	l := r.send("llama")
	r.apply(`
apiVersion: inference.networking.k8s.io/v1
kind: InferencePool
metadata: {name: picked, namespace: models}
spec:
  selector: {matchLabels: {app: llama}}
  targetPorts: [{number: 8000}]
  endpointPickerRef: {name: epp, port: {number: 9002}}
`)
	r.route("picked", ofPool("picked", 1))
	r.eventually("Steelyard says to whom it leaves the pool", func() error {
		s, err := r.status()
		for _, p := range s.EnvoyGateway.Pools {
			if p.Name == "picked" && p.Picker == "epp" && p.Cluster == "" && p.Reason == "" {
				return err
			}
		}
		return fmt.Errorf("the pools are %+v (%w)", s.EnvoyGateway.Pools, err)
	})
	r.follows(l, "llama", servers[0])
	l.end()
	r.remove("gateway.networking.k8s.io/v1", "HTTPRoute", "picked")
	r.remove("inference.networking.k8s.io/v1", "InferencePool", "picked")
}

func (r *rig) detach() {
	l := r.send("shop")
	l.more(20)
	r.remove("gateway.networking.k8s.io/v1", "HTTPRoute", "llama")
	r.remove("inference.networking.k8s.io/v1", "InferencePool", "llama")
	r.eventually("the Envoy follows no cluster", func() error {
		clusters, err := r.envoy.Clusters(r.t.Context())
		if _, there := clusters["models.llama"]; err == nil && there {
			err = errors.New("it has the cluster models.llama")
		}
		return err
	})
	l.more(40)
	l.end()
}
