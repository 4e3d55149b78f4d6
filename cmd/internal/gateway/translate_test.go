package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	managerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"steelyard/internal/api"
	"steelyard/internal/extension"
)

const ruleOfLlama = "httproute/models/llama/rule/0"

// fake is a Kubernetes API whose rules have these backends, and a Steelyard that serves pools of the namespace models.
type fake map[string][]Backend

func (f fake) server() *Server {
	return New(Options{
		Backends: func(_ context.Context, id RuleID) ([]Backend, error) {
			if b, ok := f[id.String()]; ok {
				return b, nil
			}
			return nil, errors.New("the API does not answer")
		},
		Cluster: func(namespace, name string) (string, error) {
			if namespace != "models" {
				return "", errors.New("not its namespace")
			}
			return namespace + "." + name, nil
		},
		Members: func(context.Context, string) []string { return []string{"10.0.0.1:8000", "10.0.0.2:8000"} },
		Named:   func(map[string][]api.GatewayPool) {},
		Log:     slog.New(slog.DiscardHandler),
	})
}

func ofPool(name string, weight uint32) Backend {
	return Backend{Pool: true, Namespace: "models", Name: name, Weight: weight}
}
func ofService(weight uint32) Backend {
	return Backend{Namespace: "models", Name: "llama", Weight: weight}
}

// far is a pool of a namespace that is not served.
func far(name string) Backend { return Backend{Pool: true, Namespace: "others", Name: name, Weight: 1} }

func resource(namespace, name, spec string) *extension.ExtensionResource {
	return &extension.ExtensionResource{UnstructuredBytes: fmt.Appendf(nil, `{"kind": "InferencePool", `+
		`"apiVersion": "inference.networking.k8s.io/v1", "metadata": {"namespace": %q, "name": %q}, "spec": {%s}}`,
		namespace, name, spec)}
}

// asked is the cluster of a rule after PostClusterModify.
func asked(t *testing.T, s *Server, cluster string, pools ...*extension.ExtensionResource) *clusterv3.Cluster {
	t.Helper()
	answer, err := s.PostClusterModify(t.Context(), &extension.PostClusterModifyRequest{
		Cluster:            ofEnvoyGateway(cluster),
		PostClusterContext: &extension.PostClusterExtensionContext{BackendExtensionResources: pools}})
	if err != nil {
		t.Fatal(err)
	}
	return answer.Cluster
}

// ofEnvoyGateway is a cluster as it makes it.
func ofEnvoyGateway(name string) *clusterv3.Cluster {
	return &clusterv3.Cluster{Name: name, ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
		EdsClusterConfig: &clusterv3.Cluster_EdsClusterConfig{ServiceName: name}}
}

// single is a route as Envoy Gateway makes it.
func single(cluster string) *routev3.Route {
	return &routev3.Route{Name: ruleOfLlama + "/match/0/*",
		Match: &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}},
		Action: &routev3.Route_Route{Route: &routev3.RouteAction{
			ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: cluster}}}}
}

func packed(t testing.TB, m proto.Message) *anypb.Any {
	t.Helper()
	out, err := anypb.New(m)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// about is what Envoy Gateway notes of the object that something is made of.
func about(t testing.TB, object map[string]any) *corev3.Metadata {
	t.Helper()
	noted, err := structpb.NewStruct(map[string]any{"resources": []any{object}})
	if err != nil {
		t.Fatal(err)
	}
	return &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{"envoy-gateway": noted}}
}

// request is a translation of a Gateway with one listener.
func request(t testing.TB, routes []*routev3.Route, clusters ...*clusterv3.Cluster,
) *extension.PostTranslateModifyRequest {
	t.Helper()
	router := packed(t, &routerv3.Router{SuppressEnvoyHeaders: true})
	manager := &managerv3.HttpConnectionManager{StatPrefix: "http",
		RouteSpecifier: &managerv3.HttpConnectionManager_Rds{Rds: &managerv3.Rds{RouteConfigName: "models/eg/http"}},
		HttpFilters: []*managerv3.HttpFilter{{Name: "envoy.filters.http.router",
			ConfigType: &managerv3.HttpFilter_TypedConfig{TypedConfig: router}}}}
	return &extension.PostTranslateModifyRequest{
		Clusters: clusters,
		Listeners: []*listenerv3.Listener{{Name: "models/eg/http", FilterChains: []*listenerv3.FilterChain{{
			Filters: []*listenerv3.Filter{{Name: "envoy.filters.network.http_connection_manager",
				ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: packed(t, manager)}}}}}}},
		Routes: []*routev3.RouteConfiguration{{Name: "models/eg/http", VirtualHosts: []*routev3.VirtualHost{{
			Name: "models/eg/http/*", Domains: []string{"*"}, Routes: routes,
			Metadata: about(t, map[string]any{"kind": "Gateway", "namespace": "models", "name": "eg"})}}}},
	}
}

