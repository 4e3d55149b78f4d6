package gateway

import (
	"context"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	managerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"steelyard/internal/extension"
)

// connected is a client of a server over gRPC.
func connected(t *testing.T, s *Server) extension.EnvoyGatewayExtensionClient {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g, served := s.GRPC(), make(chan error)
	go func() { served <- g.Serve(l) }()
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		g.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return extension.NewEnvoyGatewayExtensionClient(conn)
}

// An EnvoyPatchPolicy, or an extension before this one, can make a route whose requests name their cluster.
func TestARouteThatNamesNoClusterIsLeftAndNamed(t *testing.T) {
	s := fake{ruleOfLlama: {ofPool("llama", 1)}}.server()
	c := asked(t, s, ruleOfLlama, resource("models", "llama", ""))
	patched := single("")
	patched.GetRoute().ClusterSpecifier = &routev3.RouteAction_ClusterHeader{ClusterHeader: "x-to"}
	in := request(t, []*routev3.Route{patched, single(ruleOfLlama)}, c)
	out, err := connected(t, s).PostTranslateModify(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	routes := out.Routes[0].VirtualHosts[0].Routes
	if routes[0].GetRoute().GetClusterHeader() != "x-to" || sent(routes[1]) != "models.llama_failsafe" {
		t.Errorf("the routes are %v", routes)
	}
	if i := s.State().Ignored; len(i) != 1 || !strings.HasPrefix(i[0], patched.Name+" names no cluster") {
		t.Errorf("without effect is %q", i)
	}
}

func TestAConnectionManagerWithoutFiltersGetsNoModule(t *testing.T) {
	manager := &managerv3.HttpConnectionManager{}
	addModules(manager, []*module{{manager: &managerv3.HttpConnectionManager{}, filter: &managerv3.HttpFilter{}}})
	if len(manager.HttpFilters) != 0 { // a filter without a router after it
		t.Errorf("it is %v", manager)
	}
}

func TestADefectEndsOneAnswerAndNotTheProcess(t *testing.T) {
	s := fake{}.server()
	s.options.Backends = func(context.Context, RuleID) ([]Backend, error) { panic("a message nobody thought of") }
	client := connected(t, s)
	for n := range uint64(2) {
		_, err := client.PostClusterModify(t.Context(), &extension.PostClusterModifyRequest{
			Cluster: &clusterv3.Cluster{Name: ruleOfLlama}, PostClusterContext: &extension.PostClusterExtensionContext{
				BackendExtensionResources: []*extension.ExtensionResource{resource("models", "llama", "")}}})
		if status.Code(err) != codes.Internal {
			t.Errorf("the answer is %v", err)
		}
		if state := s.State(); state.Failures != n+1 || !strings.Contains(state.LastError, "nobody thought of") {
			t.Errorf("the state is %+v", state)
		}
	}
}

// Envoy Gateway asks about objects as it knew them, while the weights are current.
func TestARouteThatHasJustChangedKeepsWhatItHas(t *testing.T) {
	for name, backends := range map[string][]Backend{
		"it moved back to a Service":      {ofService(1)},
		"its pool has no weight any more": {ofService(1), ofPool("llama", 0)},
		"it moved to another pool":        {ofPool("next", 1)},
		"it moved to another namespace":   {far("llama")},
	} {
		s := fake{ruleOfLlama: backends}.server()
		answer, err := connected(t, s).PostClusterModify(t.Context(), &extension.PostClusterModifyRequest{
			Cluster: &clusterv3.Cluster{Name: ruleOfLlama}, PostClusterContext: &extension.PostClusterExtensionContext{
				BackendExtensionResources: []*extension.ExtensionResource{resource("models", "llama", "")}}})
		if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "has just changed") {
			t.Errorf("%s: %v, %v", name, answer, err)
		}
		if state := s.State(); state.Failures != 1 {
			t.Errorf("%s: the state is %+v", name, state)
		}
	}
}

