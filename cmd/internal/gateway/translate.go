package gateway

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	grpclogv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/grpc/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	managerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"steelyard/internal/extension"
)

// Translate returns what the Envoys of a Gateway get, where in is what Envoy Gateway made: the rules whose clusters
// PostClusterModify noted go to their pools. ignored are what of the routes has no effect, and why.
//
// The noted clusters stay, as they were before. Nothing may go there, but when a route moves back to a Service its
// cluster is known and warm: Envoy does not wait for a new one to be before it uses the new route.
func Translate(in *extension.PostTranslateModifyRequest, s Surroundings) (
	out *extension.PostTranslateModifyResponse, ignored []string, err error) {
	out = &extension.PostTranslateModifyResponse{Clusters: in.Clusters, Secrets: in.Secrets, Listeners: in.Listeners,
		Routes: in.Routes}
	t := translation{Surroundings: s, rules: map[RuleID][]share{}, parts: map[string]parts{},
		choices: map[string]choice{}, annotated: map[*routev3.Route]bool{}}
	if t.read(in.Clusters); len(t.rules) == 0 {
		return out, t.ignored, nil
	}
	t.readAnnotations(in.Routes)
	if err := t.render(); err != nil {
		return out, t.ignored, err
	}
	changed := map[string][]*module{} // of lists of routes, by name
	for _, list := range in.Routes {
		if modules, ok := t.reroute(list); ok {
			changed[list.Name] = modules
		}
	}
	out.Clusters = slices.Clone(in.Clusters)
	for _, name := range slices.Sorted(maps.Keys(t.parts)) {
		out.Clusters = append(out.Clusters, t.parts[name].clusters...)
	}
	for _, l := range in.Listeners {
		if err := t.amend(l, changed); err != nil {
			return out, t.ignored, fmt.Errorf("adding to listener %s: %w", l.Name, err)
		}
	}
	return out, t.ignored, nil
}

// Surroundings are what Translate needs besides the message.
type Surroundings struct {
	// Members returns the addresses of a cluster of Steelyard, IP:port.
	Members func(cluster string) []string
	// ModuleXDS is HOST:PORT where the module in the Envoys reaches Steelyard; empty: they have none.
	ModuleXDS string
	// ModuleGateways are those, NAMESPACE/NAME, whose Envoys have the module.
	ModuleGateways []string
	cache          *cache
}

// A translation is what the noted clusters and the annotations say.
type translation struct {
	Surroundings
	rules   map[RuleID][]share
	choices map[string]choice // by the name of Steelyard's cluster
	parts   map[string]parts  // the same
	// annotated are the routes whose annotation has an effect.
	annotated map[*routev3.Route]bool
	ignored   []string
}

// read removes the notes.
func (t *translation) read(clusters []*clusterv3.Cluster) {
	for _, c := range clusters {
		n, ok := takeNote(c)
		if !ok {
			continue
		}
		if id, ok := ruleOf(c.Name); ok && n.Shares != nil {
			t.rules[id] = n.Shares
		}
		for _, text := range n.Ignored {
			t.ignore(text)
		}
	}
}

