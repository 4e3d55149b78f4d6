package testbed

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"steelyard/e2e/rig/modelsim"
	"steelyard/e2e/rig/proc"
	"steelyard/e2e/rig/proc/proctest"
)

// Limit bounds the wait for a condition. It is generous: tests that promise a time measure it themselves.
const Limit = 30 * time.Second

// A Plan describes a fleet. Tests start the servers themselves, because they differ in them most.
type Plan struct {
	Servers []*modelsim.Server
	// Cluster is the YAML of the cluster below its name and engine: endpoints are
	// added unless it names some.
	Cluster string
	// Top is YAML of further sections, such as redis; More is YAML of further
	// clusters.
	Top, More string
	Envoys    int      // 1 when 0
	Bootstrap []string // more arguments of steelyard bootstrap
	Edits     []Edit   // of its output
	// Own is Steelyard's xDS address, a free one when empty. XDS is that in the Envoys' configuration, Own when empty.
	Own, XDS string
	// Listen is more YAML of the xds section, in flow style: ", key: value"; Asked is that of the admin section.
	Listen, Asked string
	// OpenFiles are the limits of open files that Steelyard starts with, as sh's ulimit takes them: "-n 1024".
	OpenFiles string
	Args      []string // more arguments of steelyard serve
	Binary    string   // another steelyard than that of this checkout
	Stderr    *os.File // of steelyard serve, instead of its log
}

// A Fleet is a control plane, its Envoys and the model servers behind them.
type Fleet struct {
	T       testing.TB
	Plan    Plan
	Dir     string
	XDS     string // host:port of Steelyard
	Admin   string
	Config  string // path of the file
	Control *proc.Process
	Envoys  []*proc.Envoy
	Pickers []*PickerProcess // of the Envoys, where they hold the requests
	URLs    []string         // of the Envoys' listeners
}

// Cluster is the cluster that every fleet has, and SecondCluster another one that an Envoy may have.
const (
	Cluster       = "llama"
	SecondCluster = "second"
)

// Wide servers have a slot for each request of these tests.
var Wide = modelsim.Options{Slots: 1000}

// Pool starts n wide servers.
func Pool(t testing.TB, n int) []*modelsim.Server { return Servers(t, Same(n, Wide)...) }

// Servers starts simulated model servers that are closed at the test's end.
func Servers(t testing.TB, options ...modelsim.Options) []*modelsim.Server {
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

// Same is n times the same options.
func Same(n int, o modelsim.Options) []modelsim.Options {
	out := make([]modelsim.Options, n)
	for i := range out {
		out[i] = o
	}
	return out
}

// Start runs the whole fleet and returns when every Envoy has endpoints.
func Start(t *testing.T, p Plan) *Fleet {
	t.Helper()
	f := WithoutEnvoys(t, p)
	for i := range max(1, p.Envoys) {
		f.StartEnvoy(i)
	}
	return f
}

// WithoutEnvoys starts a control plane without Envoys.
func WithoutEnvoys(t *testing.T, p Plan) *Fleet {
	t.Helper()
	ports, err := proc.FreeAddresses(2)
	if err != nil {
		t.Fatal(err)
	}
	f := &Fleet{T: t, Plan: p, Dir: proctest.Dir(t), XDS: cmp.Or(p.Own, ports[0]), Admin: ports[1]}
	f.Config = filepath.Join(f.Dir, "steelyard.yaml")
	f.WriteConfig(p.Cluster)
	f.Control = f.StartControl("steelyard")
	return f
}

// WriteConfig replaces the configuration file by a rename.
func (f *Fleet) WriteConfig(body string) {
	f.T.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "xds: {listen: %s%s}\nadmin: {listen: %s%s}\n%s\nclusters:\n- name: %s\n",
		f.XDS, f.Plan.Listen, f.Admin, f.Plan.Asked, f.Plan.Top, Cluster)
	if !strings.Contains(body, "engine:") {
		b.WriteString("  engine: vllm\n")
	}
	if !strings.Contains(body, "endpoints:") {
		b.WriteString("  endpoints:\n    static:\n")
		for _, s := range f.Plan.Servers {
			fmt.Fprintf(&b, "    - {address: %s}\n", s.Address())
		}
	}
	for line := range strings.Lines(strings.TrimSpace(body)) {
		b.WriteString("  " + line)
	}
	f.Write(f.Config, b.String()+"\n"+f.Plan.More)
}

// Write replaces a file by a rename, as an operator's tools do.
func (f *Fleet) Write(path, text string) {
	f.T.Helper()
	fresh := path + ".new"
	if err := os.WriteFile(fresh, []byte(text), 0o600); err != nil {
		f.T.Fatal(err)
	}
	if err := os.Rename(fresh, path); err != nil {
		f.T.Fatal(err)
	}
}

func (f *Fleet) StartControl(name string) *proc.Process {
	f.T.Helper()
	c := proc.SteelyardConfig{Config: f.Config, Admin: f.Admin, Dir: f.Dir, Name: name, Args: f.Plan.Args,
		Path: f.Plan.Binary, Stderr: f.Plan.Stderr}
	if f.Plan.OpenFiles != "" {
		c.Path = f.limited()
	}
	return proctest.Steelyard(f.T, c)
}

// limited writes a script that runs Steelyard with other limits of open files.
func (f *Fleet) limited() string {
	f.T.Helper()
	binary, err := proc.BuildSteelyard()
	if err != nil {
		f.T.Fatal(err)
	}
	path := filepath.Join(f.Dir, "limited.sh")
	script := "#!/bin/sh\nulimit " + f.Plan.OpenFiles + "\nexec '" + binary + "' \"$@\"\n"
	if err := os.WriteFile(path, []byte(script), 0o700); err != nil {
		f.T.Fatal(err)
	}
	return path
}

// StartEnvoy runs an Envoy with the output of steelyard bootstrap.
func (f *Fleet) StartEnvoy(i int) {
	f.T.Helper()
	xds := f.XDS
	if f.Plan.XDS != "" {
		xds = f.Plan.XDS
	}
	name := fmt.Sprintf("envoy-%d", i)
	args := append([]string{"bootstrap", "--cluster", Cluster, "--xds", xds, "--node-id", name,
		"--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"}, f.Plan.Bootstrap...)
	text := Edited(f.T, Run(f.T, args...), f.Plan.Edits)
	e := proctest.Envoy(f.T, proc.EnvoyConfig{Bootstrap: text, Dir: f.Dir, Name: name})
	f.Envoys = append(f.Envoys, e)
	listener, err := e.Listener(f.T.Context(), "ingress")
	if err != nil {
		f.T.Fatal(err)
	}
	f.URLs = append(f.URLs, "http://"+listener+"/")
	f.Eventually("Envoy has endpoints", func() error {
		if hosts := f.Hosts(i); len(hosts) == 0 {
			return fmt.Errorf("no hosts in %s", name)
		}
		return nil
	})
}

// Run runs the steelyard binary and returns its output.
func Run(t testing.TB, args ...string) []byte {
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

// Eventually waits for a condition: check returns why it does not hold yet.
func (f *Fleet) Eventually(what string, check func() error) {
	f.T.Helper()
	var err error
	for deadline := time.Now().Add(Limit); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if err = check(); err == nil {
			return
		}
	}
	f.T.Fatalf("not within %v: %s: %v", Limit, what, err)
}
