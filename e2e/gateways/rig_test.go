package gateways

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/yaml"

	"steelyard/e2e/rig/kube"
	"steelyard/e2e/rig/modelsim"
	"steelyard/e2e/rig/proc"
	"steelyard/e2e/rig/proc/proctest"
	"steelyard/internal/api"
)

// Fixed addresses, in the network of the tests.
const (
	xdsAddress     = "127.0.0.1:28000"
	hooksAddress   = "127.0.0.1:28001"
	adminAddress   = "127.0.0.1:28002"
	gatewayAddress = "http://127.0.0.1:8888" // the Gateway's listener
	envoyAdmin     = 29000
	limit          = 60 * time.Second // of the wait for a condition
	token          = "0123456789abcdef0123456789abcdef0123456789abcdef"
)

// A rig is Envoy Gateway with its API server, one Gateway with one Envoy, and Steelyard.
type rig struct {
	t       *testing.T // the case that runs
	whole   *testing.T // all of them
	dir     string
	server  *kube.Server
	dynamic dynamic.Interface
	mapper  meta.ResettableRESTMapper

	binary  string // steelyard
	control *proc.Process
	eg      *proc.Process
	envoy   *proc.Envoy
	models  map[string]*modelsim.Server // by IP
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, whole: t, dir: proctest.Dir(t), models: map[string]*modelsim.Server{}}
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
	r.serve()
	r.startGateway()
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

// definitions are of Envoy Gateway, the Gateway API and the Inference Extension.
func (r *rig) definitions() (files []string) {
	r.t.Helper()
	for _, source := range []struct {
		folder, module string
		patterns       []string
	}{
		{"../kubernetes/inferencepool", "sigs.k8s.io/gateway-api-inference-extension",
			[]string{"config/crd/bases/inference.networking.k8s.io_inferencepools.yaml"}},
		{"envoygateway", "github.com/envoyproxy/gateway",
			[]string{"charts/gateway-helm/charts/crds/crds/gatewayapi-crds.yaml",
				"charts/gateway-helm/charts/crds/crds/generated/*.yaml"}},
	} {
		cmd := exec.CommandContext(r.t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", source.module)
		cmd.Dir = source.folder
		out, err := cmd.Output()
		r.must(err)
		for _, p := range source.patterns {
			found, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(out)), p))
			r.must(err)
			files = append(files, found...)
		}
	}
	return files
}

// install installs the definitions and waits until the API serves them.
func (r *rig) install() {
	r.t.Helper()
	for _, file := range r.definitions() {
		text, err := os.ReadFile(file)
		r.must(err)
		for document := range strings.SplitSeq(string(text), "\n---\n") {
			if o := parse(r.t, document); o != nil && o.GetKind() == "CustomResourceDefinition" {
				r.must(r.write(*o))
			}
		}
	}
	r.eventually("the definitions are served", func() error {
		r.mapper.Reset()
		for _, k := range []schema.GroupVersionKind{
			{Group: "gateway.networking.k8s.io", Version: "v1", Kind: "HTTPRoute"},
			{Group: "inference.networking.k8s.io", Version: "v1", Kind: "InferencePool"},
			{Group: "gateway.envoyproxy.io", Version: "v1alpha1", Kind: "EnvoyProxy"},
		} {
			if _, err := r.mapper.RESTMapping(k.GroupKind(), k.Version); err != nil {
				return err
			}
		}
		return nil
	})
}

func parse(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
		t.Fatalf("%v in:\n%s", err, text)
	}
	if len(o.Object) == 0 {
		return nil
	}
	return o
}

// client returns a client for the kind of an object.
func (r *rig) client(o unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	kind := o.GroupVersionKind()
	mapping, err := r.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return nil, err
	}
	if mapping.Scope.Name() == meta.RESTScopeNameRoot {
		return r.dynamic.Resource(mapping.Resource), nil
	}
	return r.dynamic.Resource(mapping.Resource).Namespace(o.GetNamespace()), nil
}

