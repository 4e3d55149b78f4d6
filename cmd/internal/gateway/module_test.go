package gateway

import (
	"slices"
	"strings"
	"testing"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"steelyard/internal/extension"
)

// annotated is a route as Envoy Gateway makes it of an HTTPRoute with the annotation.
func annotated(t *testing.T, value string) *routev3.Route {
	t.Helper()
	r := single(ruleOfLlama)
	r.Metadata = about(t, map[string]any{"kind": "HTTPRoute", "annotations": map[string]any{"steelyard-module": value}})
	return r
}

// filtersOf returns the names of the filters of the Gateway's listener, and all that its connection manager has.
func filtersOf(t *testing.T, out *extension.PostTranslateModifyResponse) (names []string, all string) {
	t.Helper()
	manager, _ := managerOf(t, out)
	for _, f := range manager.HttpFilters {
		names = append(names, f.Name)
	}
	return names, manager.String()
}

func TestARouteWithTheAnnotationHasItsEndpointsNamed(t *testing.T) {
	llama := resource("models", "llama", "")
	for _, c := range []struct{ value, reads string }{
		{"true", `\"name\":\"models.llama-envoy\"}`}, {"prefix", `\"prefix_bytes\":262144}`},
	} {
		s := fake{ruleOfLlama: {ofPool("llama", 1)}}.server()
		s.options.ModuleXDS, s.options.ModuleGateways = "steelyard-xds.steelyard.svc:18000", []string{"models/eg"}
		out := translated(t, s, request(t, []*routev3.Route{annotated(t, c.value)}, asked(t, s, ruleOfLlama, llama)))
		routes := out.Routes[0].VirtualHosts[0].Routes
		if len(routes) != 2 || sent(routes[0]) != "models.llama_picked" || sent(routes[1]) != "models.llama_failsafe" {
			t.Fatalf("%s: the routes are %v", c.value, routes)
		}
		if h := routes[0].Match.Headers; len(h) != 1 || h[0].Name != "x-gateway-destination-endpoint" ||
			len(routes[1].Match.Headers) != 0 || routes[0].GetRoute().RetryPolicy == nil {
			t.Errorf("%s: the routes are %v", c.value, routes)
		}
		if routes[1].TypedPerFilterConfig["steelyard.models.llama"] == nil || routes[0].TypedPerFilterConfig != nil {
			t.Errorf("%s: the routes switch on %v and %v", c.value, routes[1].TypedPerFilterConfig,
				routes[0].TypedPerFilterConfig)
		}
		filters, all := filtersOf(t, out)
		if !slices.Equal(filters, []string{"steelyard.models.llama", "envoy.filters.http.router"}) ||
			!strings.Contains(all, "early_header_mutation") || !strings.Contains(all, s.options.ModuleXDS) ||
			!strings.Contains(all, c.reads) {
			t.Errorf("%s: the listener has %v: %s", c.value, filters, all)
		}
		if !strings.Contains(names(out.Clusters), " models.llama_picked") || len(s.State().Ignored) != 0 {
			t.Errorf("%s: the clusters are %s, without effect are %q", c.value, names(out.Clusters), s.State().Ignored)
		}
		for _, cluster := range out.Clusters {
			if logged := cluster.GetMetadata().GetFilterMetadata()["steelyard.logged"] != nil; logged !=
				(cluster.Name == "models.llama_failsafe" || cluster.Name == "models.llama_picked") {
				t.Errorf("%s: the requests of routes to %s are logged: %t", c.value, cluster.Name, logged)
			}
		}
	}
}

func TestAnAnnotationWithoutEffectIsNamedAndTheRequestsFollowTheWeights(t *testing.T) {
	eg := []string{"models/eg"}
	for _, c := range []struct {
		name, value string
		backends    []Backend
		xds         string
		gateways    []string
		sent        string
		ignored     string
	}{
		{"two pools", "true", []Backend{ofPool("llama", 1), ofPool("next", 1)}, "10.0.0.5:18000", eg,
			"models.llama_failsafe=1 models.next_failsafe=1", "is for rules with one backend"},
		{"a pool and a Service", "true", []Backend{ofPool("llama", 1), ofService(1)}, "10.0.0.5:18000", eg,
			ruleOfLlama + "=1 models.llama_failsafe=1", "is for rules with one backend"},
		{"another value", "yes", []Backend{ofPool("llama", 1)}, "10.0.0.5:18000", eg,
			"models.llama_failsafe", `is "yes": want true or prefix`},
		{"no address", "true", []Backend{ofPool("llama", 1)}, "", nil, "models.llama_failsafe",
			"needs envoy_gateway.module_xds"},
		{"another Gateway", "true", []Backend{ofPool("llama", 1)}, "10.0.0.5:18000",
			[]string{"models/more", "eg/models"}, "models.llama_failsafe",
			"has no effect on the Gateway models/eg, which envoy_gateway.module_gateways does not have"},
		{"switched off", "false", []Backend{ofPool("llama", 1)}, "10.0.0.5:18000", nil, "models.llama_failsafe", ""},
	} {
		s := fake{ruleOfLlama: c.backends}.server()
		s.options.ModuleXDS, s.options.ModuleGateways = c.xds, c.gateways
		var pools []*extension.ExtensionResource
		for _, b := range c.backends {
			if b.Pool {
				pools = append(pools, resource(b.Namespace, b.Name, ""))
			}
		}
		out := translated(t, s, request(t, []*routev3.Route{annotated(t, c.value)}, asked(t, s, ruleOfLlama, pools...)))
		routes := out.Routes[0].VirtualHosts[0].Routes
		if len(routes) != 1 || sent(routes[0]) != c.sent {
			t.Errorf("%s: the routes are %v", c.name, routes)
		}
		if filters, _ := filtersOf(t, out); len(filters) != 1 {
			t.Errorf("%s: the filters are %v", c.name, filters)
		}
		if there := strings.Contains(names(out.Clusters), "_picked"); there != (c.xds != "") {
			t.Errorf("%s: the clusters are %s", c.name, names(out.Clusters))
		}
		want := []string{}
		if c.ignored != "" {
			want = append(want, ruleOfLlama+": gateway.envoyproxy.io/steelyard-module "+c.ignored)
		}
		if got := s.State().Ignored; !slices.Equal(got, want) {
			t.Errorf("%s: without effect are %q, want %q", c.name, got, want)
		}
	}
}
