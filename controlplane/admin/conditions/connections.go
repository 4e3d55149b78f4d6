package conditions

import (
	"fmt"
	"strings"
	"time"

	"steelyard/internal/api"
)

// wanted is what was denied, in words, by kind.
var wanted = map[string]string{
	"stream": "connected, and no rule names it",
	"watch":  "asked for cluster %s",
	"report": "reported on an endpoint of cluster %s",
}

func xdsAccessProblems(a api.XDSAccess, now time.Time) []api.Problem {
	var out problemList
	if a.Insecure {
		out.warn("the xDS port is open beyond this machine without client certificates, as xds.insecure allows: " +
			"every client can steer the traffic")
	}
	return append(out, deniedProblems(a.Denied, now)...)
}

// deniedProblems returns a problem for each kind of what xds.clients denied recently.
func deniedProblems(denied []api.DeniedClients, now time.Time) []api.Problem {
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

// handshakeProblems returns a problem for each reason for which handshakes are refused.
func handshakeProblems(all []api.RefusedHandshake, now time.Time) []api.Problem {
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
	blame         api.Blame
	because, next string
}

// adviceByReason is by the reason of a refused handshake; "" is for the other reasons.
var adviceByReason = map[string]handshakeAdvice{
	"not_tls": {api.BlameNo, "What connects speaks no TLS.",
		"See what runs there. If it is an Envoy, its bootstrap lacks TLS (steelyard bootstrap --tls)."},
	"expired": {api.BlameNo, "The certificate of the client has expired, or is not valid yet.",
		"Renew the certificate of the client named here."},
	"no_certificate": {api.BlameNo, "The client shows no certificate.",
		"Give the client named here a certificate (steelyard bootstrap --tls)."},
	"refused_by_client": {api.BlameUnknown, "The client does not accept the certificate in xds.tls.cert_file.",
		"See whether it has expired; compare its authority and names with what the client named here expects."},
	"": {api.BlameUnknown,
		"The handshake does not show whether the client's certificate or the authority configured here is wrong.",
		"Compare xds.tls.client_ca_file with the authority of the client named here."},
}

func adviceOnHandshake(reason string) handshakeAdvice {
	if a, known := adviceByReason[reason]; known {
		return a
	}
	return adviceByReason[""]
}

// accessProblems returns the problems of access to the admin listener.
func accessProblems(a api.AdminAccess, now time.Time) []api.Problem {
	var out problemList
	if a.Insecure {
		var without []string
		if !a.TLS {
			without = append(without, "without TLS")
		}
		if a.TokensFile == "" && !a.Kubernetes {
			without = append(without, "without tokens")
		}
		out.warn("the admin listener is open beyond this machine %s, as admin.insecure allows",
			strings.Join(without, " and "))
	}
	if a.TokensError != "" {
		out.fail("the file of admin tokens cannot be used, the previous ones (%d) stay: %s", a.Tokens, a.TokensError)
	}
	if a.KubernetesError != "" {
		out.warn("the Kubernetes API cannot be asked about admin tokens, and who had access keeps it for "+
			"a quarter of an hour: %s", a.KubernetesError)
	}
	for _, d := range a.Denied {
		if d.Reason != api.DeniedNoToken && within(d.LastAt, now, refusalMemory) {
			out.warn("admin requests are denied (%s): %d since the start, the latest %s, from %s", d.Reason, d.Count,
				formatAgo(d.LastAt, now), d.LastPeer)
		}
	}
	return out
}
