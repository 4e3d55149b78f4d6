package istio

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	aggregatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/aggregate/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	managerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"istio.io/istio/pilot/pkg/config/kube/crd"
	"istio.io/istio/pilot/pkg/features"
	"istio.io/istio/pilot/pkg/model"
	"istio.io/istio/pilot/test/xds"
	"istio.io/istio/pkg/config/validation/envoyfilter"
	"istio.io/istio/pkg/test"
	"istio.io/istio/pkg/test/util/retry"
	"sigs.k8s.io/yaml"
)

// objects are the gateway "eg" of the Gateway API, and Services that its route names.
const objects = `
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: istio}
spec: {controllerName: istio.io/gateway-controller}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: eg, namespace: models}
spec: {gatewayClassName: istio, listeners: [{name: http, port: 80, protocol: HTTP}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: llama, namespace: models}
spec:
  parentRefs: [{name: eg}]
  hostnames: [llama.example.com]
  rules: [{backendRefs: [{name: llama, port: 8000, weight: 3}, {name: embed, port: 80, weight: 1}]}]
---
apiVersion: v1
kind: Service
metadata: {name: eg-istio, namespace: models}
spec:
  clusterIP: 10.1.0.1
  selector: {gateway.networking.k8s.io/gateway-name: eg}
  ports: [{name: http, port: 80, targetPort: 80}]
---
apiVersion: v1
kind: Service
metadata: {name: llama, namespace: models}
spec: {clusterIP: 10.1.0.2, selector: {app: llama}, ports: [{name: http, port: 8000, targetPort: 8000}]}
---
apiVersion: v1
kind: Service
metadata: {name: embed, namespace: models}
spec: {clusterIP: 10.1.0.3, selector: {app: embed}, ports: [{name: http, port: 80, targetPort: 8000}]}
`

// configs are routes of Istio's own API, on the same Envoys.
const configs = `
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: own, namespace: models}
spec:
  selector: {gateway.networking.k8s.io/gateway-name: eg}
  servers: [{port: {number: 8080, name: http, protocol: HTTP}, hosts: ["*"]}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: llama, namespace: models}
spec:
  hosts: ["llama.example.org"]
  gateways: [own]
  http:
  - timeout: 7s
    retries: {attempts: 5, retryOn: reset}
    route: [{destination: {host: llama.models.svc.cluster.local, port: {number: 8000}}}]
---
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: default, namespace: models}
spec: {mtls: {mode: STRICT}}
`

// The clusters of the Services under the names that routes have.
const (
	llama = "outbound|8000||llama.models.svc.cluster.local"
	embed = "outbound|80||embed.models.svc.cluster.local"
)

// files returns a reader of what steelyard bootstrap --form istio writes for the gateway.
func files(t *testing.T, args ...string) func(name string) []byte {
	t.Helper()
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"run", "./cmd/steelyard", "bootstrap", "--form",
		"istio", "--gateway", "models/eg", "--xds", "steelyard-xds.steelyard.svc:18000", "--out", dir,
		"--cluster", "models.llama=llama.models.svc.cluster.local:8000",
		"--cluster", "models.embed=embed.models.svc.cluster.local:80"}, args...)...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
	return func(name string) []byte {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
}

// An outcome is what Istio sends to an Envoy, by name.
type outcome struct {
	clusters  map[string]*clusterv3.Cluster
	listeners map[string]*listenerv3.Listener
	routes    map[string]*routev3.RouteConfiguration
}

// translate returns what Istio makes for Envoys of the gateway whose Pods have these labels besides their own.
func translate(t *testing.T, labels map[string]string, applied ...[]byte) outcome {
	t.Helper()
	// Filters that only Istio's own Envoy has.
	test.SetForTest(t, &features.MetadataExchange, false)
	test.SetForTest(t, &features.ALPNFilter, false)
	config := configs
	for _, text := range applied {
		config += "---\n" + string(text)
	}
	s := xds.NewFakeDiscoveryServer(t, xds.FakeOptions{KubernetesObjectString: objects, ConfigString: config})
	labels = maps.Clone(labels)
	labels["gateway.networking.k8s.io/gateway-name"] = "eg"
	var o outcome
	retry.UntilSuccessOrFail(t, func() error { // the routes of both APIs are translated in the background
		p := s.SetupProxy(&model.Proxy{Type: model.Router, ConfigNamespace: "models", Labels: labels,
			IPAddresses: []string{"10.2.0.1"},
			Metadata:    &model.NodeMetadata{Namespace: "models", ClusterID: "Kubernetes", Labels: labels}})
		o = outcome{byName(t, s.Clusters(p)), byName(t, s.Listeners(p)), byName(t, s.Routes(p))}
		if n := len(o.actions()); n < 2 {
			return fmt.Errorf("there are %d routes", n)
		}
		return nil
	})
	return o
}

func byName[R interface{ GetName() string }](t *testing.T, all []R) map[string]R {
	t.Helper()
	named := map[string]R{}
	for _, r := range all {
		if _, twice := named[r.GetName()]; twice {
			t.Errorf("Istio sends %s twice", r.GetName())
		}
		named[r.GetName()] = r
	}
	return named
}

