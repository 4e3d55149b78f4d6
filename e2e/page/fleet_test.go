package page

import (
	"bytes"
	"context"
	"encoding/json"
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
	"steelyard/sim/engine"
)

// A fleet is a control plane, its Envoys and the model servers behind them: an LLM whose engines count tokens, and
// embeddings by slots.
type fleet struct {
	t       testing.TB
	dir     string
	xds     string // host:port of Steelyard
	admin   string
	control *proc.Process
	llama   []*modelsim.Server
	embed   []*modelsim.Server
	envoys  []*proc.Envoy
	urls    map[string][]string // of the Envoys' listeners, by cluster
	warmUp  string              // of each cluster, where it is not the default

	counters *counters // of the servers of embed
}

// hostileNode is a node id that a page must not read as HTML.
const hostileNode = "<img src=x onerror=alert(1)>"

// newFleet starts everything but the traffic.
func newFleet(t testing.TB) *fleet {
	t.Helper()
	f := &fleet{t: t, dir: proctest.Dir(t), urls: map[string][]string{}}
	params := engine.Defaults()
	for i := range 5 {
		p := params
		if i == 4 {
			p.PrefillRate, p.Iteration = p.PrefillRate/2, 2*p.Iteration
		}
		f.llama = append(f.llama, server(t, modelsim.Options{Batching: &p, Seed: uint64(i)}))
	}
	for i := range 3 {
		f.embed = append(f.embed, server(t, modelsim.Options{Slots: 4, Seed: uint64(10 + i)}))
	}
	f.xds, f.admin = port(t), port(t)
	f.writeTokens()
	f.writeConfig("")
	f.start("steelyard")
	f.envoy("gw-1", "llama")
	f.envoy("gw-2", "llama")
	f.envoy(hostileNode, "embed")
	return f
}

func server(t testing.TB, o modelsim.Options) *modelsim.Server {
	t.Helper()
	s, err := modelsim.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func port(t testing.TB) string {
	t.Helper()
	p, err := proc.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// writeConfig replaces the configuration; more is YAML of further sections.
func (f *fleet) writeConfig(more string) {
	f.t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b,
		"xds: {listen: %s}\nadmin: {listen: %s, tokens_file: tokens, anonymous_view: true}\n%s\nclusters:\n",
		f.xds, f.admin, more)
	list := func(name string, servers []*modelsim.Server) {
		fmt.Fprintf(&b, "- name: %s\n  engine: vllm\n", name)
		if f.warmUp != "" {
			fmt.Fprintf(&b, "  warm_up: %s\n", f.warmUp)
		}
		fmt.Fprintf(&b, "  endpoints:\n    static:\n")
		for i, s := range servers {
			fmt.Fprintf(&b, "    - {address: %s, zone: %c}\n", s.Address(), 'a'+i%2)
		}
	}
	list("llama", f.llama)
	list("embed", f.embed)
	f.write("steelyard.yaml", b.String())
}

func (f *fleet) write(name, text string) {
	f.t.Helper()
	path := filepath.Join(f.dir, name)
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		f.t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		f.t.Fatal(err)
	}
}

// start runs Steelyard.
func (f *fleet) start(name string) {
	f.t.Helper()
	f.control = proctest.Steelyard(f.t, proc.SteelyardConfig{
		Path: build(f.t), Config: filepath.Join(f.dir, "steelyard.yaml"), Admin: f.admin, Dir: f.dir, Name: name,
	})
}

// build is steelyard of this checkout.
func build(t testing.TB) string {
	t.Helper()
	binary, err := proc.BuildSteelyard()
	if err != nil {
		t.Fatal(err)
	}
	return binary
}

// envoy runs an Envoy for one cluster; more are options of steelyard bootstrap.
func (f *fleet) envoy(node, cluster string, more ...string) {
	f.t.Helper()
	binary := build(f.t)
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(f.t.Context(), binary, append([]string{"bootstrap", "--cluster", cluster, "--xds", f.xds,
		"--node-id", "NODE", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"}, more...)...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		f.t.Fatalf("steelyard bootstrap: %v\n%s", err, errs.String())
	}
	text := strings.ReplaceAll(out.String(), "NODE", node) // bootstrap refuses a hostile one
	e := proctest.Envoy(f.t, proc.EnvoyConfig{Bootstrap: []byte(text), Dir: f.dir,
		Name: fmt.Sprintf("envoy-%d", len(f.envoys))})
	f.envoys = append(f.envoys, e)
	listener, err := e.Listener(f.t.Context(), "ingress")
	if err != nil {
		f.t.Fatal(err)
	}
	f.urls[cluster] = append(f.urls[cluster], "http://"+listener+"/")
}

// traffic runs until the end of the test, or until the function that it returns is called.
func (f *fleet) traffic() func() {
	f.t.Helper()
	ctx, cancel := context.WithCancel(f.t.Context())
	done := make(chan struct{}, 2)
	send := func(p load.Plan) {
		_, _ = load.Run(ctx, p) // it is cancelled, and servers are stopped under it
		done <- struct{}{}
	}
	const rate, minutes = 12, 20 // requests per second
	var completions []load.Completion
	for i := range rate * minutes * 60 {
		completions = append(completions, load.Completion{
			At: time.Duration(i) * time.Second / rate, Prompt: 600 + 97*(i%11), Output: 40 + 7*(i%13),
		})
	}
	go send(load.Plan{Targets: prefixed(f.urls["llama"], "v1/completions"), Completions: completions, Seed: 1})
	go send(load.Plan{Targets: f.urls["embed"], Rate: 40, Duration: minutes * time.Minute, Seed: 2,
		Work: load.Work{Mean: 120 * time.Millisecond}})
	stop := func() {
		cancel()
		<-done
		<-done
	}
	f.t.Cleanup(stop)
	return stop
}

func prefixed(urls []string, path string) (out []string) {
	for _, u := range urls {
		out = append(out, u+path)
	}
	return out
}

// url returns an address of the page.
func (f *fleet) url(hash string) string { return "http://" + f.admin + "/" + hash }

// get asks the admin API.
func (f *fleet) get(path string, into any) {
	f.t.Helper()
	resp, err := http.Get("http://" + f.admin + path)
	if err != nil {
		f.t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		f.t.Fatalf("%s answers %s", path, resp.Status)
	}
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		f.t.Fatalf("%s: %v", path, err)
	}
}
