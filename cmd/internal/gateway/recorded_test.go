package gateway

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	managerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"steelyard/e2e/rig/hooks"
	"steelyard/e2e/rig/proc"
	"steelyard/e2e/rig/proc/proctest"
	envoybootstrap "steelyard/envoy-bootstrap"
	"steelyard/internal/extension"
)

// The clusters of pools.
const (
	ofLlama = "models.llama_failsafe models.llama models.llama_fallback models.llama_known"
	ofNext  = "models.next_failsafe models.next models.next_fallback models.next_known"
)

// TestWhatEnvoyGatewayAsksIsAnswered plays what the real one has asked about a rule, and has a real Envoy check the
// answer. e2e/gateways records it.
func TestWhatEnvoyGatewayAsksIsAnswered(t *testing.T) {
	folder, err := proc.BuildModule()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(proc.ModulePath, folder)
	const limits = ", timeout 0s, 5 retries"
	for _, c := range []struct {
		name     string
		backends []Backend
		routes   []string // OWN is Envoy Gateway's own cluster of the rule
		clusters string   // that are added
	}{
		{"pool", []Backend{ofPool("llama", 1)}, []string{"models.llama_failsafe" + limits}, ofLlama},
		{"pools", []Backend{ofPool("llama", 9), ofPool("next", 1)},
			[]string{"models.llama_failsafe=9 models.next_failsafe=1" + limits}, ofLlama + " " + ofNext},
		{"service-and-pool", []Backend{ofService(3), ofPool("llama", 1)},
			[]string{"OWN=3 models.llama_failsafe=1" + limits}, ofLlama},
		{"filtered-service-and-pool", []Backend{ofService(3), ofPool("llama", 1)},
			[]string{"OWN/backend/0=3 models.llama_failsafe=1" + limits}, ofLlama},
		{"module", []Backend{ofPool("llama", 1)},
			[]string{"models.llama_picked" + limits, "models.llama_failsafe" + limits},
			ofLlama + " models.llama_picked"},
		{"picker", []Backend{ofPool("picked", 1)}, []string{"OWN"}, ""},
		{"timeout-and-retries", []Backend{ofPool("llama", 1)}, []string{"models.llama_failsafe, timeout 7s, 2 retries"},
			ofLlama},
		{"https", []Backend{ofPool("llama", 1)}, []string{"models.llama_failsafe" + limits}, ofLlama},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			rule := "httproute/models/" + c.name + "/rule/0"
			s := fake{rule: c.backends}.server()
			filters := []string{"envoy.filters.http.router"}
			if c.name == "module" {
				s.options.ModuleXDS, s.options.ModuleGateways = "127.0.0.1:18000", []string{"models/eg"}
				filters = append([]string{"steelyard.models.llama"}, filters...)
			}
			in, out := play(t, s, c.name)
			var routes []string
			for _, r := range out.Routes[0].VirtualHosts[0].Routes {
				routes = append(routes, strings.ReplaceAll(sent(r), rule, "OWN")+limitsOf(r.GetRoute()))
			}
			if !slices.Equal(routes, c.routes) {
				t.Errorf("the routes are %q, want %q", routes, c.routes)
			}
			if got := names(out.Clusters); got != strings.TrimSpace(names(in.Clusters)+" "+c.clusters) {
				t.Errorf("the clusters are %s, want %s after those of Envoy Gateway", got, c.clusters)
			}
			if got, all := filtersOf(t, out); !slices.Equal(got, filters) ||
				strings.Contains(all, `log_name:"steelyard"`) != (c.clusters != "") {
				t.Errorf("the filters are %s, want %s, with a log if there is a pool: %s", got, filters, all)
			}
			if c.clusters == "" && !proto.Equal(out, &extension.PostTranslateModifyResponse{Clusters: in.Clusters,
				Listeners: in.Listeners, Routes: in.Routes}) {
				t.Errorf("what is not Steelyard's has changed: %v", out)
			}
			validate(t, out)
		})
	}
}

// limitsOf are the timeout and the retries of a route, if it has any.
func limitsOf(a *routev3.RouteAction) string {
	if a.RetryPolicy == nil {
		return ""
	}
	return fmt.Sprintf(", timeout %s, %d retries", a.Timeout.AsDuration(), a.RetryPolicy.NumRetries.GetValue())
}

// play has a server answer the questions of a recording, each with the answers before it.
func play(t *testing.T, s *Server, name string) (
	in *extension.PostTranslateModifyRequest, out *extension.PostTranslateModifyResponse) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata/recorded", name+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	questions, err := hooks.Read(text)
	if err != nil {
		t.Fatal(err)
	}
	client, answered := connected(t, s), map[string]*clusterv3.Cluster{}
	for _, question := range questions {
		switch q := question.(type) {
		case *extension.PostClusterModifyRequest:
			answer, err := client.PostClusterModify(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			if answer.Cluster != nil {
				answered[q.Cluster.Name] = answer.Cluster
			}
		case *extension.PostTranslateModifyRequest:
			in = proto.CloneOf(q)
			for i, c := range q.Clusters {
				if answer := answered[c.Name]; answer != nil {
					q.Clusters[i] = answer
				}
			}
			if out, err = client.PostTranslateModify(t.Context(), q); err != nil {
				t.Fatal(err)
			}
		}
	}
	return in, out
}

// managerOf is the connection manager of the Gateway's listener, and where it is packed.
func managerOf(t *testing.T, out *extension.PostTranslateModifyResponse) (
	*managerv3.HttpConnectionManager, *anypb.Any) {
	t.Helper()
	l := out.Listeners[len(out.Listeners)-1] // the first of the real ones is for probes
	manager, packed := &managerv3.HttpConnectionManager{},
		append(l.FilterChains, l.DefaultFilterChain)[0].Filters[0].GetTypedConfig()
	if err := packed.UnmarshalTo(manager); err != nil {
		t.Fatal(err)
	}
	return manager, packed
}

// validate has Envoy check an answer, in a bootstrap with the part of the EnvoyProxy. The routes are in the listener,
// where Envoy checks that their clusters exist.
func validate(t *testing.T, out *extension.PostTranslateModifyResponse) {
	t.Helper()
	parts, err := envoybootstrap.RenderParts(envoybootstrap.Options{Cluster: "any", XDS: "127.0.0.1:18000"})
	if err != nil {
		t.Fatal(err)
	}
	b := &bootstrapv3.Bootstrap{}
	if err := message(parts.Bootstrap, b); err != nil {
		t.Fatal(err)
	}
	manager, packed := managerOf(t, out)
	manager.RouteSpecifier = &managerv3.HttpConnectionManager_RouteConfig{RouteConfig: out.Routes[0]}
	if err := pack(packed, manager); err != nil {
		t.Fatal(err)
	}
	b.StaticResources.Clusters = append(b.StaticResources.Clusters, out.Clusters...)
	b.StaticResources.Listeners = out.Listeners
	b.Node = &corev3.Node{Id: "eg-0", Cluster: "models/eg"}
	b.DynamicResources = &bootstrapv3.Bootstrap_DynamicResources{AdsConfig: b.ClusterManager.LoadStatsConfig}
	text, err := protojson.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	if said, err := proc.ValidateEnvoy(t.Context(), proctest.Dir(t), text); err != nil {
		t.Errorf("%v\n%s", err, said)
	}
}
