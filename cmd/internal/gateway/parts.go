package gateway

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"sigs.k8s.io/yaml"

	envoybootstrap "steelyard/envoy-bootstrap"

	// What the parts have of other types.
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/filters/cel/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/aggregate/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/dynamic_modules/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/http/early_header_mutation/header_mutation/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/least_request/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/override_host/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/host/previous_hosts/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/priority/previous_priorities/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
)

// parts has what package envoybootstrap renders for one cluster, as messages.
type parts struct {
	target   string // the cluster that routes name
	clusters []*clusterv3.Cluster
	route    *routev3.RouteAction // timeout and retries
	router   *routerv3.Router     // the log
	module   *module              // nil without
}

// partsOf renders the parts of a cluster whose members are known. moduleXDS is where the module reaches Steelyard. With
// it, all clusters have the one for requests that the module named an endpoint for: routes with and without the
// annotation come and go, and Envoy takes away a cluster before the routes to it.
func partsOf(cluster string, members []string, c choice, moduleXDS string) (p parts, err error) {
	rendered, err := envoybootstrap.RenderParts(envoybootstrap.Options{
		Cluster: cluster, Known: members, LogOwn: true, Module: moduleXDS != "", Prefix: c == byPrompt,
		// Without the module it is only in the bootstrap's part, which Envoy Gateway has from its EnvoyProxy.
		XDS: cmp.Or(moduleXDS, "127.0.0.1:18000"),
	})
	if err != nil {
		return p, fmt.Errorf("rendering cluster %s: %w", cluster, err)
	}
	p.target, p.route, p.router = rendered.Target, &routev3.RouteAction{}, &routerv3.Router{}
	text, err := yaml.YAMLToJSON(rendered.Clusters)
	if err != nil {
		return p, fmt.Errorf("reading the clusters of %s: %w", cluster, err)
	}
	var list []json.RawMessage
	if err := json.Unmarshal(text, &list); err != nil {
		return p, fmt.Errorf("reading the clusters of %s: %w", cluster, err)
	}
	for _, one := range list {
		c := &clusterv3.Cluster{}
		if err := protojson.Unmarshal(one, c); err != nil {
			return p, fmt.Errorf("reading a cluster of %s: %w", cluster, err)
		}
		p.clusters = append(p.clusters, c)
	}
	if err := message(rendered.Route, p.route); err != nil {
		return p, fmt.Errorf("reading the route of %s: %w", cluster, err)
	}
	if err := message(rendered.Router, p.router); err != nil {
		return p, fmt.Errorf("reading the log of %s: %w", cluster, err)
	}
	if p.module, err = moduleOf(rendered); err != nil {
		return p, fmt.Errorf("reading the module of %s: %w", cluster, err)
	}
	return p, nil
}

// rendering is what parts depend on besides the members.
type rendering struct {
	cluster, moduleXDS string
	choice             choice
}

// A cache has the parts of the last translations: rendering them takes milliseconds for each cluster, and Envoy Gateway
// asks about all of a Gateway for each change. Nobody may change them.
type cache struct {
	mu    sync.Mutex // guards all
	known map[rendering]madeFor
}

type madeFor struct {
	members []string
	parts   parts
}

// maxParts bounds them.
const maxParts = 2000

// partsOf returns parts, and renders them if they are not known.
func (c *cache) partsOf(cluster string, members []string, chosen choice, moduleXDS string) (parts, error) {
	of := rendering{cluster, moduleXDS, chosen}
	c.mu.Lock()
	defer c.mu.Unlock()
	before, ok := c.known[of]
	if ok && slices.Equal(before.members, members) {
		return before.parts, nil
	}
	p, err := partsOf(cluster, members, chosen, moduleXDS)
	if err != nil {
		return p, err
	}
	if !ok && len(c.known) >= maxParts {
		clear(c.known)
	}
	c.known[of] = madeFor{slices.Clone(members), p}
	return p, nil
}

// message reads a message from YAML.
func message(text []byte, into proto.Message) error {
	json, err := yaml.YAMLToJSON(text)
	if err != nil {
		return err
	}
	return protojson.Unmarshal(json, into)
}
