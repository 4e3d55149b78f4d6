package envoyid

import (
	"cmp"
	"net/netip"
	"strings"
	"unicode/utf8"
)

// An ID is the id of an Envoy's node, the IP address from which it connects, and the names in its verified certificate.
// No client without that certificate can report for it, whatever node id it sends. The port is left out, because to
// some services an Envoy opens one connection from each worker thread.
type ID struct {
	NodeID      string
	Host        string
	Certificate string // empty without one
}

// Compare orders by node id, host and certificate.
func Compare(a, b ID) int {
	return cmp.Or(cmp.Compare(a.NodeID, b.NodeID), cmp.Compare(a.Host, b.Host),
		cmp.Compare(a.Certificate, b.Certificate))
}

// HostOf returns the IP address of a peer without its port; empty if the peer is not an IP address with a port. An
// IPv4-mapped address becomes IPv4, so that the connections of an Envoy have one host whether the listener is
// dual-stack or not.
func HostOf(peer string) string {
	address, err := netip.ParseAddrPort(peer)
	if err != nil {
		return ""
	}
	return address.Addr().Unmap().String()
}

// maxNodeID bounds a node id, in bytes; longer ones are cut.
const maxNodeID = 256

// NodeID returns the id of a node, bounded.
func NodeID(sent string) string { return Clip(sent, maxNodeID) }

// Clip copies at most limit bytes of s, up to the end of a rune.
func Clip(s string, limit int) string {
	if len(s) > limit {
		for limit > 0 && !utf8.RuneStart(s[limit]) {
			limit--
		}
		s = s[:limit]
	}
	return strings.Clone(s)
}