func translated(t testing.TB, s *Server, in *extension.PostTranslateModifyRequest,
) *extension.PostTranslateModifyResponse {
	t.Helper()
	out, err := s.PostTranslateModify(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// sent is where a route sends, as NAME or NAME=WEIGHT.
func sent(r *routev3.Route) string {
	var all []string
	for _, c := range targets(r.GetRoute()) {
		text := c.Name
		if c.Weight != nil {
			text += fmt.Sprintf("=%d", c.Weight.Value)
		}
		all = append(all, text)
	}
	return strings.Join(all, " ")
}

func names(clusters []*clusterv3.Cluster) string {
	var all []string
	for _, c := range clusters {
		all = append(all, c.Name)
	}
	return strings.Join(all, " ")
}

func TestARouteGoesToItsBackendsByTheirWeights(t *testing.T) {
	llama, next := resource("models", "llama", ""), resource("models", "next", "")
	for _, c := range []struct {
		name           string
		backends       []Backend
		pools          []*extension.ExtensionResource
		cluster        string // of Envoy Gateway
		route          *routev3.Route
		sent, clusters string
	}{
		{"a pool and Services", []Backend{ofService(2), ofPool("llama", 1), ofService(3)},
			[]*extension.ExtensionResource{llama}, ruleOfLlama, single(ruleOfLlama),
			ruleOfLlama + "=5 models.llama_failsafe=1", ruleOfLlama + " " + ofLlama},
		{"a pool that has just lost its weight to another", []Backend{ofPool("next", 2), ofPool("llama", 0)},
			[]*extension.ExtensionResource{llama, next}, ruleOfLlama, single(ruleOfLlama), "models.next_failsafe",
			ruleOfLlama + " " + ofNext},
		{"a rule that is gone", nil, []*extension.ExtensionResource{llama}, ruleOfLlama, single(ruleOfLlama),
			ruleOfLlama, ruleOfLlama},
		{"a pool that speaks another protocol", []Backend{ofPool("llama", 1)},
			[]*extension.ExtensionResource{resource("models", "llama", `"appProtocol": "kubernetes.io/h2c"`)},
			ruleOfLlama, single(ruleOfLlama), ruleOfLlama, ruleOfLlama},
		{"a pool that is not served", []Backend{far("llama")},
			[]*extension.ExtensionResource{resource("others", "llama", "")}, ruleOfLlama, single(ruleOfLlama),
			ruleOfLlama, ruleOfLlama},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := fake{ruleOfLlama: c.backends}.server()
			out := translated(t, s, request(t, []*routev3.Route{c.route}, asked(t, s, c.cluster, c.pools...)))
			if got := sent(out.Routes[0].VirtualHosts[0].Routes[0]); got != c.sent {
				t.Errorf("the route goes to %s, want %s", got, c.sent)
			}
			if got := names(out.Clusters); got != c.clusters {
				t.Errorf("the clusters are %s, want %s", got, c.clusters)
			}
		})
	}
}

// TestTheOwnClusterOfARuleOfPoolsHasTheirMembers, and no other gets any: Envoy has it before the route that goes
// to the pools, and the route of a pool that is not served stays with it.
func TestTheOwnClusterOfARuleOfPoolsHasTheirMembers(t *testing.T) {
	granted := Backend{Pool: true, Namespace: "elsewhere", Name: "llama", Weight: 1}
	for _, c := range []struct {
		name     string
		backends []Backend
		want     int // -1: Envoy asks Envoy Gateway for them
	}{
		{"a pool", []Backend{ofPool("llama", 1)}, 2},
		{"two pools", []Backend{ofPool("llama", 1), ofPool("next", 1)}, 4},
		{"a pool of another namespace that is served", []Backend{granted}, 2},
		{"a pool and a Service", []Backend{ofPool("llama", 1), ofService(1)}, -1},
		{"a pool with a picker", []Backend{ofPool("picked", 1)}, -1},
		{"two pools, and one has a picker", []Backend{ofPool("llama", 1), ofPool("picked", 1)}, -1},
		{"a Service without weight", []Backend{ofPool("llama", 1), ofService(0)}, 2},
		{"a pool that is not served", []Backend{ofPool("llama", 1), far("llama")}, -1},
		{"a pool that is empty", []Backend{ofPool("empty", 1)}, 0},
	} {
		s := fake{ruleOfLlama: c.backends}.server()
		s.options.Cluster = func(namespace, name string) (string, error) {
			if namespace == "others" {
				return "", errors.New("not its namespace")
			}
			return namespace + "." + name, nil
		}
		members := s.options.Members
		s.options.Members = func(ctx context.Context, cluster string) []string {
			if cluster == "models.empty" {
				return nil
			}
			return members(ctx, cluster)
		}
		var pools []*extension.ExtensionResource
		for _, b := range c.backends {
			spec := ""
			if b.Name == "picked" {
				spec = `"endpointPickerRef": {"name": "epp"}`
			}
			if b.Pool {
				pools = append(pools, resource(b.Namespace, b.Name, spec))
			}
		}
		got := -1
		cluster := asked(t, s, ruleOfLlama, pools...)
		if cluster.GetType() == clusterv3.Cluster_STATIC && cluster.EdsClusterConfig == nil {
			got = len(cluster.LoadAssignment.Endpoints[0].LbEndpoints)
		}
		if got != c.want {
			t.Errorf("%s: %d members, want %d: %v", c.name, got, c.want, cluster)
		}
	}
}