// write is kubectl apply --server-side.
func (r *rig) write(o unstructured.Unstructured) error {
	api, err := r.client(o)
	if err != nil {
		return err
	}
	_, err = api.Apply(r.t.Context(), o.GetName(), &o, metav1.ApplyOptions{FieldManager: "test", Force: true})
	return err
}

// apply writes the objects of a text, with a status where they have one.
func (r *rig) apply(text string, args ...any) {
	r.t.Helper()
	for document := range strings.SplitSeq(fmt.Sprintf(text, args...), "\n---\n") {
		o := parse(r.t, document)
		if o == nil {
			continue
		}
		r.must(r.write(*o))
		if _, has := o.Object["status"]; has {
			api, err := r.client(*o)
			r.must(err)
			_, err = api.ApplyStatus(r.t.Context(), o.GetName(), o,
				metav1.ApplyOptions{FieldManager: "test", Force: true})
			r.must(err)
		}
	}
}

func (r *rig) remove(version, kind, name string) {
	r.t.Helper()
	o := unstructured.Unstructured{}
	o.SetAPIVersion(version)
	o.SetKind(kind)
	o.SetNamespace("models")
	api, err := r.client(o)
	r.must(err)
	zero := int64(0)
	r.must(api.Delete(r.t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &zero}))
}

// pods writes the Pods of an app, at these addresses.
func (r *rig) pods(app string, ips ...string) {
	r.t.Helper()
	for _, ip := range ips {
		r.apply(`
apiVersion: v1
kind: Pod
metadata: {name: "%[1]s-%[2]s", namespace: models, labels: {app: "%[1]s"}}
spec: {nodeName: node, containers: [{name: engine, image: engine}]}
status:
  phase: Running
  podIP: "%[3]s"
  podIPs: [{ip: "%[3]s"}]
  conditions: [{type: Ready, status: "True"}]
`, app, strings.ReplaceAll(ip, ".", "-"), ip)
	}
}

func (r *rig) removePods(app string, ips ...string) {
	r.t.Helper()
	for _, ip := range ips {
		r.remove("v1", "Pod", app+"-"+strings.ReplaceAll(ip, ".", "-"))
	}
}

// service writes a Service with endpoints at these addresses.
func (r *rig) service(name string, ips ...string) {
	r.t.Helper()
	r.apply(`
apiVersion: v1
kind: Service
metadata: {name: "%[1]s", namespace: models}
spec: {ports: [{name: http, port: 8000}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: "%[1]s", namespace: models, labels: {kubernetes.io/service-name: "%[1]s"}}
addressType: IPv4
ports: [{name: http, port: 8000, protocol: TCP}]
endpoints: [{addresses: ["%[2]s"], conditions: {ready: true}}]
`, name, strings.Join(ips, `"], conditions: {ready: true}}, {addresses: ["`))
}

// have are the servers of a pool at Steelyard.
func (r *rig) have(pool string) (ips []string, err error) {
	resp, err := http.Get("http://" + adminAddress + "/api/v1/clusters/models." + pool)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var c api.Cluster
	if err := json.NewDecoder(resp.Body).Decode(&c); err != nil {
		return nil, err
	}
	for _, e := range c.Endpoints {
		ip, _, _ := strings.Cut(e.Address, ":")
		ips = append(ips, ip)
	}
	return ips, nil
}

// members reports whether a pool has these servers, and no others; member, whether it has one.
func (r *rig) members(pool string, ips ...string) error {
	have, err := r.have(pool)
	if err == nil && !slices.Equal(have, ips) {
		err = fmt.Errorf("it has %v, want %v", have, ips)
	}
	return err
}

func (r *rig) member(pool, ip string) error {
	have, err := r.have(pool)
	if err == nil && !slices.Contains(have, ip) {
		err = fmt.Errorf("it has %v", have)
	}
	return err
}

