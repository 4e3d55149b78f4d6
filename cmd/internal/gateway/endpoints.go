package gateway

import (
	"net/netip"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
)

// hasEndpoints reports whether an assignment has any.
func hasEndpoints(a *endpointv3.ClusterLoadAssignment) bool {
	for _, l := range a.GetEndpoints() {
		if len(l.LbEndpoints) > 0 {
			return true
		}
	}
	return false
}

// addEndpoints adds endpoints, IP:port, to an assignment.
func addEndpoints(a *endpointv3.ClusterLoadAssignment, addresses []string) {
	l := &endpointv3.LocalityLbEndpoints{}
	for _, address := range addresses {
		at, err := netip.ParseAddrPort(address)
		if err != nil {
			continue // discovery has no others
		}
		l.LbEndpoints = append(l.LbEndpoints, &endpointv3.LbEndpoint{
			HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{
				Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
					Address:       at.Addr().String(),
					PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(at.Port())}}}}}}})
	}
	if len(a.Endpoints) == 0 {
		a.Endpoints = []*endpointv3.LocalityLbEndpoints{l}
		return
	}
	a.Endpoints[0].LbEndpoints = append(a.Endpoints[0].LbEndpoints, l.LbEndpoints...)
}
