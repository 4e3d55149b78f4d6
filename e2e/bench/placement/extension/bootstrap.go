package extension

import (
	"errors"
	"fmt"

	"go.yaml.in/yaml/v4"

	"steelyard/e2e/rig/proc"
)

type object = proc.Object

// pickerCluster is the cluster of Envoy in which the picker is.
const pickerCluster = "endpoint_picker"

// Bootstrap turns what `steelyard bootstrap` prints, with this listener and cluster, into the configuration of an Envoy
// that asks the picker at this address for the server of each request.
func Bootstrap(text []byte, listener, cluster, picker string, servers []string) ([]byte, error) {
	doc, ingress, pool, err := proc.ReadBootstrap(text, listener, cluster)
	if err != nil {
		return nil, err
	}
	if err := proc.SetStatic(pool, cluster, servers); err != nil {
		return nil, err
	}
	if err := choose(pool); err != nil {
		return nil, err
	}
	if err := proc.Reroute(ingress, cluster); err != nil {
		return nil, err
	}
	if n := insert(ingress, filter()); n != 1 {
		return nil, fmt.Errorf("the listener %q has %d lists of HTTP filters, want 1", listener, n)
	}
	from, err := fromPicker(picker)
	if err != nil {
		return nil, err
	}
	doc.Static.Clusters = []object{pool, from}
	return yaml.Marshal(doc)
}

// choose makes a cluster send a request to the server that the picker named.
func choose(cluster object) error {
	delete(cluster, "lb_policy")
	delete(cluster, "least_request_lb_config")
	common, ok := cluster["common_lb_config"].(object)
	if !ok {
		return errors.New("the cluster has no common_lb_config")
	}
	delete(common, "zone_aware_lb_config") // Envoy takes it with lb_policy only
	cluster["load_balancing_policy"] = policy("override_host", "OverrideHost", object{
		"override_host_sources": []object{{"metadata": object{
			"key": "envoy.lb", "path": []object{{"key": "x-gateway-destination-endpoint"}},
		}}},
		"fallback_policy": policy("least_request", "LeastRequest", object{}),
	})
	return nil
}

// policy returns a load_balancing_policy.
func policy(name, message string, config object) object {
	config["@type"] = "type.googleapis.com/envoy.extensions.load_balancing_policies." + name + ".v3." + message
	return object{"policies": []object{{"typed_extension_config": object{
		"name": "envoy.load_balancing_policies." + name, "typed_config": config,
	}}}}
}

// filter asks the picker. The modes and the patience are those of the Envoy in the extension's chart.
func filter() object {
	return object{"name": "envoy.filters.http.ext_proc", "typed_config": object{
		"@type":        "type.googleapis.com/envoy.extensions.filters.http.ext_proc.v3.ExternalProcessor",
		"grpc_service": object{"envoy_grpc": object{"cluster_name": pickerCluster}},
		"processing_mode": object{
			"request_header_mode": "SEND", "response_header_mode": "SEND",
			"request_body_mode": "FULL_DUPLEX_STREAMED", "response_body_mode": "FULL_DUPLEX_STREAMED",
			"request_trailer_mode": "SEND", "response_trailer_mode": "SEND",
		},
		"message_timeout":    "1000s",
		"failure_mode_allow": true,
		"metadata_options":   object{"receiving_namespaces": object{"untyped": []string{"envoy.lb"}}},
	}}
}

// fromPicker returns the cluster of the picker, whose certificate is its own and not verified.
func fromPicker(address string) (object, error) {
	c := object{
		"connect_timeout": "2s",
		"circuit_breakers": object{"thresholds": []object{
			{"max_connections": 40000, "max_pending_requests": 40000, "max_requests": 40000},
		}},
		"transport_socket": object{"name": "envoy.transport_sockets.tls", "typed_config": object{
			"@type":              "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
			"common_tls_context": object{},
		}},
		"typed_extension_protocol_options": object{"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": object{
			"@type":                "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
			"explicit_http_config": object{"http2_protocol_options": object{}},
		}},
	}
	return c, proc.SetStatic(c, pickerCluster, []string{address})
}

// insert puts a filter before the others of each list of HTTP filters below a node, and returns the number of lists.
func insert(node any, filter object) (n int) {
	switch v := node.(type) {
	case object:
		if filters, ok := v["http_filters"].([]any); ok {
			v["http_filters"] = append([]any{filter}, filters...)
			return 1
		}
		for _, child := range v {
			n += insert(child, filter)
		}
	case []any:
		for _, child := range v {
			n += insert(child, filter)
		}
	}
	return n
}
