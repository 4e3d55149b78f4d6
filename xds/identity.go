package xds

import (
	"fmt"
	"strings"
	"unicode/utf8"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
)

const (
	maxIdentity = 256  // bytes of each thing that an Envoy says of itself
	maxMessage  = 1024 // bytes of a NACK's words
)

// An identity is what is kept of a node.
type identity struct {
	id, cluster, version, locality string
}

// takeIdentity reads the node and then empties it but for the id. go-control-plane keeps the
// message for as long as the stream lives, and Envoy's list of extensions
// alone is some 61 KB on the wire and several times that in memory.
func takeIdentity(n *corev3.Node) identity {
	if n == nil {
		return identity{}
	}
	node := identity{
		id:       clip(n.GetId(), maxIdentity),
		cluster:  clip(n.GetCluster(), maxIdentity),
		version:  clip(userAgentVersion(n), maxIdentity),
		locality: clip(localityName(n.GetLocality()), maxIdentity),
	}
	n.Reset()
	n.Id = node.id
	return node
}

func userAgentVersion(n *corev3.Node) string {
	if v := n.GetUserAgentBuildVersion().GetVersion(); v != nil {
		return fmt.Sprintf("%d.%d.%d", v.GetMajorNumber(), v.GetMinorNumber(), v.GetPatch())
	}
	return n.GetUserAgentVersion()
}

func localityName(l *corev3.Locality) string {
	return strings.TrimRight(strings.Join([]string{l.GetRegion(), l.GetZone(), l.GetSubZone()}, "/"), "/")
}

// clip cuts s to at most limit bytes, on a rune's edge, into memory of its own.
func clip(s string, limit int) string {
	if len(s) > limit {
		for limit > 0 && !utf8.RuneStart(s[limit]) {
			limit--
		}
		s = s[:limit]
	}
	return strings.Clone(s)
}