// patched returns the labels that step 2 gives the Pods of a Deployment.
func patched(t *testing.T, patch []byte) map[string]string {
	t.Helper()
	var deployment struct {
		Spec struct {
			Template struct {
				Metadata struct {
					Labels map[string]string `json:"labels"`
				} `json:"metadata"`
			} `json:"template"`
		} `json:"spec"`
	}
	if err := yaml.Unmarshal(patch, &deployment); err != nil {
		t.Fatal(err)
	}
	return deployment.Spec.Template.Metadata.Labels
}

func TestIstioAcceptsTheObjectsWithoutAWarning(t *testing.T) {
	for _, args := range [][]string{{}, {"--mesh"}} {
		file := files(t, args...)
		found := 0
		for _, name := range []string{"1-clusters.yaml", "3-routes.yaml"} {
			objects, _, err := crd.ParseInputs(string(file(name)))
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			for _, o := range objects {
				warning, err := envoyfilter.ValidateEnvoyFilter(o)
				if err != nil {
					t.Errorf("%s: %v", o.Name, err)
				}
				// Istio warns of each EnvoyFilter.
				const each = "EnvoyFilter exposes internal implementation details"
				if w := warning.Error(); !strings.HasPrefix(w, each) || strings.Contains(w, "\n") {
					t.Errorf("%s: %v", o.Name, w)
				}
				found++
			}
		}
		if found != 2 {
			t.Errorf("%v: there are %d EnvoyFilters", args, found)
		}
	}
}

// TestEachStepChangesWhatItSays: clusters come by step 1, once step 2 has labelled the Pods; step 3 puts others under
// the names that routes have, so no step changes a route.
func TestEachStepChangesWhatItSays(t *testing.T) {
	file := files(t)
	labels := patched(t, file("2-deployment.yaml"))
	before := translate(t, labels)
	first := translate(t, labels, file("1-clusters.yaml"))
	third := translate(t, labels, file("1-clusters.yaml"), file("3-routes.yaml"))
	unlabelled := translate(t, map[string]string{}, file("1-clusters.yaml"), file("3-routes.yaml"))

	if got := before.differs(unlabelled); got != "" {
		t.Errorf("Pods from before step 2 get %s", got)
	}
	if got, want := before.differs(first), "cluster models.embed, cluster models.embed_fallback, cluster "+
		"models.embed_known, cluster models.llama, cluster models.llama_fallback, cluster models.llama_known, "+
		"listener 0.0.0.0_80, listener 0.0.0.0_8080"; got != want {
		t.Errorf("step 1 changes %q, want %q", got, want)
	}
	if got, want := first.differs(third), "cluster "+llama+", cluster "+embed; got != want {
		t.Errorf("step 3 changes %q, want %q", got, want)
	}
	for _, l := range first.listeners {
		if n := len(routerOf(t, l).GetUpstreamLog()); n != 2 {
			t.Errorf("the router of %s has %d upstream logs", l.GetName(), n)
		}
	}
	for name, pool := range map[string]string{llama: "models.llama", embed: "models.embed"} {
		if first.clusters[name].GetType() != clusterv3.Cluster_EDS {
			t.Errorf("before step 3, %s is %v", name, first.clusters[name])
		}
		var members aggregatev3.ClusterConfig
		unpack(t, third.clusters[name].GetClusterType().GetTypedConfig(), &members)
		if want := []string{pool, pool + "_fallback", pool + "_known"}; !slices.Equal(members.GetClusters(), want) {
			t.Errorf("%s leads to %v, want %v", name, members.GetClusters(), want)
		}
	}
	third.routed(t)
}

// routed checks that both kinds of routes are there, with their weights, timeouts and retries.
func (o outcome) routed(t *testing.T) {
	t.Helper()
	actions := o.actions()
	canary := actions["llama.example.com"].GetWeightedClusters().GetClusters()
	if len(canary) != 2 || canary[0].GetName() != llama || canary[0].GetWeight().GetValue() != 3 ||
		canary[1].GetName() != embed {
		t.Errorf("the HTTPRoute leads to %v", canary)
	}
	own := actions["llama.example.org"]
	if own.GetCluster() != llama || own.GetTimeout().AsDuration().Seconds() != 7 ||
		own.GetRetryPolicy().GetNumRetries().GetValue() != 5 {
		t.Errorf("the VirtualService leads to %v", own)
	}
}

// actions returns what is done with requests, by host.
func (o outcome) actions() map[string]*routev3.RouteAction {
	all := map[string]*routev3.RouteAction{}
	for _, r := range o.routes {
		for _, h := range r.GetVirtualHosts() {
			if action := h.GetRoutes()[0].GetRoute(); action != nil {
				all[h.GetDomains()[0]] = action
			}
		}
	}
	return all
}

