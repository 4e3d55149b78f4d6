package gateway

import (
	"net/netip"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
)

// setMembers gives a cluster its members, IP:port, also if there are none, instead of those that Envoy would ask Envoy
// Gateway for: while it waits for an answer that does not come, for 15 s, Envoy takes no other clusters, but routes to
// them. Where another extension has made something else of it, it stays as it is.
func setMembers(c *clusterv3.Cluster, addresses []string) {
	if c.GetType() != clusterv3.Cluster_EDS {
		return
	}
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
	c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC}
	c.EdsClusterConfig = nil
	c.LoadAssignment = &endpointv3.ClusterLoadAssignment{ClusterName: c.Name,
		Endpoints: []*endpointv3.LocalityLbEndpoints{l}}
}