// pool writes an InferencePool without a picker.
func (r *rig) pool(name string) {
	r.t.Helper()
	r.apply(`
apiVersion: inference.networking.k8s.io/v1
kind: InferencePool
metadata: {name: "%[1]s", namespace: models}
spec: {selector: {matchLabels: {app: "%[1]s"}}, targetPorts: [{number: 8000}]}
`, name)
}

// parent reports whether the only parent of a pool is the Gateway, with this condition.
func (r *rig) parent(pool, status, reason string) error {
	parents, _, _ := unstructured.NestedSlice(r.get("inference.networking.k8s.io/v1", "InferencePool", "models",
		pool).Object, "status", "parents")
	for _, p := range parents {
		name, _, _ := unstructured.NestedString(p.(map[string]any), "parentRef", "name")
		conditions, _, _ := unstructured.NestedSlice(p.(map[string]any), "conditions")
		c := conditions[0].(map[string]any)
		if len(parents) == 1 && name == "eg" && c["status"] == status && c["reason"] == reason {
			return nil
		}
	}
	return fmt.Errorf("its parents are %v", parents)
}

// ofPool and ofService are backends of a rule.
func ofPool(name string, weight int) string {
	return fmt.Sprintf("{group: inference.networking.k8s.io, kind: InferencePool, name: %s, weight: %d}", name, weight)
}

func ofService(name string, weight int) string {
	return fmt.Sprintf("{name: %s, port: 8000, weight: %d}", name, weight)
}

// route writes the route of all requests below a path.
func (r *rig) route(name string, backends ...string) {
	r.t.Helper()
	r.apply(`
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: "%[1]s", namespace: models}
spec:
  parentRefs: [{name: eg}]
  rules:
  - matches: [{path: {type: PathPrefix, value: "/%[1]s"}}]
    backendRefs: [%[2]s]
`, name, strings.Join(backends, ", "))
}

// serve starts Steelyard.
func (r *rig) serve() {
	r.t.Helper()
	r.must(os.WriteFile(r.path("steelyard.yaml"), fmt.Appendf(nil, `
xds: {listen: "%s"}
admin: {listen: "%s", tokens_file: tokens, anonymous_view: true}
kubernetes: {kubeconfig: kubeconfig}
pools: {namespaces: [models]}
envoy_gateway: {listen: "%s"}
`, xdsAddress, adminAddress, hooksAddress), 0o600))
	r.must(os.WriteFile(r.path("tokens"), []byte("operate test "+token+"\n"), 0o600))
	r.must(os.WriteFile(r.path("token"), []byte(token), 0o600))
	p, err := proc.StartSteelyard(r.t.Context(), proc.SteelyardConfig{Path: r.binary, Config: r.path("steelyard.yaml"),
		Admin: adminAddress, Dir: r.dir})
	r.must(err)
	r.control = p
	r.whole.Cleanup(func() { _ = p.Kill() })
}

// status returns what Steelyard reports about itself.
func (r *rig) status() (s api.Status, err error) {
	resp, err := http.Get("http://" + adminAddress + "/api/v1/status")
	if err != nil {
		return s, err
	}
	defer resp.Body.Close()
	return s, json.NewDecoder(resp.Body).Decode(&s)
}

// values are the shipped settings for Envoy Gateway's chart, for Steelyard's addresses here.
func (r *rig) values() map[string]any {
	r.t.Helper()
	text, err := os.ReadFile("../../manifests/gateways/envoy-gateway-values.yaml")
	r.must(err)
	var values struct {
		Config struct {
			EnvoyGateway map[string]any `json:"envoyGateway"`
		} `json:"config"`
	}
	r.must(yaml.Unmarshal(text, &values))
	moved, err := json.Marshal(values.Config.EnvoyGateway)
	r.must(err)
	var out map[string]any
	for from, to := range map[string]string{
		`"hostname":"steelyard-gateway.steelyard.svc.cluster.local"`: `"hostname":"127.0.0.1"`,
		`"port":18001`:                         `"port":28001`,
		"address: steelyard-xds.steelyard.svc": "address: 127.0.0.1", "port_value: 18000": "port_value: 28000",
	} {
		if !bytes.Contains(moved, []byte(from)) {
			r.t.Fatalf("the settings have no %s: %s", from, moved)
		}
		moved = bytes.ReplaceAll(moved, []byte(from), []byte(to))
	}
	r.must(json.Unmarshal(moved, &out))
	return out
}

