package gateways

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"steelyard/e2e/rig/golden"
	"steelyard/internal/api"
)

// cases are what happens to a gateway, in this order. No request may fail in any, and at its end the Envoys follow the
// weights of what the routes name.
var cases = []struct {
	name string
	run  func(*rig)
}{
	{"a Gateway gets its first pool, under load of another route", (*rig).attach},
	{"a route moves from a Service to a pool", (*rig).moveToPool},
	{"a route moves back to its Service", (*rig).moveBack},
	{"Steelyard is killed and started again", (*rig).killSteelyard},
	{"the gateway's control plane is killed and started again", (*rig).killGateway},
	{"both are killed, and a route changes before Steelyard is back", (*rig).changeAlone},
	{"an Envoy starts while Steelyard is away", (*rig).startAlone},
	{"a pool is scaled to zero and back", (*rig).scaleToZero},
	{"a pool grows and shrinks", (*rig).scale},
	{"a canary over two pools, with the weights of the route", (*rig).canary},
	{"a canary from a Service to a pool, with the weights of the route", (*rig).fromService},
	{listenersCase, (*rig).twoListeners},
	{rulesCase, (*rig).severalRules},
	{namespacesCase, (*rig).twoNamespaces},
	{policyCase, (*rig).policy},
	{"one of two replicas of Steelyard is killed, then one hangs", (*rig).loseReplicas},
	{moduleCase, (*rig).module},
	{pickerCase, (*rig).picker},
	{"the last pool goes, under load of another route", (*rig).detach},
	{strictCase, (*rig).strict},
}

// Cases that do not concern all.
const (
	listenersCase  = "a Gateway gets a second listener, with TLS, for the route of a pool"
	rulesCase      = "a route has several rules, for two pools and a Service, and gets one before them"
	namespacesCase = "a second namespace has a pool, for its own routes and, with a ReferenceGrant, for others"
	policyCase     = "a BackendTrafficPolicy has a timeout and retries for the route of a pool"
	moduleCase     = "a route gets the module by an annotation, reads prompts, and gives it up"
	pickerCase     = "a pool with a picker is left to it"
	strictCase     = "a pool gets served whose servers take the mutual TLS of a mesh only"
)

// gateways are the products, in the order of the table.
var gateways = []gateway{envoyGateway{}, &istio{}, &contour{}}

func TestGateways(t *testing.T) {
	passed := map[string]map[string]bool{} // by title and case
	for _, g := range gateways {
		t.Run(g.title(), func(t *testing.T) {
			passed[g.title()] = runCases(t, g)
		})
	}
	if !t.Failed() {
		golden.CheckBlock(t, document, "cases", table(passed, keptCells(t)))
	}
}

// runCases runs those that concern a gateway, and returns them.
func runCases(t *testing.T, g gateway) map[string]bool {
	r := newRig(t, g)
	r.service("shop", servers[5])
	r.route("shop", ofService("shop", 1))
	r.pods("llama", servers[:3]...)
	r.pods("next", servers[3:5]...)
	r.answers("shop")
	passed := map[string]bool{}
	for _, c := range cases {
		if g.leaves(c.name) {
			continue
		}
		ok := t.Run(c.name, func(t *testing.T) {
			passed[c.name] = true // not left out by -run
			r.t = t
			c.run(r)
		})
		r.t = t
		if !ok {
			s, err := r.status()
			t.Fatalf("the state after it: %+v %+v, %v", s.Pools, s.EnvoyGateway, err)
		}
	}
	return passed
}

// attach is the listener's first change: the log is added to it. Requests of others are not reported to Steelyard.
func (r *rig) attach() {
	shop := r.send("shop")
	shop.more(20)
	r.pool("llama")
	r.route("llama", r.gateway.pool("llama", 1))
	r.answers("llama")
	l := r.send("llama")
	r.gateway.serve(r, "llama")
	r.follows(l, "llama", servers[0])
	before := l.total()
	l.more(40)
	shop.more(20)
	sent := l.end() - before
	shop.end()
	r.logged(api.Entries{}, sent)
}

// entries counts the access log entries that Steelyard has.
func (r *rig) entries() api.Entries {
	r.t.Helper()
	s, err := r.status()
	r.must(err)
	return s.Signals.Entries
}