// routerOf is the router filter of the only listener.
func routerOf(t *testing.T, listeners []*listenerv3.Listener) *routerv3.Router {
	t.Helper()
	manager, router := &managerv3.HttpConnectionManager{}, &routerv3.Router{}
	if err := listeners[0].FilterChains[0].Filters[0].GetTypedConfig().UnmarshalTo(manager); err != nil {
		t.Fatal(err)
	}
	if err := manager.HttpFilters[0].GetTypedConfig().UnmarshalTo(router); err != nil {
		t.Fatal(err)
	}
	return router
}

func TestAListenerIsTheSameForAllPools(t *testing.T) {
	llama, next := resource("models", "llama", ""), resource("models", "next", "")
	s := fake{ruleOfLlama: {ofPool("llama", 1), ofPool("next", 1)}}.server()
	two := translated(t, s, request(t, []*routev3.Route{single(ruleOfLlama)}, asked(t, s, ruleOfLlama, llama, next)))
	s = fake{ruleOfLlama: {ofPool("llama", 1)}}.server()
	one := translated(t, s, request(t, []*routev3.Route{single(ruleOfLlama)}, asked(t, s, ruleOfLlama, llama)))
	if !proto.Equal(one.Listeners[0], two.Listeners[0]) {
		t.Errorf("it changes with the pools: %v", two.Listeners[0])
	}
	router := routerOf(t, one.Listeners)
	if len(router.UpstreamLog) != 2 || !router.SuppressEnvoyHeaders {
		t.Errorf("its router is %v", router)
	}
	// The answer as the next question: an EnvoyPatchPolicy may have added the log already.
	again := request(t, []*routev3.Route{single(ruleOfLlama)}, asked(t, s, ruleOfLlama, llama))
	again.Listeners = one.Listeners
	if got := routerOf(t, translated(t, s, again).Listeners); len(got.UpstreamLog) != 2 {
		t.Errorf("it has %d logs", len(got.UpstreamLog))
	}
	none := translated(t, s, request(t, []*routev3.Route{single("httproute/models/shop/rule/0")},
		&clusterv3.Cluster{Name: "httproute/models/shop/rule/0"}))
	if router := routerOf(t, none.Listeners); len(router.UpstreamLog) != 0 {
		t.Errorf("a listener without a pool has the log: %v", router)
	}
}

func TestWithoutWeightsTheGatewayKeepsWhatItHas(t *testing.T) {
	s := fake{}.server()
	_, err := s.PostClusterModify(t.Context(), &extension.PostClusterModifyRequest{
		Cluster: &clusterv3.Cluster{Name: ruleOfLlama}, PostClusterContext: &extension.PostClusterExtensionContext{
			BackendExtensionResources: []*extension.ExtensionResource{resource("models", "llama", "")}}})
	if status.Code(err) != codes.Unavailable { // which Envoy Gateway repeats
		t.Errorf("the error is %v", err)
	}
	if state := s.State(); state.Failures != 1 || !strings.Contains(state.LastError, "the API does not answer") {
		t.Errorf("the state is %+v", state)
	}
}

func TestTheStateNamesThePoolsOfEachGateway(t *testing.T) {
	s := fake{ruleOfLlama: {ofPool("llama", 1), ofPool("picked", 1), far("far")}}.server()
	c := asked(t, s, ruleOfLlama, resource("models", "llama", ""), resource("others", "far", ""),
		resource("models", "picked", `"endpointPickerRef": {"name": "epp"}`))
	translated(t, s, request(t, []*routev3.Route{single(ruleOfLlama)}, c))
	var got []string
	for _, p := range s.State().Pools {
		got = append(got, strings.Join([]string{p.Gateway, p.Namespace, p.Name, p.Cluster, p.Picker, p.Reason}, "|"))
	}
	want := []string{"models/eg|models|llama|models.llama||", "models/eg|models|picked||epp|",
		"models/eg|others|far|||not its namespace"}
	if !slices.Equal(got, want) {
		t.Errorf("the pools are %q, want %q", got, want)
	}
	translated(t, s, request(t, nil)) // the Gateway has no such route any more
	if state := s.State(); len(state.Pools) != 0 || state.Calls != 2 {
		t.Errorf("without routes it is %+v", state)
	}
}

// While a cluster waits for endpoints, Envoy takes no other clusters, but the routes to them.
func TestTheClusterOfARouteThatIsGoneWaitsForNoEndpoints(t *testing.T) {
	s := fake{ruleOfLlama: nil}.server()
	if c := asked(t, s, ruleOfLlama, resource("models", "llama", "")); c.GetType() != clusterv3.Cluster_STATIC {
		t.Errorf("the cluster is %v", c)
	}
}
