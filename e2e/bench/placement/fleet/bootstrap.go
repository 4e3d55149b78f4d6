package fleet

import (
	"errors"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v4"

	"steelyard/e2e/bench/placement/extension"
	"steelyard/e2e/rig/proc"
	envoybootstrap "steelyard/envoy-bootstrap"
)

// clusterName is the name of the pool, in Steelyard's configuration as in Envoy's.
const clusterName = "bench"

// listenerName is the name of the listener in `steelyard bootstrap`.
const listenerName = "ingress"

type object = proc.Object

// bootstrap returns the configuration of one Envoy of a row.
func (p Policy) bootstrap(name, xds, picker string, servers []string) ([]byte, error) {
	o := envoybootstrap.Options{
		Cluster: clusterName, XDS: xds, NodeID: name, Listen: "127.0.0.1:0", Admin: "127.0.0.1:0",
		NoUpstreamLog: true, NoLoadReports: true, NoRuntime: true,
	}
	if c := p.Control; c != nil {
		log, reports := c.AccessLog || c.Default, c.LoadReports || c.Default
		o.NoUpstreamLog, o.NoLoadReports, o.NoRuntime = !log, !reports, !log
		if c.RoundRobin {
			o.Policy = envoybootstrap.PolicyRoundRobin
		}
		if c.TargetWait > 0 {
			o.Mode = envoybootstrap.ModeShedding
		}
		o.Module, o.Picker, o.Prefix = c.Module, picker, c.Prefix
		text, err := envoybootstrap.Render(o)
		if err != nil || !c.Stamps {
			return text, err
		}
		return stamped(text)
	}
	o.XDS = "127.0.0.1:1" // required, and cut off again
	text, err := envoybootstrap.Render(o)
	if err != nil {
		return nil, err
	}
	if p.Extension {
		return extension.Bootstrap(text, listenerName, clusterName, picker, servers)
	}
	return native(text, p.Native, servers)
}

// Headers of answers of Envoys with stamps.
const (
	HeaderArrived = "X-Arrived" // when the request came, in seconds
	HeaderHeld    = "X-Held"    // for how long Envoy had it until its first byte was sent on, in microseconds
)

// stamped has an Envoy add these headers.
func stamped(text []byte) ([]byte, error) {
	const routes = "            virtual_hosts:"
	headers := fmt.Sprintf(`            response_headers_to_add:
            - {header: {key: %s, value: "%%START_TIME(%%s.%%6f)%%"}}
            - {header: {key: %s, value: "%%COMMON_DURATION(DS_RX_BEG:US_TX_BEG:us)%%"}}
`, HeaderArrived, HeaderHeld)
	out := strings.Replace(string(text), routes, headers+routes, 1)
	if out == string(text) {
		return nil, errors.New("the bootstrap has no virtual hosts to add headers to")
	}
	return []byte(out), nil
}

// native turns what `steelyard bootstrap` prints into the configuration of an
// Envoy that balances over a fixed list by a policy of its own. All that does
// not concern the source of endpoints stays as it was.
func native(text []byte, policy Native, servers []string) ([]byte, error) {
	doc, listener, cluster, err := proc.ReadBootstrap(text, listenerName, clusterName)
	if err != nil {
		return nil, err
	}
	if err := balanced(cluster, policy, servers); err != nil {
		return nil, err
	}
	if err := proc.Reroute(listener, clusterName); err != nil {
		return nil, err
	}
	doc.Static.Clusters = []object{cluster}
	return yaml.Marshal(doc)
}

// balanced gives the cluster a fixed list and a policy.
func balanced(cluster object, policy Native, servers []string) error {
	if err := proc.SetStatic(cluster, clusterName, servers); err != nil {
		return err
	}
	delete(cluster, "least_request_lb_config") // Envoy's own defaults
	if policy != CSWRR {
		cluster["lb_policy"] = string(policy)
		return nil
	}
	delete(cluster, "lb_policy")
	common, ok := cluster["common_lb_config"].(object)
	if !ok {
		return errors.New("the cluster has no common_lb_config")
	}
	delete(common, "zone_aware_lb_config") // Envoy takes it with lb_policy only
	cluster["load_balancing_policy"] = object{"policies": []object{{"typed_extension_config": cswrr()}}}
	return nil
}

// cswrr is client_side_weighted_round_robin with the shortest periods that make
// sense: weights a second after the first report, and new ones every 100 ms,
// Envoy's least.
func cswrr() object {
	return object{
		"name": "envoy.load_balancing_policies.client_side_weighted_round_robin",
		"typed_config": object{
			"@type": "type.googleapis.com/envoy.extensions.load_balancing_policies." +
				"client_side_weighted_round_robin.v3.ClientSideWeightedRoundRobin",
			"blackout_period":          "1s",
			"weight_update_period":     "0.1s",
			"weight_expiration_period": "180s",
		},
	}
}
