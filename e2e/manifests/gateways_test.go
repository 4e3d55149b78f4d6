package manifests

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/yaml"

	"steelyard/e2e/rig/proc"
	"steelyard/e2e/rig/proc/proctest"
)

// An addition is what an example adds to the Envoys of another control plane.
type addition struct {
	bootstrap string // YAML or JSON, merged into the bootstrap
	clusters  []any
	router    map[string]any // merged into the router filter's configuration
	route     map[string]any // merged into the route
}

// additionOf reads an example, of one file or more.
func additionOf(t *testing.T, example string) (a addition) {
	t.Helper()
	a.router, a.route = map[string]any{}, map[string]any{}
	var objects []object
	for _, file := range examples(t) {
		if strings.Contains(file, "/examples/"+example) {
			objects = append(objects, read(t, file)...)
		}
	}
	for _, o := range objects {
		switch o.GetKind() {
		case "ConfigMap":
			if text := at[map[string]any](t, o, "data")["custom_bootstrap.json"]; text != nil {
				a.bootstrap = text.(string)
			}
		case "EnvoyProxy":
			a.bootstrap = at[string](t, o, "spec", "bootstrap", "value")
		case "EnvoyFilter":
			for _, p := range at[[]any](t, o, "spec", "configPatches") {
				p := p.(map[string]any)
				a.istio(t, p["applyTo"].(string), p["patch"].(map[string]any))
			}
		case "EnvoyPatchPolicy":
			for _, p := range at[[]any](t, o, "spec", "jsonPatches") {
				p := p.(map[string]any)
				a.envoyGateway(t, p["type"].(string), p["operation"].(map[string]any))
			}
		}
	}
	if a.bootstrap == "" || len(a.clusters) == 0 || a.router["upstream_log"] == nil || a.route["cluster"] == nil {
		t.Fatalf("%s is not what this test knows: %+v", example, a)
	}
	return a
}

func (a *addition) istio(t *testing.T, to string, patch map[string]any) {
	t.Helper()
	switch value, _ := patch["value"].(map[string]any); {
	case to == "CLUSTER" && patch["operation"] == "REMOVE":
		a.route["cluster"] = istioCluster
	case to == "CLUSTER":
		a.clusters = append(a.clusters, value)
	case to == "HTTP_FILTER":
		a.router = value["typed_config"].(map[string]any)
	default: // such as BOOTSTRAP, which Istio accepts and has not applied since 1.21
		t.Errorf("a patch for %s is not one that Istio applies to a running Envoy", to)
	}
}

func (a *addition) envoyGateway(t *testing.T, to string, operation map[string]any) {
	t.Helper()
	path := operation["path"].(string)
	switch to {
	case "type.googleapis.com/envoy.config.cluster.v3.Cluster":
		a.clusters = append(a.clusters, operation["value"])
	case "type.googleapis.com/envoy.config.listener.v3.Listener":
		a.router[path] = operation["value"]
	case "type.googleapis.com/envoy.config.route.v3.RouteConfiguration":
		a.route[path] = operation["value"]
	default:
		t.Errorf("%s is patched, which this test does not know", to)
	}
}

// istioCluster is the name of the cluster that Istio's routes have for the Service.
const istioCluster = "outbound|8000||llama.models.svc.cluster.local"

// otherBootstrap is an Envoy as another control plane has it, which gets its clusters from a file. Istio's has the two
// layers.
const otherBootstrap = `
node: {id: router~10.0.0.1~gateway.models, cluster: gateway.models}
admin: {address: {socket_address: {address: 127.0.0.1, port_value: 0}}}
layered_runtime:
  layers:
  - {name: global config, static_layer: {re2.max_program_size.error_level: 32768}}
  - {name: admin, admin_layer: {}}
dynamic_resources: {cds_config: {resource_api_version: V3, path_config_source: {path: %q}}}
static_resources:
  listeners:
  - name: ingress
    address: {socket_address: {address: 127.0.0.1, port_value: 0}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: gateway
          http_filters: [{name: envoy.filters.http.router, typed_config: %s}]
          route_config:
            validate_clusters: false
            virtual_hosts: [{name: all, domains: ["*"], routes: [{match: {prefix: /}, route: %s}]}]
`

