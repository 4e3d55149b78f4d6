package proc

import (
	"net"
	"strconv"
)

// SetStatic makes an EDS cluster of a bootstrap, decoded from YAML, one with a fixed
// list of endpoints, IP:port, under another name. Its load balancing policy stays.
func SetStatic(cluster map[string]any, name string, servers []string) error {
	var members []map[string]any
	for _, s := range servers {
		host, port, err := net.SplitHostPort(s)
		if err != nil {
			return err
		}
		number, err := strconv.Atoi(port)
		if err != nil {
			return err
		}
		members = append(members, map[string]any{"endpoint": map[string]any{
			"address": map[string]any{"socket_address": map[string]any{"address": host, "port_value": number}},
		}})
	}
	delete(cluster, "eds_cluster_config")
	cluster["name"], cluster["type"] = name, "STATIC"
	cluster["load_assignment"] = map[string]any{
		"cluster_name": name,
		"endpoints":    []map[string]any{{"lb_endpoints": members}},
	}
	return nil
}

// Reroute sets the cluster of every route below a node of such a bootstrap and returns
// their number.
func Reroute(node any, cluster string) int {
	n := 0
	switch v := node.(type) {
	case map[string]any:
		if route, ok := v["route"].(map[string]any); ok {
			route["cluster"] = cluster
			n++
		}
		for _, child := range v {
			n += Reroute(child, cluster)
		}
	case []any:
		for _, child := range v {
			n += Reroute(child, cluster)
		}
	}
	return n
}
