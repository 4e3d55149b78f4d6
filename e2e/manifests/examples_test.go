package manifests

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"sigs.k8s.io/yaml"

	"steelyard/e2e/rig/golden"
	"steelyard/e2e/rig/proc"
	envoybootstrap "steelyard/envoy-bootstrap"
)

// parts are what an Envoy of another control plane needs, taken out of the output of steelyard bootstrap.
type parts struct {
	steelyard map[string]any   // the cluster of Steelyard itself, which has to be in the bootstrap
	clusters  []map[string]any // the weighted one, its fallback and the pair of them
	router    map[string]any   // additions to the configuration of the router filter
	bootstrap map[string]any   // the top-level sections that are no static resources
}

func bootstrapParts(t *testing.T) (p parts) {
	t.Helper()
	text, err := envoybootstrap.Render(envoybootstrap.Options{
		Cluster: "llama", XDS: "steelyard-xds.steelyard.svc:18000",
	})
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]any
	if err := yaml.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	static := all["static_resources"].(map[string]any)
	for _, c := range static["clusters"].([]any) {
		if c := c.(map[string]any); c["name"] == "steelyard_xds" {
			p.steelyard = c
		} else {
			p.clusters = append(p.clusters, c)
		}
	}
	var manager map[string]any
	for _, name := range []string{"listeners", "filter_chains", "filters"} {
		if manager == nil {
			manager = static
		}
		manager = manager[name].([]any)[0].(map[string]any)
	}
	manager = manager["typed_config"].(map[string]any)
	p.router = manager["http_filters"].([]any)[0].(map[string]any)["typed_config"].(map[string]any)
	// Both control planes have a layer for Envoy's admin listener, or want none; there may be only one.
	layers := all["layered_runtime"].(map[string]any)["layers"].([]any)
	p.bootstrap = map[string]any{
		"cluster_manager":  all["cluster_manager"],
		"layered_runtime":  map[string]any{"layers": layers[:1]},
		"static_resources": map[string]any{"clusters": []any{p.steelyard}},
	}
	if p.steelyard == nil || len(p.clusters) != 3 || p.router["upstream_log"] == nil {
		t.Fatalf("the bootstrap is not what this test knows: %v", p)
	}
	return p
}

// asYAML writes objects with a comment in front of each.
func asYAML(t *testing.T, documents ...any) []byte {
	t.Helper()
	var out bytes.Buffer
	out.WriteString("# Written from envoy-bootstrap/bootstrap.tmpl: go test . -update in e2e/manifests.\n")
	for i := 0; i < len(documents); i += 2 {
		if i > 0 {
			out.WriteString("---\n")
		}
		out.WriteString(documents[i].(string))
		text, err := yaml.Marshal(documents[i+1])
		if err != nil {
			t.Fatal(err)
		}
		out.Write(text)
	}
	return out.Bytes()
}

func TestTheExamplesForOtherControlPlanesAreUpToDate(t *testing.T) {
	p := bootstrapParts(t)
	golden.Check(t, filepath.Join(manifests, "examples/istio.yaml"), string(istio(t, p)))
	golden.Check(t, filepath.Join(manifests, "examples/envoy-gateway.yaml"), string(envoyGateway(t, p)))
}

// istio attaches the Envoys of an ingress gateway. The route is one that a VirtualService of the namespace models
// names "llama".
func istio(t *testing.T, p parts) []byte {
	patches := []any{
		map[string]any{"applyTo": "BOOTSTRAP", "match": map[string]any{"context": "GATEWAY"},
			"patch": map[string]any{"operation": "MERGE", "value": p.bootstrap}},
	}
	for _, c := range p.clusters {
		patches = append(patches, map[string]any{"applyTo": "CLUSTER", "match": map[string]any{"context": "GATEWAY"},
			"patch": map[string]any{"operation": "ADD", "value": c}})
	}
	manager := map[string]any{"name": "envoy.filters.network.http_connection_manager",
		"subFilter": map[string]any{"name": "envoy.filters.http.router"}}
	patches = append(patches,
		map[string]any{"applyTo": "HTTP_FILTER",
			"match": map[string]any{"context": "GATEWAY",
				"listener": map[string]any{"filterChain": map[string]any{"filter": manager}}},
			"patch": map[string]any{"operation": "MERGE",
				"value": map[string]any{"name": "envoy.filters.http.router", "typed_config": p.router}}},
		map[string]any{"applyTo": "HTTP_ROUTE",
			"match": map[string]any{"context": "GATEWAY",
				"routeConfiguration": map[string]any{
					"vhost": map[string]any{"route": map[string]any{"name": "llama"}}}},
			"patch": map[string]any{"operation": "MERGE",
				"value": map[string]any{"route": map[string]any{"cluster": "llama_failsafe", "timeout": "0s"}}}})
	const about = "# For an ingress gateway of Istio in the namespace models, as an EnvoyFilter is for the pods " +
		`of its own namespace; its
# VirtualService has a route named "llama". The gateway's pods need the label steelyard.dev/envoy: "true", and a
# restart, because a part of this goes into Envoy's bootstrap.
`
	return asYAML(t, about, map[string]any{
		"apiVersion": "networking.istio.io/v1alpha3", "kind": "EnvoyFilter",
		"metadata": map[string]any{"name": "steelyard", "namespace": "models"},
		"spec": map[string]any{
			"workloadSelector": map[string]any{"labels": map[string]any{"istio": "ingressgateway"}},
			"configPatches":    patches,
		},
	})
}