// gateway is that Envoy with an addition. One whose bootstrap is from before has no connection to Steelyard, so no log
// either: a control plane's listener with it would be refused. That of others is an address that never answers.
func gateway(t *testing.T, a addition, before bool) *proc.Envoy {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(server.Close)
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { silent.Close() })
	moved := func(value any) string { // to servers of this test
		text, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		out := place(t, string(text), "steelyard-xds.steelyard.svc", 18000, silent.Addr().String())
		for _, host := range []string{"llama.models.svc", "llama.models.svc.cluster.local"} {
			out = place(t, out, host, 8000, server.Listener.Addr().String())
		}
		return out
	}
	var resources []any
	for _, c := range a.clusters {
		c := c.(map[string]any)
		c["@type"] = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
		resources = append(resources, c)
	}
	dir := proctest.Dir(t)
	cds := filepath.Join(dir, "cds.json")
	if err := os.WriteFile(cds, []byte(moved(map[string]any{"resources": resources})), 0o600); err != nil {
		t.Fatal(err)
	}
	router := map[string]any{"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}
	var args []string
	if !before {
		for key, value := range a.router {
			router[key] = value
		}
		var bootstrap any
		if err := yaml.Unmarshal([]byte(a.bootstrap), &bootstrap); err != nil {
			t.Fatal(err)
		}
		args = []string{"--config-yaml", moved(bootstrap)}
	}
	text := fmt.Appendf(nil, otherBootstrap, cds, moved(router), moved(a.route))
	return proctest.Envoy(t, proc.EnvoyConfig{Bootstrap: text, Dir: dir, Args: args})
}

// place gives a host of an example, which has to be in the text or nowhere in it, the address of a server.
func place(t *testing.T, text, host string, port int, address string) string {
	t.Helper()
	ip, at, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(text, fmt.Sprintf(`{"address":%q,"port_value":%d}`, host, port),
		fmt.Sprintf(`{"address":%q,"port_value":%s}`, ip, at))
}