// differs names what another outcome has more, less or otherwise.
func (o outcome) differs(other outcome) string {
	all := slices.Concat(differ("cluster", o.clusters, other.clusters),
		differ("listener", o.listeners, other.listeners), differ("route", o.routes, other.routes))
	return strings.Join(all, ", ")
}

func differ[R proto.Message](kind string, a, b map[string]R) (names []string) {
	for name := range a {
		if _, ok := b[name]; !ok {
			names = append(names, kind+" "+name)
		}
	}
	for name, r := range b {
		if !proto.Equal(a[name], r) {
			names = append(names, kind+" "+name)
		}
	}
	slices.Sort(names)
	return names
}

func routerOf(t *testing.T, l *listenerv3.Listener) *routerv3.Router {
	t.Helper()
	var manager managerv3.HttpConnectionManager
	var router routerv3.Router
	unpack(t, l.GetFilterChains()[0].GetFilters()[0].GetTypedConfig(), &manager)
	filters := manager.GetHttpFilters()
	unpack(t, filters[len(filters)-1].GetTypedConfig(), &router)
	return &router
}

func unpack(t *testing.T, packed *anypb.Any, into proto.Message) {
	t.Helper()
	if err := packed.UnmarshalTo(into); err != nil {
		t.Fatal(err)
	}
}

// TestTheMutualTLSOfTheMeshIsIstios: as in the cluster that step 3 takes the place of.
func TestTheMutualTLSOfTheMeshIsIstios(t *testing.T) {
	file := files(t, "--mesh")
	o := translate(t, patched(t, file("2-deployment.yaml")), file("1-clusters.yaml"))
	var want tlsv3.UpstreamTlsContext
	for _, m := range o.clusters[llama].GetTransportSocketMatches() {
		if m.GetName() == "tlsMode-istio" {
			unpack(t, m.GetTransportSocket().GetTypedConfig(), &want)
		}
	}
	if want.GetSni() == "" {
		t.Fatalf("Istio speaks no TLS itself: %v", o.clusters[llama])
	}
	for _, name := range []string{"models.llama", "models.llama_fallback", "models.llama_known"} {
		var got tlsv3.UpstreamTlsContext
		unpack(t, o.clusters[name].GetTransportSocket().GetTypedConfig(), &got)
		if got.GetSni() != want.GetSni() {
			t.Errorf("%s: the name is %s, want %s", name, got.GetSni(), want.GetSni())
		}
		if got, want := secretsOf(&got), secretsOf(&want); got != want {
			t.Errorf("%s: the secrets are\n%s\nwant\n%s", name, got, want)
		}
	}
}

func secretsOf(c *tlsv3.UpstreamTlsContext) string {
	common := c.GetCommonTlsContext()
	return fmt.Sprintln(common.GetTlsCertificateSdsSecretConfigs(),
		common.GetCombinedValidationContext().GetValidationContextSdsSecretConfig())
}

// TestEnvoyTakesWhatIstioSends: with the bootstrap of step 1, which Istio's agent has Envoy merge into its own.
func TestEnvoyTakesWhatIstioSends(t *testing.T) {
	envoy, err := filepath.Abs("../../../.tools/bin/envoy")
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{}, {"--mesh"}} {
		file := files(t, args...)
		o := translate(t, patched(t, file("2-deployment.yaml")), file("1-clusters.yaml"), file("3-routes.yaml"))
		var override struct {
			Data map[string]string `json:"data"`
		}
		configMap, _, _ := strings.Cut(string(file("1-clusters.yaml")), "\n---\n")
		if err := yaml.Unmarshal([]byte(configMap), &override); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "envoy.json")
		if err := os.WriteFile(path, o.bootstrap(t), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.CommandContext(t.Context(), envoy, "--mode", "validate", "--config-path", path,
			"--config-yaml", override.Data["custom_bootstrap.json"]).CombinedOutput()
		if err != nil {
			t.Errorf("%v: %v\n%s", args, err, out)
		}
	}
}

// bootstrap is one as Istio's agent writes, with the resources that istiod sends later.
func (o outcome) bootstrap(t *testing.T) []byte {
	t.Helper()
	text := func(m proto.Message) json.RawMessage {
		out, err := protojson.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	var clusters, listeners []any
	for _, c := range o.clusters {
		clusters = append(clusters, text(c))
	}
	for _, l := range o.listeners {
		listeners = append(listeners, text(l))
	}
	for _, name := range []string{"xds-grpc", "sds-grpc"} { // of the agent
		clusters = append(clusters, map[string]any{"name": name})
	}
	out, err := json.Marshal(map[string]any{
		"node": map[string]any{"id": "router~10.2.0.1~eg.models~models.svc.cluster.local", "cluster": "eg.models"},
		"dynamic_resources": map[string]any{"ads_config": map[string]any{"api_type": "GRPC",
			"transport_api_version": "V3", "grpc_services": []any{map[string]any{
				"envoy_grpc": map[string]any{"cluster_name": "xds-grpc"}}}}},
		"static_resources": map[string]any{"clusters": clusters, "listeners": listeners},
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}
