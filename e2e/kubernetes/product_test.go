package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"steelyard/internal/api"

	discoveryv1 "k8s.io/api/discovery/v1"

	"steelyard/e2e/rig/load"
	"steelyard/e2e/rig/modelsim"
	"steelyard/e2e/rig/proc"
	"steelyard/e2e/rig/proc/proctest"
)

// A product is `steelyard serve`, and an Envoy once there is one.
type product struct {
	t          testing.TB
	dir        string
	xds, admin string
	control    *proc.Process
	envoy      *proc.Envoy
	url        string // of the Envoy's listener
}

// serve runs the product with the rights of the room's service account; cluster is YAML of the cluster, acting of what
// the section kubernetes has besides.
func (r room) serve(cluster string, acting ...string) *product {
	r.t.Helper()
	binary, err := proc.BuildSteelyard()
	r.must(err)
	ports, err := proc.FreeAddresses(2)
	r.must(err)
	p := &product{t: r.t, dir: proctest.Dir(r.t), xds: ports[0], admin: ports[1]}
	r.must(apiServer(r.t).WriteKubeconfig(filepath.Join(p.dir, "kubeconfig"), "", r.tokenFile(apiServer(r.t))))
	config := fmt.Sprintf("xds: {listen: %s}\nadmin: {listen: %s}\nkubernetes: {%s}\n"+
		"clusters:\n- name: llama\n  engine: vllm\n  %s\n", p.xds, p.admin,
		strings.Join(append(acting, "kubeconfig: kubeconfig"), ", "), cluster)
	path := filepath.Join(p.dir, "steelyard.yaml")
	r.must(os.WriteFile(path, []byte(config), 0o600))
	if out, err := exec.CommandContext(r.t.Context(), binary, "check", "--config", path).CombinedOutput(); err != nil {
		r.t.Fatalf("steelyard check: %v\n%s", err, out)
	}
	p.control = proctest.Steelyard(r.t, proc.SteelyardConfig{Config: path, Admin: p.admin, Dir: p.dir, Path: binary})
	return p
}

