package gateways

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"

	"steelyard/e2e/rig/certs"
	"steelyard/e2e/rig/kube"
	"steelyard/e2e/rig/modelsim"
	"steelyard/e2e/rig/proc"
	"steelyard/e2e/rig/proc/proctest"
	"steelyard/internal/api"
)

// Fixed addresses, in the network of the tests: those of Steelyard's are its Service's.
const (
	xdsPort        = "28000"
	hooksPort      = "28001"
	adminPort      = "28002"
	xdsAddress     = "127.0.0.1:" + xdsPort
	hooksAddress   = "127.0.0.1:" + hooksPort
	adminAddress   = "127.0.0.1:" + adminPort
	gatewayAddress = "http://127.0.0.1:8888"  // the Gateway's listener
	secureAddress  = "https://127.0.0.1:8999" // one that it has at times
	envoyAdmin     = 29000
	limit          = 60 * time.Second // of the wait for a condition
	token          = "0123456789abcdef0123456789abcdef0123456789abcdef"
)

// A gateway is a product under test. It has one Gateway, "eg" in the namespace models, that listens at gatewayAddress.
type gateway interface {
	title() string // with its version
	definitions() []definitions
	start(r *rig)                        // installs it, and runs its control plane and the Gateway's Envoy
	runPlane(r *rig)                     // runs its control plane
	runProxy(r *rig)                     // runs the Gateway's Envoy
	pool(name string, weight int) string // a backend of a route: how one names a pool
	route(r *rig, name, backends string) // writes the route of a host and of all paths below one
	routeKind() (version, kind string)
	serve(r *rig, pools ...string) // does what an operator does so that these pools, and no others, are served
	leave(r *rig)                  // does what an operator does so that none is
	leaves(name string) bool       // whether a case does not concern it
}

// definitions are CustomResourceDefinitions of a Go module that a folder here requires.
type definitions struct {
	folder, module string
	patterns       []string
}

// A rig is a gateway with its API server, and Steelyard.
type rig struct {
	t       *testing.T // the case that runs
	whole   *testing.T // all of them
	dir     string
	server  *kube.Server
	dynamic dynamic.Interface
	mapper  meta.ResettableRESTMapper

	binary     string      // steelyard
	authority  *certs.Pair // of the HTTPS listener's certificate
	fleet      *fleet
	control    *proc.Process // its first replica
	gateway    gateway
	plane      *proc.Process               // the gateway's control plane
	proxy      *proc.Process               // its Envoy
	proxyAdmin string                      // HOST:PORT
	models     map[string]*modelsim.Server // by IP
	apps       map[string][]string         // the addresses of their Pods
	port       string                      // of the Pods of pools
}

func newRig(t *testing.T, g gateway) *rig {
	t.Helper()
	r := &rig{t: t, whole: t, dir: proctest.Dir(t), gateway: g, models: map[string]*modelsim.Server{},
		apps: map[string][]string{}, port: "8000", authority: certs.New("authority", nil)}
	var err error
	r.must(os.Mkdir(r.path("api"), 0o755))
	r.server, err = kube.Start(t.Context(), kube.Options{Dir: r.path("api"),
		APIServerArgs: []string{"--advertise-address", servers[0]}}) // there is no default route to find one by
	r.must(err)
	t.Cleanup(func() { _ = r.server.Stop() })
	r.dynamic, err = r.server.Dynamic()
	r.must(err)
	client, err := discovery.NewDiscoveryClientForConfig(r.server.Admin())
	r.must(err)
	r.mapper = restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client))
	r.must(r.server.WriteKubeconfig(r.path("kubeconfig"), "", ""))
	r.install()
	r.binary, err = proc.BuildSteelyard()
	r.must(err)
	for i, ip := range servers {
		r.model(ip, []float64{1, 1, 0.5}[i%3])
	}
	r.apply(`
apiVersion: v1
kind: Namespace
metadata: {name: models}
---
apiVersion: v1
kind: Namespace
metadata: {name: team}
`)
	r.fleet = r.openFleet()
	r.serve()
	g.start(r)
	return r
}

