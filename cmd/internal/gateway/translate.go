package gateway

import (
	"fmt"
	"maps"
	"slices"

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

	"steelyard/cmd/internal/gateway/extension"
)

// Translate returns what the Envoys of a Gateway get, where in is what Envoy Gateway made: the rules whose clusters
// PostClusterModify noted go to their pools. members returns the addresses of a cluster of Steelyard, IP:port.
//
// The noted clusters stay, as they were before. Nothing may go there, but when a route moves back to a Service its
// cluster is known and warm: Envoy does not wait for a new one to be before it uses the new route.
func Translate(in *extension.PostTranslateModifyRequest, members func(cluster string) []string) (
	*extension.PostTranslateModifyResponse, error) {
	out := &extension.PostTranslateModifyResponse{Clusters: in.Clusters, Secrets: in.Secrets, Listeners: in.Listeners,
		Routes: in.Routes}
	t := translation{rules: map[RuleID][]share{}, parts: map[string]parts{}}
	if err := t.read(in.Clusters, members); err != nil || len(t.rules) == 0 {
		return out, err
	}
	changed := map[string]bool{} // names of the lists of routes
	for _, list := range in.Routes {
		for _, host := range list.VirtualHosts {
			for _, r := range host.Routes {
				id, _ := ruleOf(r.Name)
				if shares := t.rules[id]; shares != nil && r.GetRoute() != nil {
					t.send(r.GetRoute(), shares)
					changed[list.Name] = true
				}
			}
		}
	}
	out.Clusters = slices.Clone(in.Clusters)
	for _, name := range slices.Sorted(maps.Keys(t.parts)) {
		out.Clusters = append(out.Clusters, t.parts[name].clusters...)
	}
	for _, l := range in.Listeners {
		if err := t.log(l, changed); err != nil {
			return out, fmt.Errorf("adding the log to listener %s: %w", l.Name, err)
		}
	}
	return out, nil
}

// A translation is what the noted clusters say.
type translation struct {
	rules map[RuleID][]share
	parts map[string]parts // by the name of Steelyard's cluster
}

func (t *translation) read(clusters []*clusterv3.Cluster, members func(string) []string) error {
	for _, c := range clusters {
		shares := noted(c)
		id, ok := ruleOf(c.Name)
		if shares == nil || !ok {
			continue
		}
		t.rules[id] = shares
		delete(c.Metadata.FilterMetadata, noteKey)
		for _, s := range shares {
			if _, done := t.parts[s.cluster]; done || s.cluster == "" {
				continue
			}
			p, err := partsOf(s.cluster, members(s.cluster))
			if err != nil {
				return err
			}
			t.parts[s.cluster] = p
		}
	}
	return nil
}

// send has the requests of a route go to the clusters of its rule, by their weights. A timeout and
// retries that the route has already stay.
func (t *translation) send(a *routev3.RouteAction, shares []share) {
	all := targets(a)
	if a.GetWeightedClusters() == nil {
		all[0].Weight = wrapperspb.UInt32(0)
	}
	for _, s := range shares {
		if s.cluster != "" {
			p := t.parts[s.cluster]
			all = append(all, &routev3.WeightedCluster_ClusterWeight{Name: p.target,
				Weight: wrapperspb.UInt32(s.weight)})
			if a.Timeout == nil {
				a.Timeout = p.route.Timeout
			}
			if a.RetryPolicy == nil {
				a.RetryPolicy = p.route.RetryPolicy
			}
		} else if a.GetWeightedClusters() == nil {
			all[0].Weight.Value += s.weight
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

// targets are the clusters of a route, with their weights if there are several.
func targets(a *routev3.RouteAction) []*routev3.WeightedCluster_ClusterWeight {
	switch s := a.GetClusterSpecifier().(type) {
	case *routev3.RouteAction_Cluster:
		return []*routev3.WeightedCluster_ClusterWeight{{Name: s.Cluster}}
	case *routev3.RouteAction_WeightedClusters:
		return slices.Clone(s.WeightedClusters.Clusters)
	}
	return nil
}

// log adds the upstream log to the filters of a listener that have a changed list of routes. It is the same for all
// pools, so that a pool that comes or goes changes no listener but with the first one and the last one.
func (t *translation) log(l *listenerv3.Listener, changed map[string]bool) error {
	for _, chain := range append(slices.Clone(l.FilterChains), l.DefaultFilterChain) {
		for _, f := range chain.GetFilters() {
			manager := &managerv3.HttpConnectionManager{}
			if !f.GetTypedConfig().MessageIs(manager) {
				continue
			}
			if err := f.GetTypedConfig().UnmarshalTo(manager); err != nil {
				return err
			}
			if !changed[manager.GetRds().GetRouteConfigName()] {
				continue
			}
			if err := t.logRequests(manager); err != nil {
				return err
			}
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
