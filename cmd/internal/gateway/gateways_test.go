package gateway

import (
	"maps"
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"steelyard/internal/api"
)

const ruleOfNext = "httproute/models/next/rule/0"

// of says which Gateway a virtual host is of, as Envoy Gateway does.
func of(t *testing.T, host *routev3.VirtualHost, gateway string) *routev3.VirtualHost {
	t.Helper()
	namespace, name, _ := strings.Cut(gateway, "/")
	noted, err := structpb.NewStruct(map[string]any{"resources": []any{map[string]any{"kind": "Gateway",
		"namespace": namespace, "name": name}}})
	if err != nil {
		t.Fatal(err)
	}
	host.Metadata = &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{"envoy-gateway": noted}}
	return host
}

// named collects what a server reports, as GATEWAY: POOL POOL.
func (s *Server) named() *[]string {
	var all []string
	s.options.Named = func(pools map[string][]api.GatewayPool) {
		for _, gateway := range slices.Sorted(maps.Keys(pools)) {
			text := gateway + ":"
			for _, p := range pools[gateway] {
				text += " " + p.Name
			}
			all = append(all, text)
		}
	}
	return &all
}

// With mergeGateways, a translation has the listeners of several Gateways; those on one port share a list of routes,
// and the listener has the name of the first.
func TestPoolsAreOfTheGatewayOfTheirRoute(t *testing.T) {
	s := fake{ruleOfLlama: {ofPool("llama", 1)}, ruleOfNext: {ofPool("next", 1)}}.server()
	reported := s.named()
	next := &routev3.Route{Name: ruleOfNext + "/match/0/*", Action: single(ruleOfNext).Action}
	in := request(t, []*routev3.Route{single(ruleOfLlama)},
		asked(t, s, ruleOfLlama, resource("models", "llama", "")),
		asked(t, s, ruleOfNext, resource("models", "next", "")))
	first := in.Routes[0].VirtualHosts[0]
	in.Routes[0].VirtualHosts = []*routev3.VirtualHost{of(t, first, "models/eg"),
		of(t, &routev3.VirtualHost{Name: "tcp-80/b", Domains: []string{"b"}, Routes: []*routev3.Route{next,
			single(ruleOfLlama)}}, "infra/two")}
	translated(t, s, in)
	if want := []string{"infra/two: llama next", "models/eg: llama"}; !slices.Equal(*reported, want) {
		t.Errorf("named are %q, want %q", *reported, want)
	}

	// With XDSNameSchemeV2, no name has the Gateway.
	*reported = nil
	in = request(t, []*routev3.Route{single(ruleOfLlama)}, asked(t, s, ruleOfLlama, resource("models", "llama", "")))
	in.Listeners[0].Name, in.Routes[0].Name = "tcp-80", "http-80"
	of(t, in.Routes[0].VirtualHosts[0], "models/eg")
	translated(t, s, in)
	if want := []string{"models/eg: llama"}; !slices.Equal(*reported, want) {
		t.Errorf("named are %q, want %q", *reported, want)
	}
	s.Forget("models/eg")
	for _, p := range s.State().Pools {
		if p.Gateway != "infra/two" {
			t.Errorf("a Gateway that is gone has %+v", p)
		}
	}
}

// Each of two Envoy Gateways asks when it wants.
func TestTranslationsThatInterleaveKeepTheirPools(t *testing.T) {
	s := fake{ruleOfLlama: {ofPool("llama", 1)}, ruleOfNext: {ofPool("next", 1)}}.server()
	reported := s.named()
	llama := asked(t, s, ruleOfLlama, resource("models", "llama", ""))
	refused := asked(t, s, ruleOfNext, resource("models", "next", `"appProtocol": "kubernetes.io/h2c"`))
	translated(t, s, request(t, nil)) // of a Gateway without pools
	next := &routev3.Route{Name: ruleOfNext + "/match/0/*", Action: single(ruleOfNext).Action}
	out := translated(t, s, request(t, []*routev3.Route{single(ruleOfLlama), next}, llama, refused))
	if want := []string{"models/eg:", "models/eg: llama next"}; !slices.Equal(*reported, want) {
		t.Errorf("named are %q, want %q", *reported, want)
	}
	for _, c := range out.Clusters {
		if c.GetMetadata().GetFilterMetadata()[noteKey] != nil {
			t.Errorf("Envoy gets the note of %s", c.Name)
		}
	}
}
