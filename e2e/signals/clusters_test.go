package signals

import (
	"fmt"
	"testing"
	"time"

	"steelyard/e2e/rig/testbed"
	envoybootstrap "steelyard/envoy-bootstrap"
	"steelyard/weighting"
	"steelyard/weighting/flight"
	"steelyard/weighting/push"
)

// twoClusters has an Envoy reach two of Steelyard's clusters, each under the name of the other.
var twoClusters = []testbed.Edit{
	{`- name: "` + testbed.Cluster + `"
    type: EDS`, `- name: "` + testbed.Cluster + `"
    type: EDS
    connect_timeout: 2s
    eds_cluster_config:
      service_name: "embed"
      eds_config:
        resource_api_version: V3
        initial_fetch_timeout: 10s
        api_config_source:
          api_type: GRPC
          transport_api_version: V3
          set_node_on_first_message_only: true
          grpc_services: [{envoy_grpc: {cluster_name: steelyard_xds}}]
  - name: "ours"
    type: EDS`},
	{`- match: {prefix: /}`, `- match: {prefix: /embed}
                route: {cluster: "` + testbed.Cluster + `", timeout: 0s}
              - match: {prefix: /}`},
	{`                  cluster: "` + testbed.Cluster + `"`, `                  cluster: "ours"`},
}

// TestSignalsCountARequestInTheClusterThatItWentThrough: an endpoint is in two clusters,
// and one Envoy uses both.
func TestSignalsCountARequestInTheClusterThatItWentThrough(t *testing.T) {
	for name, o := range map[string]envoybootstrap.Options{"access log and load reports": {},
		"only load reports": {NoUpstreamLog: true}} {
		t.Run(name, func(t *testing.T) {
			up := startUpstream(t)
			r := receive(t, up.address)
			r.ledger.SetMembers("embed", r.members)
			d := weighting.Decision{At: time.Now(),
				Endpoints: []weighting.EndpointDecision{{Address: up.address, Share: 1}}}
			r.streams.Publish("embed", push.Verdict{Decision: d, Members: true})
			envoy := r.envoy(o, 1, twoClusters...)
			both := []string{testbed.Cluster, "embed"}
			eventually(t, "it follows both and has said what its names mean", func() error {
				for _, name := range both {
					watchers := r.streams.Watchers(name)
					r.ledger.SetWatchers(name, watchers)
					if len(watchers) == 0 {
						return fmt.Errorf("no Envoy follows %s", name)
					}
				}
				if r.reports.Stats().Reports == 0 {
					return fmt.Errorf("no report")
				}
				return nil
			})
			wait := testbed.Asking(t.Context(), t, 3, envoy.url)
			waitEmbed := testbed.Asking(t.Context(), t, 2, envoy.url+"embed")
			holds := func(what string, of func(flight.Counts) weighting.Reading, want ...float64) {
				t.Helper()
				eventually(t, what, func() error {
					for i, name := range both {
						if got := of(r.ledger.Read(name, time.Now(), nil)[0]); !got.Known() || got.Value != want[i] {
							return fmt.Errorf("%s has %v, want %v", name, got, want[i])
						}
					}
					return nil
				})
			}
			holds("each is in flight in its own", inFlight, 3, 2)
			holds("each is issued in its own", issued, 3, 2)
			for range 5 {
				up.let <- struct{}{}
			}
			wait()
			waitEmbed()
			holds("none is in flight", inFlight, 0, 0)
			holds("each has ended in its own", ended, 3, 2)
		})
	}
}
