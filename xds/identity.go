package xds

import (
	"fmt"
	"strings"
	"unicode/utf8"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
)

const (
	maxIdentity = 256  // bytes of each property of the node
	maxMessage  = 1024 // bytes of a NACK's message
)

// An identity is what the server keeps of a node.
type identity struct {
	id, cluster, version, locality string
}

// takeIdentity reads the node and then removes everything except the id from it. go-control-plane keeps the message for
// as long as the stream lives, and Envoy's list of extensions takes some 61 KB on the wire and several times that in
// memory.
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

// clip copies at most limit bytes of s, up to the end of a rune.
func clip(s string, limit int) string {
	if len(s) > limit {
		for limit > 0 && !utf8.RuneStart(s[limit]) {
			limit--
		}
		s = s[:limit]
	}
	return strings.Clone(s)
}
