package gateway

import (
	"cmp"
	"slices"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"steelyard/internal/api"
	"steelyard/internal/extension"
)

// maxPools bounds the pools that are remembered of a Gateway, and the Gateways.
const maxPools = 1000

// poolsByGateway returns the pools that the routes of each Gateway of a message name, by the notes in its clusters.
// With mergeGateways, a message is about several Gateways. One whose pools are nil has none any more.
func poolsByGateway(in *extension.PostTranslateModifyRequest) map[string][]api.GatewayPool {
	named := map[RuleID][]api.GatewayPool{}
	for _, c := range in.Clusters {
		if id, ok := ruleOf(c.Name); ok {
			n, _ := readNote(c)
			named[id] = append(named[id], n.Pools...)
		}
	}
	out := map[string][]api.GatewayPool{}
	for _, l := range in.Listeners {
		if gateway := gatewayIn(l.Name); gateway != "" {
			out[gateway] = nil
		}
	}
	for _, list := range in.Routes {
		for _, host := range list.VirtualHosts {
			gateway := gatewayOfHosts(list, host)
			pools := out[gateway]
			for _, r := range host.Routes {
				id, _ := ruleOf(r.Name)
				pools = append(pools, named[id]...)
			}
			slices.SortFunc(pools, byName)
			out[gateway] = api.Limit(slices.Compact(pools), maxPools)
		}
	}
	return out
}

// gatewayOfHosts is the Gateway of a virtual host in a list of routes.
func gatewayOfHosts(list *routev3.RouteConfiguration, host *routev3.VirtualHost) string {
	return cmp.Or(gatewayOfHost(host), gatewayIn(list.Name))
}

// gatewayIn is the Gateway in the name of a listener, NAMESPACE/GATEWAY/LISTENER; empty where names are others
// (XDSNameSchemeV2).
func gatewayIn(name string) string {
	if parts := strings.Split(name, "/"); len(parts) >= 3 {
		return parts[0] + "/" + parts[1]
	}
	return ""
}

func byName(a, b api.GatewayPool) int {
	return cmp.Or(cmp.Compare(a.Gateway, b.Gateway), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}
