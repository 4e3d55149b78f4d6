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
	Loopback           bool `json:"loopback"`            // only processes of this machine can connect
	TLS                bool `json:"tls"`                 // the port speaks TLS
	ClientCertificates bool `json:"client_certificates"` // clients need a certificate
	Insecure           bool `json:"insecure"`            // clients of other machines need no certificate
	// number of items of `xds.clients`; 0: every client may use all clusters
	Rules int `json:"rules"`

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
	return append(out, deniedProblems(a.Denied, now)...)
}

// deniedProblems returns a problem for each kind of what xds.clients denied recently.
func deniedProblems(denied []stat.DeniedClients, now time.Time) []view.Problem {
	var out problemList
	for _, d := range denied {
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

// handshakeAdvice is whether Steelyard is the cause of a refused handshake, why, and what to do.
type handshakeAdvice struct {
	blame         view.Blame
	because, next string
}

// adviceByReason is by the reason of a refused handshake; "" is for the other reasons.
var adviceByReason = map[string]handshakeAdvice{
	"not_tls": {view.BlameNo, "What connects speaks no TLS.",
		"See what runs there. If it is an Envoy, its bootstrap lacks TLS (steelyard bootstrap --tls)."},
	"expired": {view.BlameNo, "The certificate of the client has expired, or is not valid yet.",
		"Renew the certificate of the client named here."},
	"no_certificate": {view.BlameNo, "The client shows no certificate.",
		"Give the client named here a certificate (steelyard bootstrap --tls)."},
	"refused_by_client": {view.BlameUnknown, "The client does not accept the certificate in xds.tls.cert_file.",
		"See whether it has expired; compare its authority and names with what the client named here expects."},
	"": {view.BlameUnknown,
		"The handshake does not show whether the client's certificate or the authority configured here is wrong.",
		"Compare xds.tls.client_ca_file with the authority of the client named here."},
}

func adviceOnHandshake(reason string) handshakeAdvice {
	if a, known := adviceByReason[reason]; known {
		return a
	}
	return adviceByReason[""]
}