func (r *rig) path(name string) string { return filepath.Join(r.dir, name) }

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// eventually waits for a condition.
func (r *rig) eventually(what string, check func() error) {
	r.t.Helper()
	var err error
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if err = check(); err == nil {
			return
		}
	}
	r.t.Fatalf("%s: not within %s: %v", what, limit, err)
}

// model starts a model server on the port of all Pods.
func (r *rig) model(ip string, speed float64) {
	r.t.Helper()
	s, err := modelsim.Start(modelsim.Options{Address: ip + ":8000", Slots: 8, Speed: speed})
	r.must(err)
	r.models[ip] = s
	r.whole.Cleanup(func() { _ = s.Close() })
}

// files returns those of the definitions that the gateway needs.
func (r *rig) files() (files []string) {
	r.t.Helper()
	for _, d := range append(r.gateway.definitions(), definitions{"../kubernetes/inferencepool",
		"sigs.k8s.io/gateway-api-inference-extension",
		[]string{"config/crd/bases/inference.networking.k8s.io_inferencepools.yaml"}}) {
		for _, p := range d.patterns {
			found, err := filepath.Glob(filepath.Join(r.moduleDir(d.folder, d.module), p))
			r.must(err)
			if len(found) == 0 {
				r.t.Fatalf("%s has no %s", d.module, p)
			}
			files = append(files, found...)
		}
	}
	return files
}

// moduleDir is the folder of a Go module that a folder here requires.
func (r *rig) moduleDir(folder, module string) string {
	r.t.Helper()
	cmd := exec.CommandContext(r.t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", module)
	cmd.Dir = folder
	out, err := cmd.Output()
	r.must(err)
	return strings.TrimSpace(string(out))
}

// install installs the definitions and waits until the API serves them.
func (r *rig) install() {
	r.t.Helper()
	var kinds []schema.GroupKind
	for _, file := range r.files() {
		text, err := os.ReadFile(file)
		r.must(err)
		for document := range strings.SplitSeq(string(text), "\n---\n") {
			if o := parse(r.t, document); o != nil && o.GetKind() == "CustomResourceDefinition" {
				r.must(r.write(*o))
				group, _, _ := unstructured.NestedString(o.Object, "spec", "group")
				kind, _, _ := unstructured.NestedString(o.Object, "spec", "names", "kind")
				kinds = append(kinds, schema.GroupKind{Group: group, Kind: kind})
			}
		}
	}
	r.eventually("the definitions are served", func() error {
		r.mapper.Reset()
		for _, k := range kinds {
			if _, err := r.mapper.RESTMapping(k); err != nil {
				return err
			}
		}
		return nil
	})
}

// asker asks once, because a replica that hangs does not answer.
var asker = &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

// status returns what Steelyard reports about itself.
func (r *rig) status() (s api.Status, err error) {
	resp, err := asker.Get("http://" + adminAddress + "/api/v1/status")
	if err != nil {
		return s, err
	}
	defer resp.Body.Close()
	return s, json.NewDecoder(resp.Body).Decode(&s)
}

// hasCluster reports whether the Gateway's Envoy has a cluster with members.
func (r *rig) hasCluster(name string) (bool, error) {
	text, err := r.ask("/clusters")
	return strings.Contains(text, "\n"+name+"::"), err
}

// ask returns a page of the admin listener of the Gateway's Envoy.
func (r *rig) ask(path string) (string, error) {
	resp, err := http.Get("http://" + r.proxyAdmin + path)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return string(text), err
}

func (r *rig) steelyard(args ...string) {
	r.t.Helper()
	cmd := exec.CommandContext(r.t.Context(), r.binary, append(args, "--admin", "http://"+adminAddress,
		"--token-file", r.path("token"))...)
	if out, err := cmd.CombinedOutput(); err != nil {
		r.t.Fatalf("steelyard %v: %v\n%s", args, err, out)
	}
}
