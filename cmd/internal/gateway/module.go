package gateway

import (
	"fmt"
	"slices"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	managerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	envoybootstrap "steelyard/envoy-bootstrap"
)

// Annotation is what a route has whose requests the module in Envoy names the endpoints for. Envoy Gateway passes only
// annotations with its own prefix on, in the metadata of Envoy's routes, and translates again when they change.
const Annotation = "gateway.envoyproxy.io/" + annotation

const annotation = "steelyard-module"

// A choice is what the endpoints of a route's requests are chosen by. The later ones include the earlier ones.
type choice int

const (
	byWeight choice = iota // Envoy's own choice
	bySize                 // the module's, by the size of a request
	byPrompt               // the same, and by the prompt in its body
)

// choices are the values of the annotation.
var choices = map[string]choice{"": byWeight, "false": byWeight, "true": bySize, "prefix": byPrompt}

// choiceOf reads the annotation of a route, or says what is wrong with it.
func choiceOf(r *routev3.Route) (c choice, wrong string) {
	for _, about := range resourcesOf(r.GetMetadata()) {
		text := about["annotations"].GetStructValue().GetFields()[annotation].GetStringValue()
		c, ok := choices[text]
		if !ok {
			return byWeight, fmt.Sprintf("is %q: want true or prefix", text)
		}
		if c != byWeight {
			return c, ""
		}
	}
	return byWeight, ""
}

// readAnnotations notes the choices of routes, and the annotations that have no effect.
func (t *translation) readAnnotations(lists []*routev3.RouteConfiguration) {
	for _, list := range lists {
		for _, host := range list.VirtualHosts {
			for _, r := range host.Routes {
				t.readAnnotation(host, r)
			}
		}
	}
}

func (t *translation) readAnnotation(host *routev3.VirtualHost, r *routev3.Route) {
	id, _ := ruleOf(r.Name)
	shares := t.rules[id]
	if shares == nil {
		return
	}
	c, wrong := choiceOf(r)
	switch gateway := gatewayOfHost(host); {
	case wrong != "" || c == byWeight:
	case t.ModuleXDS == "":
		wrong = "needs envoy_gateway.module_xds"
	case !slices.Contains(t.ModuleGateways, gateway):
		wrong = "has no effect on the Gateway " + gateway + ", which envoy_gateway.module_gateways does not have"
	case len(shares) > 1:
		wrong = "is for rules with one backend"
	default:
		t.choices[shares[0].Cluster] = max(t.choices[shares[0].Cluster], c)
		t.annotated[r] = true
	}
	if wrong != "" {
		t.ignore(fmt.Sprintf("%s: %s %s", id, Annotation, wrong))
	}
}

// gatewayOfHost returns the Gateway that a virtual host is of, NAMESPACE/NAME. Its names do not always say so.
func gatewayOfHost(host *routev3.VirtualHost) string {
	for _, about := range resourcesOf(host.GetMetadata()) {
		return about["namespace"].GetStringValue() + "/" + about["name"].GetStringValue()
	}
	return ""
}

// resourcesOf returns what Envoy Gateway notes about the Kubernetes objects that something is made of.
func resourcesOf(m *corev3.Metadata) (about []map[string]*structpb.Value) {
	for _, v := range m.GetFilterMetadata()["envoy-gateway"].GetFields()["resources"].GetListValue().GetValues() {
		about = append(about, v.GetStructValue().GetFields())
	}
	return about
}

// A module is what the module in Envoy needs for one cluster.
type module struct {
	cluster string                           // for the requests that it named an endpoint for
	filter  *managerv3.HttpFilter            // it is off
	on      *anypb.Any                       // what a route has by the filter's name to switch it on
	manager *managerv3.HttpConnectionManager // to be merged into the one that has the filter
}

// moduleOf reads the parts for the module; nil if there are none.
func moduleOf(p envoybootstrap.Parts) (*module, error) {
	if p.Picked == "" {
		return nil, nil
	}
	m := &module{cluster: p.Picked, manager: &managerv3.HttpConnectionManager{}}
	filters := &managerv3.HttpConnectionManager{}
	if err := message(slices.Concat([]byte("http_filters:\n"), p.Filters), filters); err != nil {
		return nil, fmt.Errorf("reading the filter: %w", err)
	}
	if err := message(p.Manager, m.manager); err != nil {
		return nil, fmt.Errorf("reading what goes with the filter: %w", err)
	}
	m.filter = filters.HttpFilters[0]
	var err error
	m.on, err = anypb.New(&routev3.FilterConfig{Config: &anypb.Any{}}) // the filter keeps its configuration
	return m, err
}

// picked switches the module on for a route that wants it, and returns the route for the requests that got an endpoint:
// the module then has the route chosen again.
func (t *translation) picked(r *routev3.Route, shares []share) (*routev3.Route, *module) {
	p := t.parts[shares[0].Cluster]
	if !t.annotated[r] || p.module == nil || r.GetRoute().GetCluster() != p.target {
		return nil, nil
	}
	picked := proto.CloneOf(r)
	picked.Name += "/picked"
	picked.Match.Headers = append(picked.Match.Headers, &routev3.HeaderMatcher{Name: envoybootstrap.PickedHeader,
		HeaderMatchSpecifier: &routev3.HeaderMatcher_PresentMatch{PresentMatch: true}})
	picked.GetRoute().ClusterSpecifier = &routev3.RouteAction_Cluster{Cluster: p.module.cluster}
	if r.TypedPerFilterConfig == nil {
		r.TypedPerFilterConfig = map[string]*anypb.Any{}
	}
	r.TypedPerFilterConfig[p.module.filter.Name] = p.module.on
	return picked, p.module
}

// addModules adds filters to a connection manager, before its router.
func addModules(manager *managerv3.HttpConnectionManager, modules []*module) {
	if len(manager.HttpFilters) == 0 {
		return // Envoy refuses one without a router, and says so
	}
	for i, m := range modules {
		if i == 0 { // alike in this
			proto.Merge(manager, m.manager)
		}
		manager.HttpFilters = slices.Insert(manager.HttpFilters, len(manager.HttpFilters)-1, m.filter)
	}
}
