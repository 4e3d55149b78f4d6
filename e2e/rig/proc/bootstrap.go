package proc

import (
	"fmt"
	"net"
	"strconv"

	"go.yaml.in/yaml/v4"
)

// An Object is a mapping of a YAML document.
type Object = map[string]any

// A Bootstrap is what `steelyard bootstrap` prints, decoded: listeners and clusters can be changed or added, and all
// the rest stays as it is when it is marshaled again.
type Bootstrap struct {
	Static struct {
		Listeners []Object `yaml:"listeners"`
		Clusters  []Object `yaml:"clusters"`
		Rest      Object   `yaml:",inline"`
	} `yaml:"static_resources"`
	Rest Object `yaml:",inline"`
}

// ReadBootstrap decodes a bootstrap, and finds the listener and the cluster with these names in it.
func ReadBootstrap(text []byte, listener, cluster string) (b *Bootstrap, l, c Object, err error) {
	b = new(Bootstrap)
	if err := yaml.Unmarshal(text, b); err != nil {
		return nil, nil, nil, err
	}
	if l, err = named(b.Static.Listeners, listener); err != nil {
		return nil, nil, nil, err
	}
	c, err = named(b.Static.Clusters, cluster)
	return b, l, c, err
}

func named(resources []Object, name string) (Object, error) {
	for _, r := range resources {
		if r["name"] == name {
			return r, nil
		}
	}
	return nil, fmt.Errorf("the template of `steelyard bootstrap` has nothing named %q", name)
}

// SetStatic makes an EDS cluster of a bootstrap one with a fixed list of endpoints, IP:port, under another name. Its
// load balancing policy stays.
func SetStatic(cluster Object, name string, servers []string) error {
	var members []Object
	for _, s := range servers {
		host, port, err := net.SplitHostPort(s)
		if err != nil {
			return err
		}
		number, err := strconv.Atoi(port)
		if err != nil {
			return err
		}
		members = append(members, Object{"endpoint": Object{
			"address": Object{"socket_address": Object{"address": host, "port_value": number}},
		}})
	}
	delete(cluster, "eds_cluster_config")
	cluster["name"], cluster["type"] = name, "STATIC"
	cluster["load_assignment"] = Object{
		"cluster_name": name,
		"endpoints":    []Object{{"lb_endpoints": members}},
	}
	return nil
}

// Reroute sets the cluster of the only route of a listener.
func Reroute(listener Object, cluster string) error {
	if n := reroute(listener, cluster); n != 1 {
		return fmt.Errorf("the template of `steelyard bootstrap` has %d routes, want 1", n)
	}
	return nil
}

// reroute sets the cluster of every route below a node and returns their number.
func reroute(node any, cluster string) (n int) {
	switch v := node.(type) {
	case Object:
		if route, ok := v["route"].(Object); ok {
			route["cluster"] = cluster
			n++
		}
		for _, child := range v {
			n += reroute(child, cluster)
		}
	case []any:
		for _, child := range v {
			n += reroute(child, cluster)
		}
	}
	return n
}
