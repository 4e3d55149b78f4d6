package assignment

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"steelyard/weighting"
)

// A site has what stays the same of an endpoint from one assignment to the next.
type site struct {
	address, zone string // as in the decision
	at            int    // its index there
	addr          netip.AddrPort
	identifier    *endpointv3.LbEndpoint_Endpoint // its address in the message
}

// newSites puts the endpoints into the order of the message: by zone, then by address. The
// decision's own order must not matter, or a reordered but equal decision would be
// dithered differently.
func newSites(endpoints []weighting.EndpointDecision) ([]site, error) {
	sites := make([]site, 0, len(endpoints))
	seen := make(map[netip.AddrPort]struct{}, len(endpoints))
	for i := range endpoints {
		e := &endpoints[i]
		addr, err := parseAddress(e.Address)
		if err != nil {
			return nil, err
		}
		if _, twice := seen[addr]; twice {
			return nil, fmt.Errorf("endpoint %q appears twice: an address is an endpoint's identity within its cluster",
				e.Address)
		}
		seen[addr] = struct{}{}
		sites = append(sites, site{address: e.Address, zone: e.Zone, at: i, addr: addr, identifier: identifier(addr)})
	}
	slices.SortFunc(sites, func(a, b site) int {
		return cmp.Or(cmp.Compare(a.zone, b.zone), a.addr.Compare(b.addr))
	})
	return sites, nil
}

// fit reports whether the sites are those of the endpoints, in the same order.
func fit(sites []site, endpoints []weighting.EndpointDecision) bool {
	if len(sites) != len(endpoints) {
		return false
	}
	for i := range sites {
		s := &sites[i]
		if e := &endpoints[s.at]; e.Address != s.address || e.Zone != s.zone {
			return false
		}
	}
	return true
}

// parseAddress accepts what Envoy accepts in a socket address of type STATIC.
func parseAddress(s string) (netip.AddrPort, error) {
	addr, err := netip.ParseAddrPort(s)
	switch {
	case err != nil:
		return netip.AddrPort{}, fmt.Errorf("endpoint address %q: %w; write IP:PORT, or [IP]:PORT for IPv6", s, err)
	case addr.Port() == 0:
		return netip.AddrPort{}, fmt.Errorf(
			"endpoint address %q: port 0 cannot be connected to; write the serving port", s)
	case addr.Addr().Zone() != "":
		return netip.AddrPort{}, fmt.Errorf("endpoint address %q: "+
			"an IPv6 zone means nothing on another machine; write the address without it", s)
	}
	return addr, nil
}

func identifier(a netip.AddrPort) *endpointv3.LbEndpoint_Endpoint {
	return &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{
		Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
			Address:       a.Addr().String(),
			PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(a.Port())},
		}}},
	}}
}
