package gateways

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	authentication "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"steelyard/e2e/rig/proc"
)

// istio is a Gateway whose Deployment Istio makes. Istio takes no pools without a picker, so routes name a Service of
// the same Pods.
type istio struct {
	httpRoute

	mesh bool // the next pools take mutual TLS only
}

func (*istio) title() string { return "Istio 1.31" }

func (*istio) leaves(name string) bool {
	return name == policyCase || name == pickerCase || name == moduleCase
}

func (*istio) definitions() []definitions {
	return []definitions{
		{"istio", "istio.io/istio", []string{"manifests/charts/base/files/crd-all.gen.yaml"}},
		{"istio", "sigs.k8s.io/gateway-api", []string{"config/crd/standard/gateway.networking.k8s.io_*s.yaml"}},
	}
}

func (*istio) pool(name string, weight int) string { return ofService(name, weight) }

// Where pilot-agent finds what a Pod of the Deployment has.
const (
	podAddress      = "10.244.1.1"
	overrideMount   = "/etc/istio/custom-bootstrap/"
	tokenFile       = "var/run/secrets/tokens/istio-token"
	authorityFile   = "var/run/secrets/istio/root-cert.pem"
	istioProxyAdmin = "127.0.0.1:15000"
)

func (g *istio) start(r *rig) {
	r.t.Helper()
	r.apply(`
apiVersion: v1
kind: Namespace
metadata: {name: istio-system}
`)
	r.listeners("istio")
	g.injector(r)
	envoy, err := proc.Find(proc.ProgramEnvoy)
	r.must(err)
	r.must(os.WriteFile(r.path("mesh.yaml"), fmt.Appendf(nil, `
rootNamespace: istio-system
trustDomain: cluster.local
defaultProviders: {}
defaultConfig: {discoveryAddress: "istiod.istio-system.svc:15012", binaryPath: %q, concurrency: 2}
`, envoy), 0o600))
	g.runPlane(r)
	g.write(r, "llama")
	r.applyFile(filepath.Join(r.path("istio"), "1-clusters.yaml"))
	g.injects(r)
	r.patch("Gateway", "eg", r.path("istio/2-gateway.yaml"))
	g.runProxy(r)
}

// injector writes the ConfigMap of Istio's chart that has the templates for Pods and Deployments.
func (g *istio) injector(r *rig) {
	r.t.Helper()
	chart := filepath.Join(r.moduleDir("istio", "istio.io/istio"), "manifests/charts/istio-control/istio-discovery")
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(chart, name))
		r.must(err)
		return string(text)
	}
	var values struct {
		All map[string]any `json:"_internal_defaults_do_not_set"`
	}
	r.must(yaml.Unmarshal([]byte(read("values.yaml")), &values))
	picked, err := json.Marshal(map[string]any{"global": values.All["global"], "revision": "",
		"sidecarInjectorWebhook": values.All["sidecarInjectorWebhook"],
		"pilot":                  map[string]any{"cni": values.All["cni"], "env": values.All["env"]},
		"gateways":               map[string]any{}})
	r.must(err)
	config, err := yaml.Marshal(map[string]any{"policy": "enabled", "defaultTemplates": []string{"sidecar"},
		"templates": map[string]any{"sidecar": read("files/injection-template.yaml"),
			"gateway":      read("files/gateway-injection-template.yaml"),
			"kube-gateway": read("files/kube-gateway.yaml")}})
	r.must(err)
	r.must(r.write(unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"name": "istio-sidecar-injector", "namespace": "istio-system"},
		"data":     map[string]any{"values": string(picked), "config": string(config)}}}))
}

// runPlane starts istiod.
func (*istio) runPlane(r *rig) {
	r.t.Helper()
	p, err := proc.StartReady(r.t.Context(), proc.Spec{Name: "istiod", Program: proc.ProgramPilotDiscovery, Dir: r.dir,
		// Filters that only Istio's own Envoy has.
		Env: []string{"POD_NAMESPACE=istio-system", "POD_NAME=istiod-0", "PILOT_ENABLE_METADATA_EXCHANGE=false",
			"PILOT_ENABLE_ALPN_FILTER=false"},
		Args: []string{"discovery", "--kubeconfig", r.path("kubeconfig"), "--meshConfig", r.path("mesh.yaml"),
			"--httpAddr", "127.0.0.1:15080", "--log_output_level", "default:warn"}},
		proc.AnswersHTTP("http://127.0.0.1:15080/ready"))
	r.must(err)
	r.plane = p
	r.whole.Cleanup(func() { _ = p.Kill() })
}

// write runs `steelyard bootstrap --form istio`.
func (g *istio) write(r *rig, pools ...string) {
	r.t.Helper()
	args := []string{"bootstrap", "--form", "istio", "--gateway", "models/eg", "--xds", xdsAddress, "--out",
		r.path("istio")}
	if g.mesh {
		args = append(args, "--mesh")
	}
	for _, p := range pools {
		args = append(args, "--cluster", clusterOf(p)+"="+serviceName(p)+":8000")
	}
	if out, err := exec.CommandContext(r.t.Context(), r.binary, args...).CombinedOutput(); err != nil {
		r.t.Fatalf("steelyard %v: %v\n%s", args, err, out)
	}
}