// logged waits until so many requests of the pools' routes were logged since then, and no others.
func (r *rig) logged(before api.Entries, sent int) {
	r.t.Helper()
	r.eventually("the requests of the pools' routes, and no others, were logged", func() error {
		s, err := r.status()
		e := s.Signals.Entries
		if n := int(api.Counted(e) - api.Counted(before)); err == nil &&
			(n < 2*sent-10 || e.Ignored > before.Ignored+10) {
			err = fmt.Errorf("the entries are %+v, of %d requests since %+v", e, sent, before)
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
	r.route("moved", r.gateway.pool("llama", 1))
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
	r.removeRoute("moved")
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
	r.must(r.plane.Kill())
	l.more(100)
	r.follows(l, "llama", servers[0])
	r.gateway.runPlane(r)
	r.route("other", r.gateway.pool("llama", 1))
	r.answers("other")
	r.follows(l, "llama", servers[1])
	l.end()
	r.removeRoute("other")
}

// changeAlone has Envoy Gateway start and translate without an answer: it gives its Envoys nothing new, until something
// changes when Steelyard is back.
func (r *rig) changeAlone() {
	l := r.send("llama")
	l.more(40)
	r.must(r.control.Kill())
	r.must(r.plane.Kill())
	r.gateway.runPlane(r)
	r.route("late", r.gateway.pool("llama", 1))
	l.more(200)
	r.serve()
	r.eventually("the pool is known", func() error { return r.member("llama", servers[0]) })
	r.route("later", r.gateway.pool("llama", 1))
	r.answers("later")
	r.answers("late")
	r.follows(l, "llama", servers[0])
	l.end()
	r.removeRoute("late")
	r.removeRoute("later")
}

func (r *rig) startAlone() {
	r.must(r.control.Kill())
	r.must(r.proxy.Kill())
	r.gateway.runProxy(r)
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
	r.reaches(l, servers[3])
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
	r.pool("next")
	r.route("canary", r.gateway.pool("llama", 1))
	r.answers("canary")
	l := r.send("canary")
	l.more(40)
	r.gateway.serve(r, "llama", "next")
	r.route("canary", r.gateway.pool("llama", 3), r.gateway.pool("next", 1))
	r.reaches(l, servers[3:5]...)
	r.divides(l, 0.25, servers[3:5]...)
	r.follows(l, "next", servers[3])
	r.follows(l, "llama", servers[0])
	r.divides(l, 0.25, servers[3:5]...)
	l.end()
	r.removeRoute("canary")
	r.endPool("next")
}

// endPool removes a pool besides the first one, that no route names any more.
func (r *rig) endPool(name string) {
	r.t.Helper()
	r.gateway.serve(r, "llama")
	r.remove("inference.networking.k8s.io/v1", "InferencePool", name)
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
	r.route("canary", ofService("old", 3), r.gateway.pool("llama", 1))
	r.reaches(l, servers[:3]...)
	r.divides(l, 0.25, servers[:3]...)
	r.follows(l, "llama", servers[0])
	l.end()
	r.removeRoute("canary")
}

// divides measures the part of a route's requests that some servers get: the mean of 400 draws, within four standard
// deviations. Fewer show that all go there.
func (r *rig) divides(l *load, want float64, ips ...string) {
	r.t.Helper()
	draws := 400
	if want == 1 {
		draws = 40
	}
	l.reset()
	l.more(draws)
	got := l.reset()
	var part, all float64
	for ip, n := range got {
		all += float64(n)
		if slices.Contains(ips, ip) {
			part += float64(n)
		}
	}
	if part /= all; math.Abs(part-want) > 4*math.Sqrt(want*(1-want)/all) {
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
	r.route("picked", r.gateway.pool("picked", 1))
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
	r.removeRoute("picked")
	r.remove("inference.networking.k8s.io/v1", "InferencePool", "picked")
}

func (r *rig) detach() {
	l := r.send("shop")
	l.more(20)
	r.gateway.leave(r)
	r.removeRoute("llama")
	r.remove("inference.networking.k8s.io/v1", "InferencePool", "llama")
	r.eventually("the Envoy follows no cluster", func() error {
		there, err := r.hasCluster("models.llama")
		if err == nil && there {
			err = errors.New("it has the cluster models.llama")
		}
		return err
	})
	l.more(40)
	l.end()
}