// startGateway installs Envoy Gateway and one Gateway, and runs its Envoy.
func (r *rig) startGateway() {
	r.t.Helper()
	r.apply(`
apiVersion: v1
kind: Namespace
metadata: {name: envoy-gateway-system}
---
apiVersion: v1
kind: Namespace
metadata: {name: models}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: envoy-gateway, namespace: envoy-gateway-system}
---
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: eg}
spec: {controllerName: gateway.envoyproxy.io/gatewayclass-controller}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: eg, namespace: models}
spec: {gatewayClassName: eg, listeners: [{name: http, port: 8888, protocol: HTTP}]}
`)
	config := r.values()
	config["apiVersion"], config["kind"] = "gateway.envoyproxy.io/v1alpha1", "EnvoyGateway"
	config["gateway"] = map[string]any{"controllerName": "gateway.envoyproxy.io/gatewayclass-controller"}
	config["provider"] = map[string]any{"type": "Kubernetes", "kubernetes": map[string]any{
		"leaderElection": map[string]any{"disable": true}}}
	config["logging"] = map[string]any{"level": map[string]any{"default": "warn"}}
	config["telemetry"] = map[string]any{"metrics": map[string]any{"prometheus": map[string]any{"disable": true}}}
	text, err := yaml.Marshal(config)
	r.must(err)
	r.must(os.WriteFile(r.path("envoy-gateway.yaml"), text, 0o600))
	gen := exec.CommandContext(r.t.Context(), r.program(), "certgen", "--disable-topology-injector")
	gen.Env = append(os.Environ(), r.environment()...)
	if out, err := gen.CombinedOutput(); err != nil {
		r.t.Fatalf("certgen: %v\n%s", err, out)
	}
	r.secret("envoy-gateway", certs)
	r.runGateway()
	r.runEnvoy()
}

func (r *rig) program() string {
	r.t.Helper()
	path, err := proc.Find(proc.ProgramEnvoyGateway)
	r.must(err)
	return path
}

func (r *rig) environment() []string {
	return []string{"KUBECONFIG=" + r.path("kubeconfig"), "ENVOY_GATEWAY_NAMESPACE=envoy-gateway-system",
		"KUBERNETES_CLUSTER_DOMAIN=cluster.local"}
}

// runGateway starts Envoy Gateway.
func (r *rig) runGateway() {
	r.t.Helper()
	p, err := proc.StartReady(r.t.Context(), proc.Spec{Name: "envoy-gateway", Path: r.program(), Dir: r.dir,
		Env:  r.environment(),
		Args: []string{"server", "--config-path", r.path("envoy-gateway.yaml")}},
		proc.AnswersHTTP("http://127.0.0.1:8081/readyz"))
	r.must(err)
	r.eg = p
	r.whole.Cleanup(func() { _ = p.Kill() })
}

// secret writes the files of a Secret.
func (r *rig) secret(name, dir string) {
	r.t.Helper()
	o := r.get("v1", "Secret", "envoy-gateway-system", name)
	data, _, err := unstructured.NestedStringMap(o.Object, "data")
	r.must(err)
	for file, encoded := range data {
		var text []byte
		r.must(json.Unmarshal([]byte(`"`+encoded+`"`), &text))
		r.must(os.WriteFile(filepath.Join(dir, file), text, 0o600))
	}
}

