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

// An entry holds what does not change of an endpoint between two assignments.
type entry struct {
	address, zone string // as in the decision
	at            int    // its index there
	addr          netip.AddrPort
	identifier    *endpointv3.LbEndpoint_Endpoint // its address in the message
}

// newEntries sorts the endpoints into the order of the message: by zone, then by address. The decision's own order must
// not matter, or a reordered but equal decision would be dithered differently.
func newEntries(endpoints []weighting.EndpointDecision) ([]entry, error) {
	entries := make([]entry, 0, len(endpoints))
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
		entries = append(entries,
			entry{address: e.Address, zone: e.Zone, at: i, addr: addr, identifier: identifier(addr)})
	}
	slices.SortFunc(entries, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.zone, b.zone), a.addr.Compare(b.addr))
	})
	return entries, nil
}

// fit reports whether the entries are those of the endpoints, in the same order.
func fit(entries []entry, endpoints []weighting.EndpointDecision) bool {
	if len(entries) != len(endpoints) {
		return false
	}
	for i := range entries {
		s := &entries[i]
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