// serve applies the steps, each when the one before it has reached the Envoy. What is not served any more goes first.
func (g *istio) serve(r *rig, pools ...string) {
	r.t.Helper()
	g.write(r, pools...)
	clusters, routes := r.path("istio/1-clusters.yaml"), r.path("istio/3-routes.yaml")
	there := slices.ContainsFunc(pools, func(p string) bool {
		has, err := r.hasCluster(clusterOf(p))
		r.must(err)
		return !has
	})
	if !there { // fewer than before
		r.applyFile(routes)
		r.eventually("the routes lead to these pools", func() error { return g.leads(r, pools...) })
	}
	r.applyFile(clusters)
	for _, p := range pools {
		r.eventually("the Envoy has the members of "+p, func() error {
			has, err := r.hasCluster(clusterOf(p))
			if err == nil && !has {
				err = errors.New("it has none")
			}
			return err
		})
	}
	r.applyFile(routes)
	r.eventually("the routes lead to these pools", func() error { return g.leads(r, pools...) })
}

// leads reports whether the clusters that routes name are those of these pools.
func (g *istio) leads(r *rig, pools ...string) error {
	resp, err := http.Get("http://" + r.proxyAdmin + "/config_dump?resource=dynamic_active_clusters")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var dump struct {
		Configs []struct {
			Cluster struct {
				Name string `json:"name"`
				Type struct {
					Name string `json:"name"`
				} `json:"cluster_type"`
			} `json:"cluster"`
		} `json:"configs"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&dump); err != nil {
		return err
	}
	var found []string
	for _, c := range dump.Configs {
		if c.Cluster.Type.Name == "envoy.clusters.aggregate" {
			_, host, _ := strings.Cut(c.Cluster.Name, "||")
			found = append(found, host)
		}
	}
	var want []string
	for _, p := range pools {
		want = append(want, serviceName(p))
	}
	if slices.Sort(found); !slices.Equal(found, want) {
		return fmt.Errorf("they lead to %v, want %v", found, want)
	}
	return nil
}

// leave deletes the objects, under load: the route then leads to Istio's own cluster of the Service.
func (g *istio) leave(r *rig) {
	r.t.Helper()
	l := r.send("llama")
	l.more(40)
	r.remove("networking.istio.io/v1alpha3", "EnvoyFilter", "steelyard-eg-routes")
	r.eventually("the routes lead to no pool", func() error { return g.leads(r) })
	l.more(40)
	r.remove("networking.istio.io/v1alpha3", "EnvoyFilter", "steelyard-eg-clusters")
	l.more(40)
	l.end()
}

// injects has istiod's webhook inject a Pod of a Deployment that is the user's, with the patch for it.
func (g *istio) injects(r *rig) {
	r.t.Helper()
	text, err := os.ReadFile(r.path("istio/2-deployment.yaml"))
	r.must(err)
	var patch struct {
		Spec struct {
			Template struct {
				Metadata struct {
					Labels      map[string]string `json:"labels"`
					Annotations map[string]string `json:"annotations"`
				} `json:"metadata"`
			} `json:"template"`
		} `json:"spec"`
	}
	r.must(yaml.Unmarshal(text, &patch))
	about := patch.Spec.Template.Metadata
	if about.Labels["steelyard.dev/gateway"] != "eg" || about.Labels["steelyard.dev/envoy"] != "true" {
		r.t.Errorf("the labels are %v", about.Labels)
	}
	about.Annotations["inject.istio.io/templates"] = "gateway"
	about.Labels["sidecar.istio.io/inject"] = "true"
	review, err := json.Marshal(map[string]any{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
		"request": map[string]any{"uid": "1", "namespace": "models", "object": map[string]any{
			"metadata": map[string]any{"name": "gateway", "labels": about.Labels, "annotations": about.Annotations},
			"spec":     map[string]any{"containers": []any{map[string]any{"name": "istio-proxy", "image": "auto"}}}}}})
	r.must(err)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	defer client.CloseIdleConnections()
	resp, err := client.Post("https://127.0.0.1:15017/inject", "application/json", strings.NewReader(string(review)))
	r.must(err)
	defer resp.Body.Close()
	var answer struct {
		Response struct {
			Patch []byte `json:"patch"`
		} `json:"response"`
	}
	r.must(json.NewDecoder(resp.Body).Decode(&answer))
	for _, want := range []string{"ISTIO_BOOTSTRAP_OVERRIDE", `"name":"steelyard-eg-bootstrap"`} {
		if !strings.Contains(string(answer.Response.Patch), want) {
			r.t.Errorf("the injected Pod has no %s: %s", want, answer.Response.Patch)
		}
	}
}

// runProxy runs the Pod of the Deployment that Istio has made for the Gateway.
func (g *istio) runProxy(r *rig) {
	r.t.Helper()
	var deployment *unstructured.Unstructured
	r.eventually("Istio deploys the Envoy with the bootstrap", func() (err error) {
		if deployment, err = r.find("apps/v1", "Deployment", "models", "eg-istio"); err != nil {
			return err
		}
		if text, _ := json.Marshal(deployment.Object); !strings.Contains(string(text), "ISTIO_BOOTSTRAP_OVERRIDE") {
			err = errors.New("without the addition")
		}
		return err
	})
	template, _, err := unstructured.NestedMap(deployment.Object, "spec", "template")
	r.must(err)
	labels, _, err := unstructured.NestedStringMap(template, "metadata", "labels")
	r.must(err)
	if labels["steelyard.dev/envoy"] != "true" {
		r.t.Errorf("the Pods have the labels %v", labels)
	}
	g.pod(r, labels)
	containers, _, err := unstructured.NestedSlice(template, "spec", "containers")
	r.must(err)
	container := containers[0].(map[string]any)
	args, _, err := unstructured.NestedStringSlice(container, "args")
	r.must(err)
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "$(POD_NAMESPACE)", "models")
	}
	args = append(args, "--templateFile", filepath.Join(r.moduleDir("istio", "istio.io/istio"),
		"tools/packaging/common/envoy_bootstrap.json"))
	p, err := proc.StartReady(r.t.Context(), proc.Spec{Name: "pilot-agent", Program: proc.ProgramPilotAgent,
		Dir: r.path("pod"), Env: g.environment(r, container), Args: args},
		proc.AnswersHTTP("http://127.0.0.1:15021/healthz/ready"))
	r.must(err)
	r.proxy, r.proxyAdmin = p, istioProxyAdmin
	r.whole.Cleanup(func() { _ = p.Kill() })
}

// environment returns the variables of the container.
func (g *istio) environment(r *rig, container map[string]any) (env []string) {
	r.t.Helper()
	fields := map[string]string{"metadata.name": "eg-istio-0", "metadata.namespace": "models",
		"status.podIP": podAddress, "status.hostIP": podAddress, "spec.serviceAccountName": "eg-istio",
		"spec.nodeName": "node"}
	for _, v := range container["env"].([]any) {
		v := v.(map[string]any)
		value, given := v["value"].(string)
		if field, ok, _ := unstructured.NestedString(v, "valueFrom", "fieldRef", "fieldPath"); ok {
			value, given = fields[field], true
		}
		if given {
			env = append(env, fmt.Sprint(v["name"], "=", strings.ReplaceAll(value, overrideMount,
				r.path("pod"+overrideMount)+"/")))
		}
	}
	return env
}

// pod writes the Pod, and what it has mounted.
func (g *istio) pod(r *rig, labels map[string]string) {
	r.t.Helper()
	written, err := json.Marshal(labels)
	r.must(err)
	r.apply(`
apiVersion: v1
kind: Pod
metadata: {name: eg-istio-0, namespace: models, labels: %s}
spec: {nodeName: node, serviceAccountName: eg-istio, containers: [{name: istio-proxy, image: proxyv2}]}
status:
  phase: Running
  podIP: "%s"
  podIPs: [{ip: "%[2]s"}]
  conditions: [{type: Ready, status: "True"}]
`, written, podAddress)
	file := func(name, text string) {
		path := r.path(filepath.Join("pod", name))
		r.must(os.MkdirAll(filepath.Dir(path), 0o755))
		r.must(os.WriteFile(path, []byte(text), 0o600))
	}
	var lines strings.Builder
	for name, value := range labels {
		fmt.Fprintf(&lines, "%s=%q\n", name, value)
	}
	file("etc/istio/pod/labels", lines.String())
	file("etc/istio/pod/annotations", "")
	for _, name := range []string{"workload-spiffe-uds", "credential-uds", "workload-spiffe-credentials"} {
		r.must(os.MkdirAll(r.path("pod/var/run/secrets/"+name), 0o755))
	}
	r.eventually("Istio writes its authority's certificate", func() error {
		o, err := r.find("v1", "ConfigMap", "models", "istio-ca-root-cert")
		if err == nil {
			data, _, _ := unstructured.NestedStringMap(o.Object, "data")
			file(authorityFile, data["root-cert.pem"])
		}
		return err
	})
	override := r.get("v1", "ConfigMap", "models", "steelyard-eg-bootstrap")
	data, _, err := unstructured.NestedStringMap(override.Object, "data")
	r.must(err)
	for name, text := range data {
		file(overrideMount+name, text)
	}
	client, err := r.server.Client()
	r.must(err)
	token, err := client.CoreV1().ServiceAccounts("models").CreateToken(r.t.Context(), "eg-istio",
		&authentication.TokenRequest{Spec: authentication.TokenRequestSpec{Audiences: []string{"istio-ca"}}},
		metav1.CreateOptions{})
	r.must(err)
	file(tokenFile, token.Status.Token)
}
