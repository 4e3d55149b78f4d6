package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"steelyard/e2e/rig/load"
	"steelyard/e2e/rig/modelsim"
	"steelyard/e2e/rig/proc"
	"steelyard/e2e/rig/proc/proctest"
	"steelyard/internal/api"
)

// limit bounds the wait for a condition. It is generous: tests that promise a time measure it themselves.
const limit = 30 * time.Second

// A plan describes a fleet. Tests start the servers themselves, because they differ in them most.
type plan struct {
	servers []*modelsim.Server
	// cluster is the YAML of the cluster below its name and engine: endpoints are
	// added unless it names some.
	cluster string
	// top is YAML of further sections, such as redis; more is YAML of further clusters.
	top, more string
	envoys    int      // 1 when 0
	bootstrap []string // more arguments of steelyard bootstrap
	edits     []edit   // of its output
	// xds is the xDS address in the Envoys' configuration, Steelyard's own when empty.
	xds string
	// listen is more YAML of the xds section, in flow style: ", key: value"; asked is that of the admin section.
	listen, asked string
	// openFiles are the limits of open files that Steelyard starts with, as sh's ulimit takes them: "-n 1024".
	openFiles string
	args      []string // more arguments of steelyard serve
	binary    string   // another steelyard than that of this checkout
	stderr    *os.File // of steelyard serve, instead of its log
}

// A fleet is a control plane, its Envoys and the model servers behind them.
type fleet struct {
	t       testing.TB
	plan    plan
	dir     string
	xds     string // host:port of Steelyard
	admin   string
	config  string // path of the file
	control *proc.Process
	envoys  []*proc.Envoy
	pickers []*pickerProcess // of the Envoys, where they hold the requests
	urls    []string         // of the Envoys' listeners
}

const cluster = "llama"

// silent are arguments of bootstrap for an Envoy that does not report its requests: its reports would take precedence
// over Redis and scrapes.
var silent = []string{"--upstream-log=false", "--load-reports=false"}

// servers starts simulated model servers that are closed at the test's end.
func servers(t testing.TB, options ...modelsim.Options) []*modelsim.Server {
	t.Helper()
	out := make([]*modelsim.Server, len(options))
	for i, o := range options {
		s, err := modelsim.Start(o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		out[i] = s
	}
	return out
}

// same is n times the same options.
func same(n int, o modelsim.Options) []modelsim.Options {
	out := make([]modelsim.Options, n)
	for i := range out {
		out[i] = o
	}
	return out
}

// start runs the whole fleet and returns when every Envoy has endpoints.
func start(t *testing.T, p plan) *fleet {
	t.Helper()
	f := withoutEnvoys(t, p)
	for i := range max(1, p.envoys) {
		f.startEnvoy(i)
	}
	return f
}

// writeConfig replaces the configuration file by a rename.
func (f *fleet) writeConfig(body string) {
	f.t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "xds: {listen: %s%s}\nadmin: {listen: %s%s}\n%s\nclusters:\n- name: %s\n",
		f.xds, f.plan.listen, f.admin, f.plan.asked, f.plan.top, cluster)
	if !strings.Contains(body, "engine:") {
		b.WriteString("  engine: vllm\n")
	}
	if !strings.Contains(body, "endpoints:") {
		b.WriteString("  endpoints:\n    static:\n")
		for _, s := range f.plan.servers {
			fmt.Fprintf(&b, "    - {address: %s}\n", s.Address())
		}
	}
	for line := range strings.Lines(strings.TrimSpace(body)) {
		b.WriteString("  " + line)
	}
	f.write(f.config, b.String()+"\n"+f.plan.more)
}

// write replaces a file by a rename, as an operator's tools do.
func (f *fleet) write(path, text string) {
	f.t.Helper()
	fresh := path + ".new"
	if err := os.WriteFile(fresh, []byte(text), 0o600); err != nil {
		f.t.Fatal(err)
	}
	if err := os.Rename(fresh, path); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fleet) startControl(name string) *proc.Process {
	f.t.Helper()
	c := proc.SteelyardConfig{Config: f.config, Admin: f.admin, Dir: f.dir, Name: name, Args: f.plan.args,
		Path: f.plan.binary, Stderr: f.plan.stderr}
	if f.plan.openFiles != "" {
		c.Path = f.limited()
	}
	return proctest.Steelyard(f.t, c)
}

// limited writes a script that runs Steelyard with other limits of open files.
func (f *fleet) limited() string {
	f.t.Helper()
	binary, err := proc.BuildSteelyard()
	if err != nil {
		f.t.Fatal(err)
	}
	path := filepath.Join(f.dir, "limited.sh")
	script := "#!/bin/sh\nulimit " + f.plan.openFiles + "\nexec '" + binary + "' \"$@\"\n"
	if err := os.WriteFile(path, []byte(script), 0o700); err != nil {
		f.t.Fatal(err)
	}
	return path
}

