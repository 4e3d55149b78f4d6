package gateways

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	confv1 "sigs.k8s.io/gateway-api/conformance/apis/v1"
	"sigs.k8s.io/gateway-api/conformance/utils/roundtripper"
	"sigs.k8s.io/yaml"

	"sigs.k8s.io/gateway-api-inference-extension/conformance"
	"sigs.k8s.io/gateway-api-inference-extension/conformance/resources"

	"steelyard/e2e/rig/golden"
)

// needPickers are tests of the suite that choose a Pod by a picker of the suite's own, and the pools of Steelyard have
// none. The suite lists them as skipped.
var needPickers = map[string]string{
	"EppUnAvailableFailOpen":                        "stops the picker",
	"GatewayDestinationEndpointServed":              "tells the picker which endpoint to name",
	"GatewayFollowingEPPRouting":                    "tells the picker which endpoints to name",
	"GatewayFollowingEPPRoutingWithDataParallelism": "tells the picker which endpoints to name",
	"GatewayWeightedAcrossTwoInferencePools":        "has the picker name each Pod before it measures the weights",
	"InferencePoolAppProtocol":                      "has the picker name each Pod, and one pool speaks HTTP/2",
	"InferencePoolInvalidEPPService":                "names a Service that does not exist as the picker",
}

const report = "conformance/v1.6.0-envoy-gateway.yaml"

// TestConformance runs the Gateway API Inference Extension's own tests with Envoy Gateway and Steelyard. Three things
// are changed. The pools have no endpointPickerRef. The two Gateways have different ports, because both Envoys run on
// one machine. And the Pods of Envoys are written into the namespace of the Gateways, where the suite wants some:
// Envoy Gateway has them in its own.
func TestConformance(t *testing.T) {
	r := newRig(t, envoyGateway{})
	base, err := withoutPickers{conformance.Manifests}.ReadFile("resources/base.yaml")
	r.must(err)
	r.apply("%s", strings.ReplaceAll(string(base), "{GATEWAY_CLASS_NAME}", "eg"))
	for i, app := range []string{resources.PrimaryModelServerAppLabel, resources.SecondaryModelServerAppLabel} {
		for n, ip := range servers[3*i : 3*i+3] {
			r.echo(app, fmt.Sprintf("%s-deployment-%d", app, n), ip)
		}
	}
	for i, name := range []string{resources.PrimaryGatewayName, resources.SecondaryGatewayName} {
		r.deployed(resources.InfraNamespace, name, envoyAdmin+1+i)
		r.available(name)
	}

	t.Setenv("KUBECONFIG", r.path("kubeconfig"))
	options := conformance.DefaultOptions(t)
	options.GatewayClassName, options.CleanupBaseResources = "eg", false
	options.ManifestFS = []fs.FS{withoutPickers{conformance.Manifests}}
	options.SkipTests = slices.Sorted(maps.Keys(needPickers))
	options.Implementation = confv1.Implementation{Organization: "Steelyard", Project: "Steelyard",
		URL: "not published", Version: "with Envoy Gateway 1.9.1", Contact: []string{"not published"}}
	options.ReportOutputPath = r.path("report.yaml")
	conformance.RunConformanceWithOptions(t, options)
	if s, err := r.status(); err != nil || s.EnvoyGateway.Failures > 0 { // also for routes that went at once
		t.Errorf("Envoy Gateway was refused: %+v, %v", s.EnvoyGateway, err)
	}
	got, err := os.ReadFile(options.ReportOutputPath)
	r.must(err)
	golden.Check(t, report, dated(got))
}

// dated is a report with the date of the one that is kept.
func dated(got []byte) string {
	date := regexp.MustCompile(`(?m)^date: .*$`)
	kept, _ := os.ReadFile(report) // without one, it is of today
	if d := date.Find(kept); d != nil {
		got = date.ReplaceAll(got, d)
	}
	return string(got)
}

// withoutPickers are manifests of the suite for pools without a picker.
type withoutPickers struct{ fs.FS }

func (w withoutPickers) ReadFile(name string) ([]byte, error) {
	text, err := fs.ReadFile(w.FS, name)
	if err != nil {
		return nil, err
	}
	var out strings.Builder
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		var o unstructured.Unstructured
		if err := yaml.Unmarshal([]byte(document), &o.Object); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		switch {
		case len(o.Object) == 0:
			continue
		case o.GetKind() == "InferencePool":
			unstructured.RemoveNestedField(o.Object, "spec", "endpointPickerRef")
		case o.GetKind() == "Gateway":
			port := map[string]int64{resources.PrimaryGatewayName: 8889, resources.SecondaryGatewayName: 8890}
			listeners, _, _ := unstructured.NestedSlice(o.Object, "spec", "listeners")
			listeners[0].(map[string]any)["port"] = port[o.GetName()]
			if err := unstructured.SetNestedSlice(o.Object, listeners, "spec", "listeners"); err != nil {
				return nil, err
			}
		}
		changed, err := yaml.Marshal(o.Object)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&out, "---\n%s", changed)
	}
	return []byte(out.String()), nil
}

// echo runs a model server of the suite, which answers with the request.
func (r *rig) echo(app, name, ip string) {
	r.t.Helper()
	server := &http.Server{Addr: ip + ":3000", ReadHeaderTimeout: time.Minute,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(roundtripper.CapturedRequest{Path: q.RequestURI, Host: q.Host,
				Method: q.Method, Protocol: q.Proto, Headers: q.Header, Namespace: resources.AppBackendNamespace,
				Pod: name})
		})}
	go func() { _ = server.ListenAndServe() }()
	r.whole.Cleanup(func() { _ = server.Close() })
	r.ready(resources.AppBackendNamespace, app, name, ip)
}

// ready writes a Pod.
func (r *rig) ready(namespace, app, name, ip string) {
	r.t.Helper()
	r.apply(`
apiVersion: v1
kind: Pod
metadata: {name: "%s", namespace: "%s", labels: {app: "%s"}}
spec: {nodeName: node, serviceAccountName: default, containers: [{name: main, image: main}]}
status:
  phase: Running
  podIP: "%s"
  podIPs: [{ip: "%[4]s"}]
  conditions: [{type: Ready, status: "True"}]
`, name, namespace, app, ip)
}

// available says that the Envoy of a Gateway runs, and where it can be reached.
func (r *rig) available(gateway string) {
	r.t.Helper()
	deployment, err := r.owned("apps/v1", "Deployment", gateway)
	r.must(err)
	service, err := r.owned("v1", "Service", gateway)
	r.must(err)
	r.apply(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: "%s", namespace: envoy-gateway-system}
status: {replicas: 1, readyReplicas: 1, availableReplicas: 1, updatedReplicas: 1, observedGeneration: 1}
---
apiVersion: v1
kind: Service
metadata: {name: "%s", namespace: envoy-gateway-system}
status: {loadBalancer: {ingress: [{ip: "%s"}]}}
`, deployment.GetName(), service.GetName(), servers[0])
	r.ready(resources.InfraNamespace, "envoy", gateway, servers[0])
}
