package gateways

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	"sigs.k8s.io/gateway-api-inference-extension/conformance/resources"
	"sigs.k8s.io/yaml"

	"steelyard/e2e/rig/link"
	"steelyard/e2e/rig/proc"
	"steelyard/internal/api"
)

// A replica is a Pod of Steelyard.
type replica struct {
	ip      string
	process *proc.Process
	ready   bool // as the Service has it
}

// A fleet has the replicas behind a Service, which leads new connections to one of them as long as that is ready, as
// the shipped ones do. In the place of a kubelet, it probes the replicas as the shipped Deployment says.
type fleet struct {
	ports   []string
	links   []*link.Link // one for each port
	pod     core.PodSpec
	running sync.WaitGroup

	mu       sync.Mutex // guards the fields below
	replicas []*replica
	to       *replica
}

// openFleet begins one in which no replica runs.
func (r *rig) openFleet() *fleet {
	r.t.Helper()
	f := &fleet{replicas: []*replica{{ip: "127.0.0.2"}, {ip: "127.0.0.3"}},
		ports: []string{xdsPort, hooksPort, adminPort}}
	f.to = f.replicas[0]
	for _, port := range f.ports {
		l, err := link.Open("127.0.0.1:"+port, f.to.ip+":"+port)
		r.must(err)
		f.links = append(f.links, l)
		r.whole.Cleanup(l.Close)
	}
	r.whole.Cleanup(f.running.Wait)
	text, err := os.ReadFile("../../manifests/base/deployment.yaml")
	r.must(err)
	var deployment apps.Deployment
	r.must(yaml.Unmarshal(text, &deployment))
	f.pod = deployment.Spec.Template.Spec
	return f
}

// leads returns the replica that new connections reach; nil if none is ready.
func (f *fleet) leads() *replica {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.to.ready {
		return f.to
	}
	return nil
}

// set notes whether a replica is ready.
func (f *fleet) set(p *replica, ready bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p.ready = ready
	for _, other := range f.replicas {
		if !f.to.ready && other.ready {
			f.to = other
			for i, l := range f.links {
				l.Lead(f.to.ip + ":" + f.ports[i])
			}
		}
	}
}

// serve starts Steelyard.
func (r *rig) serve() {
	r.t.Helper()
	first := r.fleet.replicas[0]
	r.run(first)
	r.control = first.process
	r.eventually("the Service leads to it", func() error { return r.leadsTo(first) })
}

func (r *rig) leadsTo(p *replica) error {
	if r.fleet.leads() != p {
		return errors.New("it does not")
	}
	return nil
}

// run starts a replica.
func (r *rig) run(p *replica) {
	r.t.Helper()
	config := r.path("steelyard-" + p.ip + ".yaml")
	r.must(os.WriteFile(config, fmt.Appendf(nil, `
xds: {listen: "%[1]s:%[2]s"}
admin: {listen: "%[1]s:%[3]s", tokens_file: tokens, anonymous_view: true}
kubernetes: {kubeconfig: kubeconfig}
pools: {namespaces: [models, team, %[4]s]}
envoy_gateway: {listen: "%[1]s:%[5]s", module_xds: "%[6]s", module_gateways: [models/eg]}
replicas: {name: "%[1]s", peers: ["%[7]s:%[2]s", "%[8]s:%[2]s"]}
`, p.ip, xdsPort, adminPort, resources.AppBackendNamespace, hooksPort, xdsAddress, r.fleet.replicas[0].ip,
		r.fleet.replicas[1].ip), 0o600))
	r.must(os.WriteFile(r.path("tokens"), []byte("operate test "+token+"\n"), 0o600))
	r.must(os.WriteFile(r.path("token"), []byte(token), 0o600))
	process, err := proc.StartSteelyard(r.t.Context(), proc.SteelyardConfig{Path: r.binary, Config: config,
		Admin: p.ip + ":" + adminPort, Dir: r.dir, Name: "steelyard-" + p.ip})
	r.must(err)
	r.whole.Cleanup(func() { _ = process.Kill() })
	p.process = process
	r.fleet.keep(p)
}

// keep probes a replica until its process ends, and ends a process that hangs.
func (f *fleet) keep(p *replica) {
	process, admin := p.process, "http://"+p.ip+":"+adminPort
	f.running.Go(func() {
		probe(process, f.pod.Containers[0].ReadinessProbe, admin+"/readyz", func(ok bool) { f.set(p, ok) })
		f.set(p, false)
	})
	f.running.Go(func() {
		liveness := f.pod.Containers[0].LivenessProbe
		probe(process, liveness, admin+"/healthz", func(ok bool) {
			if ok {
				return
			}
			grace := cmp.Or(liveness.TerminationGracePeriodSeconds, f.pod.TerminationGracePeriodSeconds)
			select { // after SIGTERM, which one that hangs does not answer
			case <-process.Done():
			case <-time.After(time.Duration(*grace) * time.Second):
				_ = process.Kill()
			}
		})
	})
}

// probe does what a probe says, until the process ends.
func probe(process *proc.Process, spec *core.Probe, url string, says func(ok bool)) {
	client := &http.Client{Timeout: time.Duration(spec.TimeoutSeconds) * time.Second,
		Transport: &http.Transport{DisableKeepAlives: true}}
	tick := time.NewTicker(time.Duration(spec.PeriodSeconds) * time.Second)
	defer tick.Stop()
	failures := int32(0)
	for {
		resp, err := client.Get(url)
		if err == nil {
			resp.Body.Close()
		}
		if err == nil && resp.StatusCode == http.StatusOK {
			failures = 0
			says(true)
		} else if failures++; failures >= spec.FailureThreshold {
			says(false)
		}
		select {
		case <-process.Done():
			return
		case <-tick.C:
		}
	}
}

// loseReplicas has a second replica, kills the one that all are connected to, and then has the other one hang.
func (r *rig) loseReplicas() {
	l := r.send("llama")
	first, second := r.fleet.replicas[0], r.fleet.replicas[1]
	r.runBoth(second)
	l.more(40)
	r.must(first.process.Kill())
	r.changes("killed")
	r.follows(l, "llama", servers[0])
	r.runBoth(first)
	r.must(second.process.Pause())
	r.changes("hung")
	r.eventually("the Service leads to the first replica", func() error { return r.leadsTo(first) })
	r.follows(l, "llama", servers[1])
	l.end()
	r.control = first.process
	_ = second.process.Kill()
}

// runBoth starts a replica, and waits until both are ready and know each other.
func (r *rig) runBoth(p *replica) {
	r.t.Helper()
	r.run(p)
	r.eventually("both replicas are ready", func() error {
		for _, p := range r.fleet.replicas {
			r.fleet.mu.Lock()
			ready := p.ready
			r.fleet.mu.Unlock()
			if !ready {
				return errors.New(p.ip + " is not")
			}
		}
		s, err := r.status()
		if err == nil && !slices.ContainsFunc(s.Replicas.Others, func(o api.Replica) bool {
			return o.State == api.ReplicaLive
		}) {
			err = fmt.Errorf("the other replicas are %+v", s.Replicas.Others)
		}
		return err
	})
}

// changes has a new route answer, and says how long that takes.
func (r *rig) changes(after string) {
	r.t.Helper()
	begin := time.Now()
	r.route(after, r.gateway.pool("llama", 1))
	r.answers(after)
	r.t.Logf("with one of two replicas %s, a new route answers after %s", after,
		time.Since(begin).Round(100*time.Millisecond))
	r.removeRoute(after)
}
