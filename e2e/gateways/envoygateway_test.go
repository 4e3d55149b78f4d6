package gateways

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"steelyard/e2e/rig/proc"
)

// envoyGateway asks Steelyard's extension server about the pools that routes name.
type envoyGateway struct{ httpRoute }

func (envoyGateway) title() string { return "Envoy Gateway 1.9.1" }

func (envoyGateway) leaves(name string) bool { return name == strictCase }

func (envoyGateway) definitions() []definitions {
	return []definitions{{"envoygateway", "github.com/envoyproxy/gateway",
		[]string{"charts/gateway-helm/charts/crds/crds/gatewayapi-crds.yaml",
			"charts/gateway-helm/charts/crds/crds/generated/*.yaml"}}}
}

func (envoyGateway) pool(name string, weight int) string {
	namespace, name := place(name)
	return fmt.Sprintf("{group: inference.networking.k8s.io, kind: InferencePool, namespace: %s, name: %s, weight: %d}",
		namespace, name, weight)
}

// serve has nothing to do: a pool is served when a route names it.
func (envoyGateway) serve(r *rig, pools ...string) {
	r.t.Helper()
	r.eventually("the pool has its Gateway as a parent", func() error { return r.parent(pools[0], "True", "Accepted") })
}

func (envoyGateway) leave(*rig) {}

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

