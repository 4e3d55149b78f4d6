package xds

import (
	"fmt"
	"strings"

	"steelyard/internal/api"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"steelyard/internal/envoyid"
)

const (
	maxIdentity = 256  // bytes of each property of the node besides its id
	maxMessage  = 1024 // bytes of a NACK's message
)

// refusal is why an Envoy refuses a message, bounded. Before the reason Envoy writes the whole message that it refuses,
// if that breaks a constraint: of an assignment of some endpoints the bound would leave nothing else, and its words
// would look like the reason.
func refusal(message string) string {
	if strings.HasPrefix(message, "goo.gle/debug") {
		if i := strings.LastIndex(message, "\n: "); i >= 0 {
			message = message[i+len("\n: "):]
		}
	}
	return envoyid.Clip(message, maxMessage)
}

// takeNode reads the node and then removes everything except the id from it. go-control-plane keeps the message for
// as long as the stream lives, and Envoy's list of extensions takes about 61 KB on the wire and several times that in
// memory.
func takeNode(n *corev3.Node) api.Node {
	if n == nil {
		return api.Node{}
	}
	node := api.Node{
		NodeID:      envoyid.NodeID(n.GetId()),
		NodeCluster: envoyid.Clip(n.GetCluster(), maxIdentity),
		Version:     envoyid.Clip(userAgentVersion(n), maxIdentity),
		Locality:    envoyid.Clip(localityName(n.GetLocality()), maxIdentity),
	}
	n.Reset()
	n.Id = node.NodeID
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
