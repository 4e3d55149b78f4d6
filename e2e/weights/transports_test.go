package weights

import (
	"fmt"
	"strings"
	"testing"

	"steelyard/e2e/rig/proc"
	"steelyard/e2e/rig/proc/proctest"
	"steelyard/e2e/rig/testbed"
)

// attached is the configuration of an Envoy that an operator wrote: no aggregate cluster, and EDS as in the two texts.
const attached = `
node: {id: %[1]s, cluster: operators}
admin: {address: {socket_address: {address: 127.0.0.1, port_value: 0}}}
%[2]s
static_resources:
  clusters:
  - name: llama
    type: EDS
    connect_timeout: 1s
    eds_cluster_config:
      eds_config: {resource_api_version: V3, %[3]s}
  - name: second
    type: EDS
    connect_timeout: 1s
    eds_cluster_config:
      eds_config: {resource_api_version: V3, %[3]s}
  - name: xds
    type: STATIC
    connect_timeout: 1s
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {http2_protocol_options: {}}
    load_assignment:
      cluster_name: xds
      endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: %[4]s}}}}]}]
`

const source = `api_type: %s, transport_api_version: V3, set_node_on_first_message_only: true, ` +
	`grpc_services: [{envoy_grpc: {cluster_name: xds}}]`

func TestRealEnvoysFollowOnEveryTransport(t *testing.T) {
	pool := testbed.Pool(t, 3)
	another := "- name: second\n  engine: vllm\n  endpoints: {static: [{address: " + pool[1].Address() + "}]}\n"
	f := start(t, testbed.Plan{Servers: pool, More: another})
	busy := pool[0].Address()
	for _, tt := range []struct{ transport, api, top, eds string }{
		{"eds", "GRPC", "", "api_config_source: {" + source + "}"},
		{"eds-delta", "DELTA_GRPC", "", "api_config_source: {" + source + "}"},
		{"ads", "GRPC", "dynamic_resources: {ads_config: {" + source + "}}", "ads: {}"},
		{"ads-delta", "DELTA_GRPC", "dynamic_resources: {ads_config: {" + source + "}}", "ads: {}"},
	} {
		fill := func(text string) string {
			if strings.Contains(text, "%s") {
				return fmt.Sprintf(text, tt.api)
			}
			return text
		}
		text := fmt.Sprintf(attached, tt.transport, fill(tt.top), fill(tt.eds), f.XDS[strings.LastIndex(f.XDS, ":")+1:])
		f.Envoys = append(f.Envoys, proctest.Envoy(t,
			proc.EnvoyConfig{Bootstrap: []byte(text), Dir: f.Dir, Name: tt.transport}))
	}
	f.Everywhere("all have the endpoints",
		func(hosts map[string]proc.Host) bool { return len(hosts) == 3 && !testbed.Avoided(hosts, busy) })
	testbed.Flood(t, pool[0], 300)
	f.Everywhere("all follow the load", func(hosts map[string]proc.Host) bool { return testbed.Avoided(hosts, busy) })

	for _, e := range f.Envoys[1:] {
		clusters, err := e.Clusters(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if second := clusters["second"]; len(second) != 1 || second[0].Address != pool[1].Address() {
			t.Errorf("%s: the other cluster has %v", e.Name(), second)
		}
	}
	clients, err := f.Clients()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range clients {
		if c.NodeCluster == "operators" && c.Transport != c.NodeID {
			t.Errorf("%s is shown as connected by %s", c.NodeID, c.Transport)
		}
		for _, s := range c.Subscriptions {
			if s.Nacks != 0 || s.Acks == 0 {
				t.Errorf("%s: %d ACKs and %d NACKs of %s", c.NodeID, s.Acks, s.Nacks, s.Resource)
			}
		}
	}
}