// values are the shipped settings for Envoy Gateway's chart, for Steelyard's addresses here.
func (r *rig) values() (out map[string]any) {
	r.t.Helper()
	all := map[string]any{}
	for _, name := range []string{"envoy-gateway-values.yaml", "envoy-gateway-module-values.yaml"} {
		text, err := os.ReadFile("../../manifests/gateways/" + name)
		r.must(err)
		var values map[string]any
		r.must(yaml.Unmarshal(text, &values))
		merge(all, values)
	}
	settings, _, err := unstructured.NestedMap(all, "config", "envoyGateway")
	r.must(err)
	moved, err := json.Marshal(settings)
	r.must(err)
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

// merge is what Helm does with several files of values.
func merge(into, from map[string]any) {
	for key, value := range from {
		below, is := value.(map[string]any)
		if there, was := into[key].(map[string]any); is && was {
			merge(there, below)
			continue
		}
		into[key] = value
	}
}

// start installs Envoy Gateway and one Gateway, and runs its Envoy.
func (g envoyGateway) start(r *rig) {
	r.t.Helper()
	r.apply(`
apiVersion: v1
kind: Namespace
metadata: {name: envoy-gateway-system}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: envoy-gateway, namespace: envoy-gateway-system}
---
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: eg}
spec: {controllerName: gateway.envoyproxy.io/gatewayclass-controller}
`)
	r.listeners("eg")
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
	gen := exec.CommandContext(r.t.Context(), envoyGatewayProgram(r), "certgen", "--disable-topology-injector")
	gen.Env = append(os.Environ(), envoyGatewayEnvironment(r)...)
	if out, err := gen.CombinedOutput(); err != nil {
		r.t.Fatalf("certgen: %v\n%s", err, out)
	}
	r.secret("envoy-gateway", certsFolder)
	g.runPlane(r)
	g.runProxy(r)
}

func envoyGatewayProgram(r *rig) string {
	r.t.Helper()
	path, err := proc.Find(proc.ProgramEnvoyGateway)
	r.must(err)
	return path
}

func envoyGatewayEnvironment(r *rig) []string {
	return []string{"KUBECONFIG=" + r.path("kubeconfig"), "ENVOY_GATEWAY_NAMESPACE=envoy-gateway-system",
		"KUBERNETES_CLUSTER_DOMAIN=cluster.local"}
}

// runPlane starts Envoy Gateway.
func (envoyGateway) runPlane(r *rig) {
	r.t.Helper()
	p, err := proc.StartReady(r.t.Context(), proc.Spec{Name: "envoy-gateway", Path: envoyGatewayProgram(r), Dir: r.dir,
		Env:  envoyGatewayEnvironment(r),
		Args: []string{"server", "--config-path", r.path("envoy-gateway.yaml")}},
		proc.AnswersHTTP("http://127.0.0.1:8081/readyz"))
	r.must(err)
	r.plane = p
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

// owned returns the only object of a kind that Envoy Gateway made for a Gateway.
func (r *rig) owned(version, kind, gateway string) (*unstructured.Unstructured, error) {
	o := unstructured.Unstructured{}
	o.SetAPIVersion(version)
	o.SetKind(kind)
	o.SetNamespace("envoy-gateway-system")
	api, err := r.client(o)
	if err != nil {
		return nil, err
	}
	list, err := api.List(r.t.Context(), metav1.ListOptions{
		LabelSelector: "gateway.envoyproxy.io/owning-gateway-name=" + gateway})
	if err != nil {
		return nil, err
	}
	if len(list.Items) != 1 {
		return nil, fmt.Errorf("there are %d of the kind %s", len(list.Items), kind)
	}
	return &list.Items[0], nil
}

func (envoyGateway) runProxy(r *rig) {
	r.t.Helper()
	envoy := r.deployed("models", "eg", envoyAdmin)
	r.proxy, r.proxyAdmin = envoy.Process, envoy.Admin()
}

// deployed runs the Envoy of the Deployment that Envoy Gateway has made for a Gateway.
func (r *rig) deployed(namespace, gateway string, admin int) *proc.Envoy {
	r.t.Helper()
	var deployment, files *unstructured.Unstructured
	r.eventually("Envoy Gateway deploys the Envoy", func() (err error) {
		deployment, err = r.owned("apps/v1", "Deployment", gateway)
		if err == nil {
			files, err = r.owned("v1", "ConfigMap", gateway)
		}
		return err
	})
	pod, _, err := unstructured.NestedMap(deployment.Object, "spec", "template")
	r.must(err)
	if label, _, _ := unstructured.NestedString(pod, "metadata", "labels", "steelyard.dev/envoy"); label != "true" {
		r.t.Errorf("the Pods have the label steelyard.dev/envoy: %q", label)
	}
	dir := r.path("pod-" + gateway)
	r.must(os.MkdirAll(filepath.Join(dir, "sds"), 0o755))
	r.must(os.MkdirAll(filepath.Join(dir, "certs"), 0o755))
	r.secret("envoy", filepath.Join(dir, "certs"))
	here := strings.NewReplacer("/certs/", dir+"/certs/", "/sds/", dir+"/sds/", "port_value: 19000",
		fmt.Sprint("port_value: ", admin), "portValue: 19000", fmt.Sprint("portValue: ", admin),
		// With the dot at its end, Envoy's resolver does not find it in the hosts file.
		"envoy-gateway.envoy-gateway-system.svc.cluster.local.", "127.0.0.1")
	data, _, err := unstructured.NestedStringMap(files.Object, "data")
	r.must(err)
	for name, text := range data {
		r.must(os.WriteFile(filepath.Join(dir, "sds", name), []byte(here.Replace(text)), 0o600))
	}
	bootstrap := r.bootstrapOf(pod)
	envoy, err := proc.StartEnvoy(r.t.Context(), proc.EnvoyConfig{Bootstrap: []byte(here.Replace(bootstrap)),
		Dir: r.dir, Name: "envoy-" + gateway, Concurrency: 2,
		Args: []string{"--service-node", gateway + "-0", "--service-cluster", namespace + "/" + gateway}})
	r.must(err)
	r.whole.Cleanup(func() { _ = envoy.Kill() })
	return envoy
}

// bootstrapOf returns that of a Pod, and has Envoys find the module, if they do in the Pod.
func (r *rig) bootstrapOf(pod map[string]any) (bootstrap string) {
	r.t.Helper()
	containers, _, err := unstructured.NestedSlice(pod, "spec", "containers")
	r.must(err)
	container := containers[0].(map[string]any)
	args, _, err := unstructured.NestedStringSlice(container, "args")
	r.must(err)
	for i, a := range args {
		if a == "--config-yaml" {
			bootstrap = args[i+1]
		}
	}
	text, err := json.Marshal(pod)
	r.must(err)
	for _, want := range []string{
		`"command":["cp","/usr/local/bin/libsteelyard.so","/modules/"]`, `{"emptyDir":{},"name":"steelyard-module"}`,
		`{"name":"` + proc.ModulePath + `","value":"/modules"}`, `{"mountPath":"/modules","name":"steelyard-module"}`,
	} {
		if !strings.Contains(string(text), want) {
			r.t.Fatalf("the Pods of Envoy have no %s: %s", want, text)
		}
	}
	folder, err := proc.BuildModule()
	r.must(err)
	r.must(os.Setenv(proc.ModulePath, folder))
	return bootstrap
}