// startEnvoy runs an Envoy with the output of steelyard bootstrap.
func (f *fleet) startEnvoy(i int) {
	f.t.Helper()
	xds := f.xds
	if f.plan.xds != "" {
		xds = f.plan.xds
	}
	name := fmt.Sprintf("envoy-%d", i)
	args := append([]string{"bootstrap", "--cluster", cluster, "--xds", xds, "--node-id", name,
		"--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"}, f.plan.bootstrap...)
	text := edited(f.t, run(f.t, args...), f.plan.edits)
	e := proctest.Envoy(f.t, proc.EnvoyConfig{Bootstrap: text, Dir: f.dir, Name: name})
	f.envoys = append(f.envoys, e)
	listener, err := e.Listener(f.t.Context(), "ingress")
	if err != nil {
		f.t.Fatal(err)
	}
	f.urls = append(f.urls, "http://"+listener+"/")
	f.eventually("Envoy has endpoints", func() error {
		if hosts := f.hosts(i); len(hosts) == 0 {
			return fmt.Errorf("no hosts in %s", name)
		}
		return nil
	})
}

// run runs the steelyard binary and returns its output.
func run(t testing.TB, args ...string) []byte {
	t.Helper()
	binary, err := proc.BuildSteelyard()
	if err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(t.Context(), binary, args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("steelyard %s: %v\n%s", strings.Join(args, " "), err, errs.String())
	}
	return out.Bytes()
}

// eventually waits for a condition: check returns why it does not hold yet.
func (f *fleet) eventually(what string, check func() error) {
	f.t.Helper()
	var err error
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if err = check(); err == nil {
			return
		}
	}
	f.t.Fatalf("not within %v: %s: %v", limit, what, err)
}

// hosts returns the endpoints of the weighted cluster as Envoy i has them.
func (f *fleet) hosts(i int) map[string]proc.Host {
	f.t.Helper()
	hosts, err := weighted(f.t.Context(), f.envoys[i])
	if err != nil {
		f.t.Fatal(err)
	}
	return hosts
}

// weighted returns the endpoints of an Envoy's weighted cluster, by address.
func weighted(ctx context.Context, e *proc.Envoy) (map[string]proc.Host, error) {
	clusters, err := e.Clusters(ctx)
	out := make(map[string]proc.Host)
	for _, h := range clusters[cluster] {
		out[h.Address] = h
	}
	return out, err
}

// shares returns the weights that Envoy i balances by, as parts of their sum.
func (f *fleet) shares(i int) map[string]float64 {
	f.t.Helper()
	hosts := f.hosts(i)
	var sum float64
	for _, h := range hosts {
		sum += float64(h.Weight)
	}
	out := make(map[string]float64, len(hosts))
	for a, h := range hosts {
		out[a] = float64(h.Weight) / sum
	}
	return out
}

// get asks the admin API.
func (f *fleet) get(path string, into any) error {
	resp, err := http.Get("http://" + f.admin + path)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", path, resp.Status)
	}
	return json.NewDecoder(resp.Body).Decode(into)
}

// view returns the cluster as the admin API shows it.
func (f *fleet) view() (api.Cluster, error) { return f.viewOf(cluster) }

func (f *fleet) viewOf(name string) (v api.Cluster, err error) {
	err = f.get("/api/v1/clusters/"+name, &v)
	return v, err
}

// clients returns the connected Envoys as the admin API shows them.
func (f *fleet) clients() ([]api.Client, error) {
	var answer struct{ Clients []api.Client }
	err := f.get("/api/v1/clients", &answer)
	return answer.Clients, err
}

// endpoint returns one endpoint as the admin API shows it.
func (f *fleet) endpoint(address string) (api.Endpoint, error) {
	v, err := f.view()
	if err != nil {
		return api.Endpoint{}, err
	}
	for _, e := range v.Endpoints {
		if e.Address == address {
			return e, nil
		}
	}
	return api.Endpoint{}, fmt.Errorf("no endpoint %s", address)
}

// traffic is a load that goes on while the test does something.
type traffic struct {
	cancel context.CancelFunc
	done   chan struct{}
	result load.Result
	err    error
}

// send starts the load through all Envoys; stop ends it and returns the outcome.
func (f *fleet) send(p load.Plan) *traffic {
	f.t.Helper()
	p.Targets = f.urls
	if p.Duration == 0 && p.Count == 0 {
		p.Duration = 10 * time.Minute // until stop
	}
	ctx, cancel := context.WithCancel(f.t.Context())
	tr := &traffic{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(tr.done)
		tr.result, tr.err = load.Run(ctx, p)
	}()
	f.t.Cleanup(func() { cancel(); <-tr.done })
	return tr
}

// wait returns the outcome of a load that ends by itself.
func (tr *traffic) wait(t *testing.T) load.Result {
	t.Helper()
	<-tr.done
	if tr.err != nil {
		t.Fatal(tr.err)
	}
	return tr.result
}

// stop ends a load and returns how many requests it sent, and how many of them failed. Requests that are open at this
// moment do not count as failed.
func (tr *traffic) stop(t *testing.T) (requests, failed int) {
	t.Helper()
	tr.cancel()
	<-tr.done
	if tr.err != nil && !errors.Is(tr.err, context.Canceled) {
		t.Fatal(tr.err)
	}
	for _, s := range tr.result.Samples {
		if s.Failed() && !errors.Is(s.Err, context.Canceled) {
			failed++
		}
	}
	return len(tr.result.Samples), failed
}
