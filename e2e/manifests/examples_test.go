package manifests

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"sigs.k8s.io/yaml"

	"steelyard/e2e/rig/golden"
	envoybootstrap "steelyard/envoy-bootstrap"
)

// parts are what an Envoy of another control plane needs.
type parts struct {
	clusters  []map[string]any // the weighted one, its fallback and the pair of them
	router    map[string]any   // additions to the configuration of the router filter
	bootstrap map[string]any   // the top-level sections, with the cluster of Steelyard itself
}

func bootstrapParts(t *testing.T) (p parts) {
	t.Helper()
	rendered, err := envoybootstrap.RenderParts(envoybootstrap.Options{
		Cluster: "llama", XDS: "steelyard-xds.steelyard.svc:18000", Fallback: []string{"llama.models.svc:8000"},
	})
	if err != nil {
		t.Fatal(err)
	}
	for text, into := range map[*[]byte]any{&rendered.Bootstrap: &p.bootstrap, &rendered.Clusters: &p.clusters,
		&rendered.Router: &p.router} {
		if err := yaml.Unmarshal(*text, into); err != nil {
			t.Fatal(err)
		}
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
	for name, text := range istio(t) {
		golden.Check(t, filepath.Join(manifests, "examples/istio", name), string(text))
	}
	golden.Check(t, filepath.Join(manifests, "examples/envoy-gateway.yaml"), string(envoyGateway(t, p)))
	golden.Check(t, filepath.Join(manifests, "gateways/envoy-gateway-values.yaml"), string(envoyGatewayPools(t, p)))
}

const aboutPools = "" +
	`# Values for Envoy Gateway's chart, 1.9 or newer: Envoy Gateway then asks Steelyard how InferencePools are served
# (docs/gateways.md), and the bootstrap of its Envoys has the connection to Steelyard. That replaces their Pods once.
#
#   helm upgrade eg oci://docker.io/envoyproxy/gateway-helm --version YOURS -n envoy-gateway-system \
#     --reset-then-reuse-values --values FILE
#
# An EnvoyProxy that a Gateway or GatewayClass names needs mergeType: StrategicMerge. A bootstrap in it, or in your own
# values, you merge with this one.
`

// envoyGatewayPools has the settings of Envoy Gateway for InferencePools.
func envoyGatewayPools(t *testing.T, p parts) []byte {
	text, err := yaml.Marshal(p.bootstrap)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]any{"includeAll": true}
	return asYAML(t, aboutPools, map[string]any{"config": map[string]any{"envoyGateway": map[string]any{
		"extensionManager": map[string]any{
			"backendResources": []any{map[string]any{"group": "inference.networking.k8s.io", "version": "v1",
				"kind": "InferencePool"}},
			"hooks": map[string]any{"xdsTranslator": map[string]any{
				"post": []any{"Cluster", "Translation"},
				"translation": map[string]any{"cluster": all, "listener": all, "route": all,
					"secret": map[string]any{"includeAll": false}},
			}},
			"maxMessageSize": "64Mi",
			"service": map[string]any{"fqdn": map[string]any{
				"hostname": "steelyard-gateway.steelyard.svc.cluster.local", "port": 18001}},
		},
		"envoyProxy": map[string]any{
			"bootstrap": map[string]any{"type": "Merge", "value": string(text)},
			"provider": map[string]any{"type": "Kubernetes", "kubernetes": map[string]any{
				"envoyDeployment": map[string]any{"pod": map[string]any{"labels": labelled}}}},
		},
	}}})
}

// istio is for a gateway "ingressgateway" in the namespace models.
func istio(t *testing.T) envoybootstrap.IstioFiles {
	t.Helper()
	files, err := envoybootstrap.RenderIstio(envoybootstrap.IstioGateway{Namespace: "models", Name: "ingressgateway",
		Services: []envoybootstrap.IstioService{
			{Cluster: "models.llama", Address: "llama.models.svc.cluster.local:8000"}}},
		envoybootstrap.Options{XDS: "steelyard-xds.steelyard.svc:18000"})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// labelled are the labels of the Pods that Steelyard admits.
var labelled = map[string]any{"steelyard.dev/envoy": "true"}

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
	return asYAML(t, aboutEnvoyGateway, map[string]any{
		"apiVersion": "gateway.envoyproxy.io/v1alpha1", "kind": "EnvoyProxy",
		"metadata": map[string]any{"name": "steelyard", "namespace": "models"},
		"spec": map[string]any{
			"bootstrap": map[string]any{"type": "Merge", "value": string(text)},
			"provider": map[string]any{"type": "Kubernetes", "kubernetes": map[string]any{
				"envoyDeployment": map[string]any{"pod": map[string]any{"labels": labelled}}}},
		},
	}, aboutRetries, map[string]any{
		"apiVersion": "gateway.envoyproxy.io/v1alpha1", "kind": "BackendTrafficPolicy",
		"metadata": map[string]any{"name": "steelyard", "namespace": "models"},
		"spec": map[string]any{
			"targetRefs": []any{map[string]any{"group": "gateway.networking.k8s.io", "kind": "HTTPRoute",
				"name": "llama"}},
			"retry": map[string]any{"numRetries": 3, "retryOn": map[string]any{
				"triggers": []any{"connect-failure", "refused-stream", "reset-before-request"}}},
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

const aboutEnvoyGateway = "" +
	`# For the Gateway "eg" with the listener "http" and the HTTPRoute "llama", all in the namespace models. The
# model servers are the Service llama there, port 8000: it gets the requests of an Envoy that cannot follow Steelyard.
#
# 1. In the configuration of Envoy Gateway, extensionApis.enableEnvoyPatchPolicy is true, and the runtime flag
#    XDSNameSchemeV2 is off, as it is by default: with it, listeners have other names.
# 2. Apply this file.
# 3. Let the GatewayClass, or spec.infrastructure.parametersRef of the Gateway, name the EnvoyProxy. That replaces the
#    Pods, whose bootstrap then has Steelyard.
#
# To detach, delete the EnvoyPatchPolicy first. Its status Programmed does not say that an Envoy took it: "steelyard
# status" does.
`

const aboutRetries = "" +
	`# Envoy Gateway's routes retry nothing by themselves. Of such a policy, only what is for the route has an effect
# here: timeouts, circuit breakers and health checks are for the cluster that is replaced below.
`

// examples returns the files of manifests/examples.
func examples(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(manifests, "examples/*.yaml"))
	if err != nil || len(files) < 2 {
		t.Fatalf("examples: %v, %v", files, err)
	}
	for _, name := range []string{envoybootstrap.IstioClusters, envoybootstrap.IstioRoutes} {
		files = append(files, filepath.Join(manifests, "examples/istio", name))
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