func (r *rig) get(version, kind, namespace, name string) *unstructured.Unstructured {
	r.t.Helper()
	o := unstructured.Unstructured{}
	o.SetAPIVersion(version)
	o.SetKind(kind)
	o.SetNamespace(namespace)
	api, err := r.client(o)
	r.must(err)
	found, err := api.Get(r.t.Context(), name, metav1.GetOptions{})
	r.must(err)
	return found
}

// owned returns the only object of a kind that Envoy Gateway made for the Gateway.
func (r *rig) owned(version, kind string) (*unstructured.Unstructured, error) {
	o := unstructured.Unstructured{}
	o.SetAPIVersion(version)
	o.SetKind(kind)
	o.SetNamespace("envoy-gateway-system")
	api, err := r.client(o)
	if err != nil {
		return nil, err
	}
	list, err := api.List(r.t.Context(), metav1.ListOptions{
		LabelSelector: "gateway.envoyproxy.io/owning-gateway-name=eg"})
	if err != nil {
		return nil, err
	}
	if len(list.Items) != 1 {
		return nil, fmt.Errorf("there are %d of the kind %s", len(list.Items), kind)
	}
	return &list.Items[0], nil
}

// runEnvoy runs the Envoy of the Deployment that Envoy Gateway has made.
func (r *rig) runEnvoy() {
	r.t.Helper()
	var deployment, files *unstructured.Unstructured
	r.eventually("Envoy Gateway deploys the Envoy", func() (err error) {
		deployment, err = r.owned("apps/v1", "Deployment")
		if err == nil {
			files, err = r.owned("v1", "ConfigMap")
		}
		return err
	})
	pod, _, err := unstructured.NestedMap(deployment.Object, "spec", "template")
	r.must(err)
	if label, _, _ := unstructured.NestedString(pod, "metadata", "labels", "steelyard.dev/envoy"); label != "true" {
		r.t.Errorf("the Pods have the label steelyard.dev/envoy: %q", label)
	}
	dir := r.path("pod")
	r.must(os.MkdirAll(filepath.Join(dir, "sds"), 0o755))
	r.must(os.MkdirAll(filepath.Join(dir, "certs"), 0o755))
	r.secret("envoy", filepath.Join(dir, "certs"))
	here := strings.NewReplacer("/certs/", dir+"/certs/", "/sds/", dir+"/sds/", "port_value: 19000",
		fmt.Sprint("port_value: ", envoyAdmin), "portValue: 19000", fmt.Sprint("portValue: ", envoyAdmin),
		// With the dot at its end, Envoy's resolver does not find it in the hosts file.
		"envoy-gateway.envoy-gateway-system.svc.cluster.local.", "127.0.0.1")
	data, _, err := unstructured.NestedStringMap(files.Object, "data")
	r.must(err)
	for name, text := range data {
		r.must(os.WriteFile(filepath.Join(dir, "sds", name), []byte(here.Replace(text)), 0o600))
	}
	var bootstrap string
	containers, _, err := unstructured.NestedSlice(pod, "spec", "containers")
	r.must(err)
	args, _, err := unstructured.NestedStringSlice(containers[0].(map[string]any), "args")
	r.must(err)
	for i, a := range args {
		if a == "--config-yaml" {
			bootstrap = args[i+1]
		}
	}
	r.envoy, err = proc.StartEnvoy(r.t.Context(), proc.EnvoyConfig{Bootstrap: []byte(here.Replace(bootstrap)),
		Dir: r.dir, Concurrency: 2, Args: []string{"--service-node", "eg-0", "--service-cluster", "models/eg"}})
	r.must(err)
	envoy := r.envoy
	r.whole.Cleanup(func() { _ = envoy.Kill() })
}

// A load is requests one after the other from several clients, until it ends.
type load struct {
	r    *rig
	stop context.CancelFunc
	done sync.WaitGroup

	mu       sync.Mutex
	sent     int
	failures []string
	servers  map[string]int
}

