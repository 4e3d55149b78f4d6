package admin

import (
	"fmt"
	"strings"
	"time"

	"steelyard/controlplane/view"
	"steelyard/internal/stat"
)

// An XDSAccess is who may use the xDS port, and who was denied.
type XDSAccess struct {
	Loopback           bool `json:"loopback"` // only processes of this machine can connect
	TLS                bool `json:"tls"`
	ClientCertificates bool `json:"client_certificates"` // clients need one
	Insecure           bool `json:"insecure"`            // clients of other machines need none
	Rules              int  `json:"rules"`               // of xds.clients; 0: every client may use all clusters

	Denied []stat.DeniedClients `json:"denied"` // one for each kind
}

// wanted is what was denied, in words, by kind.
var wanted = map[string]string{
	"stream": "connected, and no rule names it",
	"watch":  "asked for cluster %s",
	"report": "reported on an endpoint of cluster %s",
}

func xdsAccessProblems(a XDSAccess, now time.Time) []view.Problem {
	var out problemList
	if a.Insecure {
		out.warn("the xDS port is open beyond this machine without client certificates, as xds.insecure allows: " +
			"every client can steer the traffic")
	}
	for _, d := range a.Denied {
		if !within(d.LastAt, now, refusalMemory) {
			continue
		}
		what := wanted[d.Kind]
		if strings.Contains(what, "%s") {
			what = fmt.Sprintf(what, d.LastCluster)
		}
		out.warn("clients are denied by xds.clients (%s): %d times since the start, the latest %s: %s (%s) %s", d.Kind,
			d.Count, formatAgo(d.LastAt, now), d.LastClient, d.LastPeer, what)
	}
	return out
}

// refusalMemory is for how long a refusal is a problem: what was refused tries again within seconds.
const refusalMemory = time.Minute

// handshakeProblems returns a problem for each reason for which handshakes are refused.
func handshakeProblems(all []stat.RefusedHandshake, now time.Time) []view.Problem {
	var out problemList
	for _, h := range all {
		if within(h.LastAt, now, refusalMemory) && h.Reason != "closed" {
			out.warn("TLS handshakes on the xDS port are refused (%s): %d since the start, the last %s with %s: %s",
				h.Reason, h.Count, formatAgo(h.LastAt, now), h.LastPeer, h.LastError)
		}
	}
	return out
}