func (t *translation) render() (err error) {
	for _, shares := range t.rules {
		for _, s := range shares {
			if _, done := t.parts[s.Cluster]; done || s.Cluster == "" {
				continue
			}
			t.parts[s.Cluster], err = t.cache.partsOf(s.Cluster, t.Members(s.Cluster), t.choices[s.Cluster],
				t.ModuleXDS)
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// reroute changes a list of routes, if any is of the noted rules, and returns the modules that they switch on.
func (t *translation) reroute(list *routev3.RouteConfiguration) (modules []*module, changed bool) {
	for _, host := range list.VirtualHosts {
		var routes []*routev3.Route
		for _, r := range host.Routes {
			id, _ := ruleOf(r.Name)
			shares := t.rules[id]
			if shares != nil && r.GetRoute() != nil && targets(r.GetRoute()) == nil {
				t.ignore(r.Name + " names no cluster, so it does not go to its pools: see which EnvoyPatchPolicy or " +
					"extension has changed it")
			} else if shares != nil && r.GetRoute() != nil {
				t.send(r.GetRoute(), shares)
				changed = true
				if picked, m := t.picked(r, shares); m != nil {
					routes = append(routes, picked)
					modules = append(modules, m)
				}
			}
			routes = append(routes, r)
		}
		host.Routes = routes
	}
	slices.SortFunc(modules, func(a, b *module) int { return strings.Compare(a.cluster, b.cluster) })
	return slices.Compact(modules), changed
}

// ignore notes once what has no effect.
func (t *translation) ignore(what string) {
	if !slices.Contains(t.ignored, what) {
		t.ignored = append(t.ignored, what)
	}
}

// send has the requests of a route go to the clusters of its rule, by their weights. A timeout and
// retries that the route has already stay.
func (t *translation) send(a *routev3.RouteAction, shares []share) {
	all := targets(a)
	if a.GetWeightedClusters() == nil {
		all[0].Weight = wrapperspb.UInt32(0)
	}
	for _, s := range shares {
		if s.Cluster != "" {
			p := t.parts[s.Cluster]
			all = append(all, &routev3.WeightedCluster_ClusterWeight{Name: p.target,
				Weight: wrapperspb.UInt32(s.Weight)})
			if a.Timeout == nil {
				a.Timeout = p.route.Timeout
			}
			if a.RetryPolicy == nil {
				a.RetryPolicy = p.route.RetryPolicy
			}
		} else if a.GetWeightedClusters() == nil {
			all[0].Weight.Value += s.Weight
		}
	}
	all = slices.DeleteFunc(all, func(c *routev3.WeightedCluster_ClusterWeight) bool {
		return c.Weight.GetValue() == 0
	})
	if len(all) == 1 && plain(all[0]) {
		a.ClusterSpecifier = &routev3.RouteAction_Cluster{Cluster: all[0].Name}
		return
	}
	a.ClusterSpecifier = &routev3.RouteAction_WeightedClusters{
		WeightedClusters: &routev3.WeightedCluster{Clusters: all}}
}

// plain reports whether a share of a route has nothing but its name and weight.
func plain(c *routev3.WeightedCluster_ClusterWeight) bool {
	return proto.Equal(c, &routev3.WeightedCluster_ClusterWeight{Name: c.Name, Weight: c.Weight})
}

// targets are the clusters of a route, with their weights if there are several; nil if it says in another way where
// requests go.
func targets(a *routev3.RouteAction) []*routev3.WeightedCluster_ClusterWeight {
	switch s := a.GetClusterSpecifier().(type) {
	case *routev3.RouteAction_Cluster:
		return []*routev3.WeightedCluster_ClusterWeight{{Name: s.Cluster}}
	case *routev3.RouteAction_WeightedClusters:
		return slices.Clone(s.WeightedClusters.Clusters)
	}
	return nil
}

// amend adds the upstream log to the filters of a listener that have a changed list of routes, and the filters of
// modules that its routes switch on. The log is the same for all pools, so that a pool without the module that comes or
// goes changes no listener but with the first one and the last one.
func (t *translation) amend(l *listenerv3.Listener, changed map[string][]*module) error {
	for _, chain := range append(slices.Clone(l.FilterChains), l.DefaultFilterChain) {
		for _, f := range chain.GetFilters() {
			manager := &managerv3.HttpConnectionManager{}
			if !f.GetTypedConfig().MessageIs(manager) {
				continue
			}
			if err := f.GetTypedConfig().UnmarshalTo(manager); err != nil {
				return err
			}
			modules, ok := changed[manager.GetRds().GetRouteConfigName()]
			if !ok {
				continue
			}
			if err := t.logRequests(manager); err != nil {
				return err
			}
			addModules(manager, modules)
			if err := pack(f.GetTypedConfig(), manager); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *translation) logRequests(manager *managerv3.HttpConnectionManager) error {
	for _, f := range manager.HttpFilters {
		router := &routerv3.Router{}
		if !f.GetTypedConfig().MessageIs(router) {
			continue
		}
		if err := f.GetTypedConfig().UnmarshalTo(router); err != nil {
			return err
		}
		if logsAlready(router) {
			continue
		}
		for _, p := range t.parts { // alike in this
			proto.Merge(router, p.router)
			break
		}
		if err := pack(f.GetTypedConfig(), router); err != nil {
			return err
		}
	}
	return nil
}

// logsAlready reports whether a router has Steelyard's log, by an EnvoyPatchPolicy: twice would count each request
// twice.
func logsAlready(router *routerv3.Router) bool {
	return slices.ContainsFunc(router.UpstreamLog, func(l *accesslogv3.AccessLog) bool {
		log := &grpclogv3.HttpGrpcAccessLogConfig{}
		return l.GetTypedConfig().UnmarshalTo(log) == nil && log.GetCommonConfig().GetLogName() == "steelyard"
	})
}

// pack writes a message in the same way each time, so that Envoy sees no change where there is none.
func pack(into *anypb.Any, m proto.Message) (err error) {
	into.Value, err = proto.MarshalOptions{Deterministic: true}.Marshal(m)
	return err
}