// send begins to send requests to a route, 40 a second or so.
func (r *rig) send(route string) *load {
	ctx, stop := context.WithCancel(r.t.Context())
	l := &load{r: r, stop: stop, servers: map[string]int{}}
	for range 4 {
		l.done.Go(func() {
			client := &http.Client{Transport: &http.Transport{}, Timeout: 20 * time.Second}
			defer client.CloseIdleConnections()
			for ctx.Err() == nil {
				l.request(client, gatewayAddress+"/"+route+"/v1/completions")
				time.Sleep(50 * time.Millisecond)
			}
		})
	}
	r.t.Cleanup(func() { l.stop(); l.done.Wait() })
	return l
}

func (l *load) request(client *http.Client, url string) {
	req, err := http.NewRequest(http.MethodPost, url, strings.NewReader("{}"))
	if err != nil {
		panic(err)
	}
	req.Header.Set(modelsim.HeaderService, "0.02")
	resp, err := client.Do(req)
	var server, failure string
	if err != nil {
		failure = err.Error()
	} else {
		body, readErr := io.ReadAll(resp.Body)
		resp.Body.Close()
		server = resp.Header.Get(modelsim.HeaderServer)
		if readErr != nil || resp.StatusCode != http.StatusOK {
			failure = fmt.Sprintf("%s %.100s (%v)", resp.Status, body, readErr)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent++
	if failure != "" {
		l.failures = append(l.failures, fmt.Sprintf("request %d: %s", l.sent, failure))
		return
	}
	host, _, _ := strings.Cut(server, ":")
	l.servers[host]++
}

// more waits for some more requests.
func (l *load) more(n int) {
	l.r.t.Helper()
	l.mu.Lock()
	until := l.sent + n
	l.mu.Unlock()
	l.r.eventually("requests are sent", func() error {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.sent < until {
			return fmt.Errorf("%d of %d are", l.sent, until)
		}
		return nil
	})
}

// reset forgets what was counted, but not the failures, and returns it.
func (l *load) reset() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	was := l.servers
	l.servers = map[string]int{}
	return was
}

// end ends the load: no request may have failed.
func (l *load) end() (sent int) {
	l.r.t.Helper()
	l.stop()
	l.done.Wait()
	if n := len(l.failures); n > 0 {
		l.r.t.Errorf("%d of %d requests failed, such as %q", n, l.sent, l.failures[:min(n, 3)])
	}
	return l.sent
}

// answers waits until a route answers.
func (r *rig) answers(route string) {
	r.t.Helper()
	r.eventually("the route "+route+" answers", func() error {
		resp, err := http.Post(gatewayAddress+"/"+route+"/v1/completions", "application/json", strings.NewReader("{}"))
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			body, _ := io.ReadAll(resp.Body)
			return errors.New(resp.Status + " " + string(body))
		}
		return nil
	})
}

// follows proves that the weights are followed: a server that is drained gets no request, and some afterwards.
func (r *rig) follows(l *load, pool, ip string) {
	r.t.Helper()
	r.eventually(ip+" is a member", func() error { return r.member(pool, ip) })
	r.steelyard("drain", "models."+pool, ip+":8000", "--reason", "test")
	r.eventually(ip+" gets no request while it is drained", func() error {
		l.reset()
		l.more(40)
		if n := l.reset()[ip]; n > 0 {
			return fmt.Errorf("%d of 40 requests went there", n)
		}
		return nil
	})
	r.steelyard("undrain", "models."+pool, ip+":8000")
	r.eventually(ip+" gets requests again", func() error {
		l.reset()
		l.more(20)
		if l.reset()[ip] == 0 {
			return errors.New("none of 20 went there")
		}
		return nil
	})
}

func (r *rig) steelyard(args ...string) {
	r.t.Helper()
	cmd := exec.CommandContext(r.t.Context(), r.binary, append(args, "--admin", "http://"+adminAddress,
		"--token-file", r.path("token"))...)
	if out, err := cmd.CombinedOutput(); err != nil {
		r.t.Fatalf("steelyard %v: %v\n%s", args, err, out)
	}
}