// TestAnExampleTakesNoRouteDown: requests are answered from the first on by an Envoy that has the route, and whose
// bootstrap is from before, or that starts while Steelyard does not answer.
func TestAnExampleTakesNoRouteDown(t *testing.T) {
	for _, file := range []string{"istio/", "envoy-gateway.yaml"} {
		for name, before := range map[string]bool{"with the bootstrap from before": true,
			"while Steelyard does not answer": false} {
			t.Run(file+" "+name, func(t *testing.T) {
				t.Parallel()
				e := gateway(t, additionOf(t, file), before)
				address, err := e.Listener(t.Context(), "ingress")
				if err != nil {
					t.Fatal(err)
				}
				clusters, err := e.Clusters(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if _, ok := clusters["steelyard_xds"]; ok == before {
					t.Errorf("the clusters are %v", clusters)
				}
				const rejected = "cluster_manager.cds.update_rejected"
				stats, err := e.Stats(t.Context(), "^"+rejected+"$")
				if n, ok := stats[rejected]; err != nil || !ok || (n > 0) != before {
					t.Errorf("%v times clusters were rejected, %v", n, err)
				}
				for range 5 {
					resp, err := http.Get("http://" + address)
					if err != nil {
						t.Fatal(err)
					}
					resp.Body.Close()
					if resp.StatusCode != http.StatusOK {
						t.Errorf("the answer is %s", resp.Status)
					}
				}
			})
		}
	}
}

// TestTheOverlayForAGatewayOfIstioAddsTheBootstrap: Istio merges it strategically into the Deployment of its own
// template, and takes no other keys (pilot/pkg/config/kube/gatewaycommon/deploymentcontroller.go).
func TestTheOverlayForAGatewayOfIstioAddsTheBootstrap(t *testing.T) {
	data := at[map[string]any](t, find(t, read(t, filepath.Join(manifests, "examples/istio/1-clusters.yaml")),
		"ConfigMap", "steelyard-ingressgateway-deployment"), "data")
	if len(data) != 1 {
		t.Errorf("Istio refuses keys that are no overlays: %v", data)
	}
	const made = `{"spec": {"template": {"metadata": {"labels": {"sidecar.istio.io/inject": "false"}}, "spec": {
		"containers": [{"name": "istio-proxy", "env": [{"name": "POD_NAME", "value": "x"}],
		"volumeMounts": [{"name": "istio-envoy", "mountPath": "/etc/istio/proxy"}]}],
		"volumes": [{"name": "istio-envoy", "emptyDir": {}}]}}}}`
	overlay, err := yaml.YAMLToJSON([]byte(data["deployment"].(string)))
	if err != nil {
		t.Fatal(err)
	}
	merged, err := strategicpatch.StrategicMergePatch([]byte(made), overlay, apps.Deployment{})
	if err != nil {
		t.Fatal(err)
	}
	var got apps.Deployment
	if err := yaml.UnmarshalStrict(merged, &got); err != nil {
		t.Fatal(err)
	}
	pod := got.Spec.Template
	var names []string
	for _, c := range pod.Spec.Containers {
		names = append(names, c.Name)
		for _, e := range c.Env {
			names = append(names, e.Name+"="+e.Value)
		}
		for _, m := range c.VolumeMounts {
			names = append(names, m.MountPath)
		}
	}
	for _, v := range pod.Spec.Volumes {
		names = append(names, v.Name)
		if v.ConfigMap != nil {
			names = append(names, v.ConfigMap.Name)
		}
	}
	slices.Sort(names)
	if want := []string{"/etc/istio/custom-bootstrap", "/etc/istio/proxy",
		"ISTIO_BOOTSTRAP_OVERRIDE=/etc/istio/custom-bootstrap/custom_bootstrap.json", "POD_NAME=x",
		"custom-bootstrap-volume", "istio-envoy", "istio-proxy",
		"steelyard-ingressgateway-bootstrap"}; !slices.Equal(names, want) {
		t.Errorf("the Deployment has %q, want %q", names, want)
	}
	if pod.Labels["steelyard.dev/envoy"] != "true" || pod.Labels["steelyard.dev/gateway"] != "ingressgateway" ||
		len(pod.Labels) != 3 {
		t.Errorf("its Pods have the labels %v", pod.Labels)
	}
}

// TestARouteToSteelyardHasAFallbackWithoutIt: in everything that is shipped, and whether its members are known without
// Steelyard. Where they are not, an Envoy that starts while Steelyard is away answers 503 (docs/attach-envoy.md).
func TestARouteToSteelyardHasAFallbackWithoutIt(t *testing.T) {
	want := map[string]string{
		"manifests/examples/envoy-gateway.yaml":           "STRICT_DNS",
		"manifests/overlays/example-envoy/bootstrap.yaml": "STRICT_DNS",
		// Nobody knows the servers of the reader: --fallback names them.
		"envoy-bootstrap/attach.yaml":   "EDS",
		"envoy-bootstrap/failsafe.yaml": "EDS",
		// There is none in mode shedding: the last weights stay.
		"envoy-bootstrap/shedding.yaml": "",
		// Its Envoys send to those of overlays/example-envoy.
		"manifests/examples/contour.yaml": "none of ours",
	}
	var files []string
	for _, pattern := range []string{"envoy-bootstrap/*.yaml", "manifests/examples/*.yaml",
		"manifests/*/*/bootstrap.yaml"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	for _, file := range files {
		name := filepath.ToSlash(strings.TrimPrefix(file, root+"/"))
		expected, known := want[name]
		if !known {
			t.Errorf("%s is shipped, and this test does not say what its fallback is", name)
		}
		delete(want, name)
		clusters, ours := clustersOf(t, file)
		if !ours {
			if expected != "none of ours" {
				t.Errorf("%s names no cluster of Steelyard", name)
			}
			continue
		}
		fallback := clusters["llama_fallback"]
		got := ""
		if fallback != nil {
			got = fallback["type"].(string)
		}
		if got != expected {
			t.Errorf("%s has a fallback of the type %q, want %q", name, got, expected)
		}
		if members := fallback["load_assignment"]; (members != nil) != (got == "STRICT_DNS") {
			t.Errorf("%s: a fallback of the type %q has the members %v", name, got, members)
		}
	}
	for name := range want {
		t.Errorf("%s is not shipped any more", name)
	}
}

// clustersOf returns the clusters that a shipped file has, by name, and whether it is about Steelyard's at all.
func clustersOf(t *testing.T, file string) (found map[string]map[string]any, ours bool) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var all []any
	switch name := filepath.Base(file); name {
	case "contour.yaml":
	case "envoy-gateway.yaml":
		all = additionOf(t, name).clusters
	default:
		var bootstrap map[string]any
		if err := yaml.Unmarshal(text, &bootstrap); err != nil {
			t.Fatal(err)
		}
		all = bootstrap["static_resources"].(map[string]any)["clusters"].([]any)
	}
	found = make(map[string]map[string]any)
	for _, c := range all {
		c := c.(map[string]any)
		found[c["name"].(string)] = c
	}
	return found, strings.Contains(string(text), "steelyard_xds")
}
