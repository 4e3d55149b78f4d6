package manifests

import (
	"bytes"
	"encoding/json"
	"maps"
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
	golden.Check(t, filepath.Join(manifests, "examples/istio.yaml"), string(istio(t, p)))
	golden.Check(t, filepath.Join(manifests, "examples/envoy-gateway.yaml"), string(envoyGateway(t, p)))
	golden.Check(t, filepath.Join(manifests, "gateways/envoy-gateway-values.yaml"), string(envoyGatewayPools(t, p)))
}

const aboutPools = "" +
	`# Values for Envoy Gateway's chart, 1.9 or newer: Envoy Gateway then asks Steelyard how InferencePools are served
# (docs/gateways.md), and the bootstrap of its Envoys has the connection to Steelyard. That replaces their Pods once.
#
#   helm upgrade eg oci://docker.io/envoyproxy/gateway-helm -n envoy-gateway-system --reuse-values --values FILE
#
# A Gateway or GatewayClass with an EnvoyProxy of its own needs spec.mergeType in it, or these lines.
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
				"post": []any{"Endpoints", "Cluster", "Translation"},
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

const aboutIstio = "" +
	`# For an ingress gateway of Istio in the namespace models, whose VirtualService has a route named "llama". The
# model servers are the Service llama there, port 8000: it gets the requests of an Envoy that cannot follow Steelyard.
#
# 1. Apply this file.
# 2. In the template of the gateway's Deployment, add the label steelyard.dev/envoy: "true" and the annotation
#    sidecar.istio.io/bootstrapOverride: steelyard-bootstrap. That replaces its Pods. The EnvoyFilter is only for Pods
#    with the label, and the bootstrap is read at their start.
#
# To detach, delete the EnvoyFilter first. Whether an Envoy follows, only "steelyard status" shows.
#
# The addition to the bootstrap is Istio's own way, a ConfigMap: a patch of an EnvoyFilter to BOOTSTRAP is accepted, and
# does nothing since Istio 1.21 (istio/istio#48693).
`

const aboutIstioGatewayAPI = "" +
	`# For a Gateway of the Gateway API, whose Deployment Istio makes, in place of step 2: let
# spec.infrastructure.parametersRef of the Gateway name this ConfigMap ({group: "", kind: ConfigMap, name:
# steelyard-gateway}), and name the rule of its HTTPRoute "llama".
`

// istio attaches the Envoys of an ingress gateway. The route is one that a VirtualService of the namespace models
// names "llama".
func istio(t *testing.T, p parts) []byte {
	bootstrap, err := json.MarshalIndent(p.bootstrap, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	// As the annotation has it done where Istio injects the gateway's container.
	overlay, err := yaml.Marshal(map[string]any{"spec": map[string]any{"template": map[string]any{
		"metadata": map[string]any{"labels": labelled},
		"spec": map[string]any{
			"containers": []any{map[string]any{"name": "istio-proxy",
				"env": []any{map[string]any{"name": "ISTIO_BOOTSTRAP_OVERRIDE",
					"value": "/etc/istio/custom-bootstrap/custom_bootstrap.json"}},
				"volumeMounts": []any{map[string]any{"name": "custom-bootstrap-volume",
					"mountPath": "/etc/istio/custom-bootstrap", "readOnly": true}}}},
			"volumes": []any{map[string]any{"name": "custom-bootstrap-volume",
				"configMap": map[string]any{"name": "steelyard-bootstrap"}}},
		}}}})
	if err != nil {
		t.Fatal(err)
	}
	return asYAML(t, aboutIstio, configMap("steelyard-bootstrap", "custom_bootstrap.json", bootstrap),
		aboutIstioGatewayAPI, configMap("steelyard-gateway", "deployment", overlay), "", envoyFilter(p))
}

// typed is the configuration of a router filter, which Istio wants with its type.
func typed(router map[string]any) map[string]any {
	out := map[string]any{"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}
	maps.Copy(out, router)
	return out
}

// labelled are the labels of the Pods that Steelyard admits.
var labelled = map[string]any{"steelyard.dev/envoy": "true"}

func configMap(called, key string, text []byte) map[string]any {
	return map[string]any{"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"name": called, "namespace": "models"}, "data": map[string]any{key: string(text)}}
}

// envoyFilter adds the clusters, sends the route there, and adds the log.
func envoyFilter(p parts) map[string]any {
	patch := func(to, operation string, where map[string]any, value any) map[string]any {
		match := map[string]any{"context": "GATEWAY"}
		maps.Copy(match, where)
		return map[string]any{"applyTo": to, "match": match,
			"patch": map[string]any{"operation": operation, "value": value}}
	}
	var patches []any
	for _, c := range p.clusters {
		patches = append(patches, patch("CLUSTER", "ADD", nil, c))
	}
	manager := map[string]any{"name": "envoy.filters.network.http_connection_manager",
		"subFilter": map[string]any{"name": "envoy.filters.http.router"}}
	patches = append(patches,
		patch("HTTP_FILTER", "MERGE",
			map[string]any{"listener": map[string]any{"filterChain": map[string]any{"filter": manager}}},
			map[string]any{"name": "envoy.filters.http.router", "typed_config": typed(p.router)}),
		patch("HTTP_ROUTE", "MERGE",
			map[string]any{"routeConfiguration": map[string]any{
				"vhost": map[string]any{"route": map[string]any{"name": "llama"}}}},
			map[string]any{"route": map[string]any{"cluster": "llama_failsafe", "timeout": "0s"}}))
	return map[string]any{
		"apiVersion": "networking.istio.io/v1alpha3", "kind": "EnvoyFilter",
		"metadata": map[string]any{"name": "steelyard", "namespace": "models"},
		"spec": map[string]any{
			"workloadSelector": map[string]any{"labels": labelled},
			"configPatches":    patches,
		},
	}
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