// Envoy Gateway passes none of it on, so nobody would know.
func TestWhatHasNoEffectOnAPoolIsNamed(t *testing.T) {
	filtered := ofPool("llama", 1)
	filtered.Filters, filtered.TLSPolicy = true, "llama-tls"
	service := ofService(1)
	service.Filters = true // which Envoy Gateway serves
	s := fake{ruleOfLlama: {filtered, service}}.server()
	c := asked(t, s, ruleOfLlama, resource("models", "llama", ""))
	translated(t, s, request(t, []*routev3.Route{single(ruleOfLlama)}, c))
	want := []string{
		ruleOfLlama + ": filters of its backendRef to the InferencePool models/llama have no effect: write them as " +
			"filters of the rule",
		ruleOfLlama + ": the BackendTLSPolicy llama-tls of the InferencePool models/llama has no effect, so " +
			"requests are sent in plain text: remove it, or name a Service of the same Pods"}
	if got := s.State().Ignored; !slices.Equal(got, want) {
		t.Errorf("without effect are %q, want %q", got, want)
	}
}

// Envoy Gateway passes the pool on like a backend.
func TestAPoolThatOnlyAFilterNamesIsNamedAndHoldsNothing(t *testing.T) {
	filter := Backend{Pool: true, Namespace: "models", Name: "llama", ByFilter: true}
	s := fake{ruleOfLlama: {filter, ofService(1)}}.server()
	c := asked(t, s, ruleOfLlama, resource("models", "llama", ""))
	out := translated(t, s, request(t, []*routev3.Route{single(ruleOfLlama)}, c))
	if got := sent(out.Routes[0].VirtualHosts[0].Routes[0]); got != ruleOfLlama {
		t.Errorf("the route goes to %s", got)
	}
	want := ruleOfLlama + ": its filter ExtensionRef to the InferencePool models/llama has no effect: name the pool " +
		"in backendRefs, or remove the filter"
	if s := s.State(); !slices.Equal(s.Ignored, []string{want}) || len(s.Pools) != 0 {
		t.Errorf("the state is %+v", s)
	}
	s.Forget(s.Gateways()[0])
	if i := s.State().Ignored; len(i) != 0 {
		t.Errorf("a Gateway that is gone has %q", i)
	}
}

func TestARuleIsNotRefusedForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fake{ruleOfLlama: {ofService(1)}}
		s := f.server()
		question := &extension.PostClusterModifyRequest{Cluster: ofEnvoyGateway(ruleOfLlama),
			PostClusterContext: &extension.PostClusterExtensionContext{
				BackendExtensionResources: []*extension.ExtensionResource{resource("models", "llama", "")}}}
		refused := func(want bool) {
			t.Helper()
			if _, err := s.PostClusterModify(t.Context(), question); (err != nil) != want {
				t.Errorf("after %s: %v", time.Now(), err)
			}
		}
		refused(true)
		time.Sleep(catchesUpWithin - time.Second)
		refused(true)
		time.Sleep(time.Second)
		refused(false)
		translated(t, s, request(t, []*routev3.Route{single(ruleOfLlama)}, question.Cluster))
		if i := s.State().Ignored; len(i) != 1 || !strings.Contains(i[0], "models/llama for it, which is none of") {
			t.Errorf("without effect are %q", i)
		}
		again := ofService(1)
		again.Generation = 2
		f[ruleOfLlama] = []Backend{again} // a change that it may not know
		refused(true)
		asked(t, s, ruleOfLlama) // it knows
		time.Sleep(catchesUpWithin)
		refused(true)
	})
}

func TestAPoolOfAGRPCRouteIsNotServedAndSaysSo(t *testing.T) {
	const rule = "grpcroute/models/llama/rule/0"
	s := fake{rule: {ofPool("llama", 1)}}.server()
	c := asked(t, s, rule, resource("models", "llama", ""),
		resource("models", "picked", `"endpointPickerRef": {"name": "epp"}`))
	route := &routev3.Route{Name: rule + "/match/0/*", Action: single(rule).Action}
	out := translated(t, s, request(t, []*routev3.Route{route}, c))
	if got := sent(out.Routes[0].VirtualHosts[0].Routes[0]); got != rule {
		t.Errorf("the route goes to %s", got)
	}
	if p := s.State().Pools; len(p) != 2 || p[0].Cluster != "" || !strings.Contains(p[0].Reason, "only HTTPRoutes") ||
		p[1].Picker != "epp" {
		t.Errorf("the pools are %+v", p)
	}
}