// envoyGateway attaches the Envoys of a Gateway "eg" with the listener "http" in the namespace models, and sends the
// first rule of its HTTPRoute "llama" there.
func envoyGateway(t *testing.T, p parts) []byte {
	text, err := yaml.Marshal(p.bootstrap)
	if err != nil {
		t.Fatal(err)
	}
	patch := func(kind, called string, operation map[string]any) map[string]any {
		return map[string]any{"type": "type.googleapis.com/envoy.config." + kind, "name": called,
			"operation": operation}
	}
	var patches []any
	for _, c := range p.clusters {
		patches = append(patches, patch("cluster.v3.Cluster", c["name"].(string),
			map[string]any{"op": "add", "path": "", "value": c}))
	}
	const routerFilter = `..http_filters[?(@.name=="envoy.filters.http.router")].typed_config`
	for _, key := range []string{"upstream_log_options", "upstream_log"} {
		patches = append(patches, patch("listener.v3.Listener", "models/eg/http", map[string]any{"op": "add",
			"jsonPath": routerFilter, "path": key, "value": p.router[key]}))
	}
	const route = `..routes[?(@.route.cluster=="httproute/models/llama/rule/0")].route`
	patches = append(patches,
		patch("route.v3.RouteConfiguration", "models/eg/http", map[string]any{"op": "add",
			"jsonPath": route, "path": "timeout", "value": "0s"}),
		patch("route.v3.RouteConfiguration", "models/eg/http", map[string]any{"op": "replace",
			"jsonPath": route, "path": "cluster", "value": "llama_failsafe"}))
	const about = `# For the Gateway "eg" with the listener "http" and the HTTPRoute "llama", all in the namespace ` +
		`models. The
# GatewayClass, or spec.infrastructure.parametersRef of the Gateway, names this EnvoyProxy. In the configuration of
# Envoy Gateway, extensionApis.enableEnvoyPatchPolicy is true, and the
# runtime flag XDSNameSchemeV2 is off, as it is by default: with it, listeners have other names.
`
	return asYAML(t, about, map[string]any{
		"apiVersion": "gateway.envoyproxy.io/v1alpha1", "kind": "EnvoyProxy",
		"metadata": map[string]any{"name": "steelyard", "namespace": "models"},
		"spec": map[string]any{
			"bootstrap": map[string]any{"type": "Merge", "value": string(text)},
			"provider": map[string]any{"type": "Kubernetes", "kubernetes": map[string]any{
				"envoyDeployment": map[string]any{
					"pod": map[string]any{"labels": map[string]any{"steelyard.dev/envoy": "true"}}}}},
		},
	}, "", map[string]any{
		"apiVersion": "gateway.envoyproxy.io/v1alpha1", "kind": "EnvoyPatchPolicy",
		"metadata": map[string]any{"name": "steelyard", "namespace": "models"},
		"spec": map[string]any{
			"targetRef":   map[string]any{"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "eg"},
			"type":        "JSONPatch",
			"jsonPatches": patches,
		},
	})
}

// TestEnvoyTakesWhatTheExamplesAdd: the patches put together with a bootstrap and a listener as these control planes
// have them. The control planes themselves do not run here.
func TestEnvoyTakesWhatTheExamplesAdd(t *testing.T) {
	p := bootstrapParts(t)
	clusters := []any{p.steelyard}
	for _, c := range p.clusters {
		clusters = append(clusters, c)
	}
	all := maps.Clone(p.bootstrap)
	all["node"] = map[string]any{"id": "router~10.0.0.1~gateway.models", "cluster": "gateway.models"}
	all["layered_runtime"] = map[string]any{"layers": append([]any{
		map[string]any{"name": "global config",
			"static_layer": map[string]any{"re2.max_program_size.error_level": 32768}},
		map[string]any{"name": "admin", "admin_layer": map[string]any{}},
	}, p.bootstrap["layered_runtime"].(map[string]any)["layers"].([]any)...)}
	all["static_resources"] = map[string]any{"clusters": clusters, "listeners": []any{map[string]any{
		"address": map[string]any{"socket_address": map[string]any{"address": "127.0.0.1", "port_value": 0}},
		"filter_chains": []any{map[string]any{"filters": []any{map[string]any{
			"name": "envoy.filters.network.http_connection_manager",
			"typed_config": map[string]any{
				"@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3." +
					"HttpConnectionManager",
				"stat_prefix":  "gateway",
				"http_filters": []any{map[string]any{"name": "envoy.filters.http.router", "typed_config": p.router}},
				"route_config": map[string]any{"virtual_hosts": []any{map[string]any{
					"name": "all", "domains": []any{"*"},
					"routes": []any{map[string]any{"match": map[string]any{"prefix": "/"},
						"route": map[string]any{"cluster": "llama_failsafe", "timeout": "0s"}}}}}},
			},
		}}}},
	}}}
	text, err := yaml.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	if out, err := proc.ValidateEnvoy(t.Context(), t.TempDir(), text); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// examples returns the files of manifests/examples.
func examples(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(manifests, "examples/*.yaml"))
	if err != nil || len(files) < 3 {
		t.Fatalf("examples: %v, %v", files, err)
	}
	return files
}

func read(t *testing.T, file string) []object {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, file, text)
}
