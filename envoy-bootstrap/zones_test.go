package envoybootstrap

import (
	"fmt"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/dynamic_modules/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/http/early_header_mutation/header_mutation/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/least_request/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/override_host/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/round_robin/v3"
	"google.golang.org/protobuf/encoding/protojson"
)

// ownCluster and ownMembers name the cluster of the Envoys, with one member in each of two zones, as Envoy Gateway
// does.
const (
	ownCluster = "cluster_manager:\n  local_cluster_name: gateways\n"
	ownMembers = `  clusters:
  - name: gateways
    type: STATIC
    load_assignment:
      cluster_name: gateways
      endpoints:
      - locality: {zone: zone-a}
        lb_endpoints: [{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: 1}}}}]
      - locality: {zone: zone-b}
        lb_endpoints: [{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: 2}}}}]
`
)

// TestAnEnvoyThatKnowsZonesFollowsTheWeightsOfAll: with zone-aware routing, which is on where Envoy knows its own
// cluster and there are six endpoints, its requests would stay in its zone.
func TestAnEnvoyThatKnowsZonesFollowsTheWeightsOfAll(t *testing.T) {
	for name, o := range map[string]Options{
		"failsafe":                  {},
		"shedding, round robin":     {Mode: ModeShedding, Policy: PolicyRoundRobin},
		"shedding, with a picker":   {Mode: ModeShedding, Picker: "127.0.0.1:1"},
		"the same over round robin": {Mode: ModeShedding, Picker: "127.0.0.1:1", Policy: PolicyRoundRobin},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			backends := startBackends(t, append(four(), four()...)...)
			all := endpoints(backends, func(i int) endpoint { // each in zone-b has as much as three in zone-a
				return endpoint{weight: 100_000 + uint32(i/4)*200_000 + uint32(i), health: healthy}
			})
			cp := startControlPlane(t)
			for _, service := range []string{"llama", "llama/failsafe"} {
				a := assignment(service, all[:4]...)
				a.Endpoints = append(a.Endpoints, assignment(service, all[4:]...).Endpoints...)
				a.Endpoints[0].Locality = &corev3.Locality{Zone: "zone-a"}
				a.Endpoints[1].Locality = &corev3.Locality{Zone: "zone-b"}
				cp.publish(a)
			}
			o.Cluster, o.XDS, o.Zone = "llama", cp.address, "zone-a"
			o.Listen, o.Admin = "127.0.0.1:0", "127.0.0.1:0"
			text, err := Render(o)
			if err != nil {
				t.Fatal(err)
			}
			bootstrap := strings.Replace(string(text), "cluster_manager:\n", ownCluster, 1)
			envoy := startText(t, []byte(strings.Replace(bootstrap, "  clusters:\n", ownMembers, 1)))
			eventually(t, func() error {
				if n := len(envoy.hosts(t, "llama")); n != len(all) {
					return fmt.Errorf("%d endpoints", n)
				}
				return nil
			})
			shares := envoy.shares(t, backends, 400)
			if own := shares[0] + shares[1] + shares[2] + shares[3]; own < 0.2 || own > 0.3 {
				t.Errorf("shares %.2f: %.2f of the requests stay in the Envoy's zone, want a quarter", shares, own)
			}
		})
	}
}

// everyOption returns the options that differ in their clusters.
func everyOption() (all []Options) {
	for _, mode := range []Mode{ModeFailsafe, ModeShedding} {
		for _, policy := range []Policy{PolicyLeastRequest, PolicyRoundRobin} {
			for _, rest := range []Options{{}, {Module: true}, {Picker: "127.0.0.1:18002"}, {Affinity: conversation},
				{Fallback: []string{"llama.models.svc:8000"}}} {
				o := rest
				o.Cluster, o.XDS, o.Mode, o.Policy = "llama", "127.0.0.1:18000", mode, policy
				if o.withDefaults().validate() == nil { // not all go together
					all = append(all, o)
				}
			}
		}
	}
	return all
}

// TestEveryClusterOfModelServersUsesAllZones, in every form: the weights say how much each endpoint takes.
func TestEveryClusterOfModelServersUsesAllZones(t *testing.T) {
	check := func(o Options, found map[string]*clusterv3.Cluster) {
		t.Helper()
		checked := 0
		for name, c := range found {
			if !strings.HasPrefix(name, "llama") || c.GetClusterType() != nil ||
				c.GetLbPolicy() == clusterv3.Cluster_MAGLEV {
				continue // no model servers, or a policy that knows no zones
			}
			checked++
			settings := protojson.Format(c.GetCommonLbConfig().GetZoneAwareLbConfig())
			if c.GetLoadBalancingPolicy() != nil { // common_lb_config does not apply
				settings = protojson.Format(c.GetLoadBalancingPolicy())
			}
			compact := strings.Join(strings.Fields(settings), "")
			if !strings.Contains(compact, `"routingEnabled":{}`) {
				t.Errorf("%+v: %s prefers the endpoints of its own zone: %s", o, name, settings)
			}
		}
		if checked == 0 {
			t.Errorf("%+v has no cluster of model servers", o)
		}
	}
	for _, o := range everyOption() {
		check(o, clusters(rendered(t, o)))
		for _, o.Form = range []Form{FormStatic, FormCDS, FormADS} {
			text, err := RenderAttach(o)
			if err != nil {
				t.Fatal(err)
			}
			own, cds, split := strings.Cut(string(text), "---\n")
			found := clusters(decode(t, []byte(own)))
			if split {
				for _, resource := range resources(t, []byte(cds)).GetResources() {
					c := unpack(t, resource, &clusterv3.Cluster{})
					found[c.GetName()] = c
				}
			}
			check(o, found)
		}
	}
}