// startEnvoy runs an Envoy with the output of steelyard bootstrap.
func (p *product) startEnvoy() {
	p.t.Helper()
	binary, err := proc.BuildSteelyard()
	if err != nil {
		p.t.Fatal(err)
	}
	bootstrap, err := exec.CommandContext(p.t.Context(), binary, "bootstrap", "--cluster", "llama", "--xds", p.xds,
		"--node-id", "envoy", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0").Output()
	if err != nil {
		p.t.Fatal(err)
	}
	p.envoy = proctest.Envoy(p.t, proc.EnvoyConfig{Bootstrap: bootstrap, Dir: p.dir, Name: "envoy"})
	listener, err := p.envoy.Listener(p.t.Context(), "ingress")
	if err != nil {
		p.t.Fatal(err)
	}
	p.url = "http://" + listener + "/"
}

// view returns the cluster as the admin API shows it.
func (p *product) view() (v api.Cluster, err error) {
	resp, err := http.Get("http://" + p.admin + "/api/v1/clusters/llama")
	if err != nil {
		return v, err
	}
	defer resp.Body.Close()
	return v, json.NewDecoder(resp.Body).Decode(&v)
}

// balances waits until the Envoy balances over these addresses.
func (p *product) balances(want ...string) {
	p.t.Helper()
	slices.Sort(want)
	eventually(p.t, fmt.Sprintf("Envoy has %v", want), func() error {
		clusters, err := p.envoy.Clusters(p.t.Context())
		var have []string
		for _, h := range clusters["llama"] {
			have = append(have, h.Address)
		}
		slices.Sort(have)
		if err == nil && !slices.Equal(have, want) {
			err = fmt.Errorf("it has %v", have)
		}
		return err
	})
}

// knowsPodsByName: a command takes the name of Pod a, at an address, and a series has where it runs.
func (p *product) knowsPodsByName(r room, address string) {
	p.t.Helper()
	out := p.steelyard("explain", "llama", "a")
	for _, want := range []string{"a (" + address + ") of llama at ", "in namespace " + r.name + " on node node-1"} {
		if !strings.Contains(out, want) {
			p.t.Errorf("explain has no %q:\n%s", want, out)
		}
	}
	resp, err := http.Get("http://" + p.admin + "/metrics")
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	series := fmt.Sprintf("steelyard_endpoint_info{endpoint=%q,envoy_cluster_name=\"llama\",model=\"\",namespace=%q,"+
		"node=\"node-1\",pod=\"a\",role=\"\"} 1\n", address, r.name)
	if err != nil || !strings.Contains(string(page), series) {
		p.t.Errorf("/metrics has no %s (%v)", series, err)
	}
}

// TestSteelyardFollowsPodsWithoutAFailedRequest: with a service account's rights, from the Pods to a real Envoy. A Pod
// that terminates gets no new requests; one that gets its IP begins again.
func TestSteelyardFollowsPodsWithoutAFailedRequest(t *testing.T) {
	s := apiServer(t)
	installPools(t, s)
	r := newRoom(t, client(t, s))
	r.account()
	r.grant(r.name, readPools, readPods)
	servers, port := sameport(t, modelsim.Options{Slots: 64}, "127.0.0.2", "127.0.0.3", "127.0.0.4")
	at := func(i int) string { return servers[i].Address() }
	llama := map[string]string{"app": "llama"}
	write := func(name string, i int) {
		host, _, _ := net.SplitHostPort(at(i))
		r.pod(pod{name: name, ips: []string{host}, labels: llama, node: "node-1",
			annotations: map[string]string{"steelyard.dev/capacity": "64"}})
	}
	write("a", 0)
	write("b", 1)
	r.pool(s, "llama", llama, int64(port))
	p := r.serve(fmt.Sprintf("endpoints: {inferencePool: {name: llama, namespace: %s}}", r.name))
	p.startEnvoy()
	p.balances(at(0), at(1))
	eventually(t, "the capacity is the Pods'", func() error {
		v, err := p.view()
		if err != nil {
			return err
		}
		for _, e := range v.Endpoints {
			if e.Slots.Or(0) != 64 || e.Node != "node-1" || e.Pod == "" {
				return fmt.Errorf("%s has %v slots, Pod %q, node %q", e.Address, e.Slots.Or(0), e.Pod, e.Node)
			}
		}
		return nil
	})
	p.knowsPodsByName(r, at(0))

	ctx, stop := context.WithCancel(t.Context())
	done := make(chan load.Result, 1)
	go func() {
		result, _ := load.Run(ctx, load.Plan{Targets: []string{p.url}, Rate: 100, Duration: time.Hour, Seed: 1,
			Work: load.Work{Mean: 20 * time.Millisecond}}) // ends because it is stopped
		done <- result
	}()
	write("c", 2)
	p.balances(at(0), at(1), at(2))
	r.terminate("a")
	p.balances(at(1), at(2))
	v, err := p.view()
	if err != nil || len(v.Terminating) != 1 || v.Terminating[0].Address != at(0) || v.Terminating[0].Pod != "a" ||
		v.Counts.Terminating != 1 || v.Counts.Total != 2 {
		t.Errorf("terminating are %+v of %+v (%v), want a", v.Terminating, v.Counts, err)
	}
	// Requests that Envoy had chosen the server for may be on their way for a moment.
	eventually(t, "the terminating server is idle", func() error {
		before := servers[0].Served()
		time.Sleep(200 * time.Millisecond)
		if got := servers[0].Served() - before; got != 0 {
			return fmt.Errorf("%d requests in 200 ms", got)
		}
		return nil
	})
	r.remove("a")
	write("again", 0)
	p.balances(at(0), at(1), at(2))
	v, err = p.view()
	i := slices.IndexFunc(v.Endpoints, func(e api.Endpoint) bool { return e.Address == at(0) })
	if err != nil || i < 0 || v.Endpoints[i].Reason != "blackout" && v.Endpoints[i].Reason != "ramp" {
		t.Errorf("the Pod at an old address is not new: %v", err)
	}
	stop()
	result := <-done
	for _, s := range result.Samples {
		if s.Failed() && !errors.Is(s.Err, context.Canceled) { // those that were open at the stop
			t.Errorf("a request failed with status %d: %v", s.Status, s.Err)
		}
	}
	if len(result.Samples) < 20 {
		t.Errorf("%d requests were sent, which shows nothing", len(result.Samples))
	}
}

// sameport starts a model server on each of these addresses, on the same port.
func sameport(t *testing.T, o modelsim.Options, hosts ...string) ([]*modelsim.Server, int) {
	t.Helper()
	for range 20 {
		free, err := proc.FreeAddress()
		if err != nil {
			t.Fatal(err)
		}
		port := free[strings.LastIndex(free, ":")+1:]
		var servers []*modelsim.Server
		for _, host := range hosts {
			o.Address = net.JoinHostPort(host, port)
			s, err := modelsim.Start(o)
			if err != nil {
				break
			}
			servers = append(servers, s)
		}
		if len(servers) == len(hosts) {
			for _, s := range servers {
				t.Cleanup(func() { s.Close() })
			}
			number, _ := strconv.Atoi(port)
			return servers, number
		}
		for _, s := range servers {
			s.Close()
		}
	}
	t.Fatal("no port is free on all of ", hosts)
	return nil, 0
}

// TestAPortThatIsAddedToAServiceTakesNoEndpoints: which one is meant is unknown then, but Envoys keep those they have.
func TestAPortThatIsAddedToAServiceTakesNoEndpoints(t *testing.T) {
	r := newRoom(t, client(t, apiServer(t)))
	r.account()
	r.grant(r.name, readSlices, readPods)
	// The API server refuses a loopback address in a slice. Nothing answers at this one, of a network for
	// documentation.
	only := entry{address: "192.0.2.1"}
	two := slices.Concat(httpPort,
		[]discoveryv1.EndpointPort{{Name: new("metrics"), Port: new(int32(9400))}})
	r.slice("llama", "llama", httpPort, only)
	p := r.serve(fmt.Sprintf("scrape: {disabled: true}\n  "+
		"endpoints: {kubernetes: {service: llama, namespace: %s}}", r.name))
	p.startEnvoy()
	p.balances("192.0.2.1:8000")
	r.slice("llama", "llama", two, only)
	eventually(t, "the source names the ports", func() error {
		v, err := p.view()
		if err != nil {
			return err
		}
		for _, s := range v.Sources {
			if strings.Contains(s.LastError, "write the one to use as the value of port") && v.Counts.Total == 1 {
				return nil
			}
		}
		return fmt.Errorf("%d endpoints, sources %+v", v.Counts.Total, v.Sources)
	})
	// An assignment without the endpoint would have come before or with the next one.
	before, err := p.view()
	r.must(err)
	eventually(t, "there is another push", func() error {
		if v, err := p.view(); err != nil || v.Pushes == before.Pushes {
			return fmt.Errorf("%d pushes (%w)", v.Pushes, err)
		}
		return nil
	})
	p.balances("192.0.2.1:8000")
}
