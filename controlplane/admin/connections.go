package admin

import (
	"time"

	"steelyard/controlplane/view"
)

// A RefusedHandshake sums up the TLS handshakes on the xDS port that failed for one reason.
type RefusedHandshake struct {
	Reason    string    `json:"reason"`
	Count     uint64    `json:"count"`
	LastAt    view.Time `json:"last_at"`
	LastPeer  string    `json:"last_peer"`
	LastError string    `json:"last_error"`
}

// A GoneEnvoy is one whose connection ended while its streams were open.
type GoneEnvoy struct {
	NodeID  string    `json:"node_id"`
	Address string    `json:"address"`
	Since   view.Time `json:"since"`
	Cause   string    `json:"cause"` // how the connection ended
}

// refusalMemory is for how long a refusal is a problem: what was refused tries again within seconds.
const refusalMemory = time.Minute

// refusalProblems are those of connections and requests that were refused.
func refusalProblems(s Status) []view.Problem {
	var out []view.Problem
	for _, h := range s.RefusedHandshakes {
		if ago, known := h.LastAt.Age(s.Now.Time).Value(); known && ago < refusalMemory.Seconds() &&
			h.Reason != "closed" {
			out = append(out, problem(view.SeverityWarning, "TLS handshakes on the xDS port are refused (%s): %d "+
				"since the start, the last %s ago with %s: %s",
				h.Reason, h.Count, formatSeconds(ago), h.LastPeer, h.LastError))
		}
	}
	if ago, known := s.RefusedRequests.LastAt.Age(s.Now.Time).Value(); known && ago < refusalMemory.Seconds() {
		out = append(out, problem(view.SeverityWarning, "admin requests for the host %q are refused: add it to "+
			"admin.allowed_hosts if it is yours", s.RefusedRequests.LastHost))
	}
	return out
}

// maxGoneNamed is how many Envoys that vanished have a problem of their own.
const maxGoneNamed = 10

func goneProblems(gone []GoneEnvoy, now time.Time) []view.Problem {
	var out []view.Problem
	for _, g := range cut(gone, maxGoneNamed) {
		out = append(out, problem(view.SeverityWarning, "Envoy %s (%s) vanished %s without closing its stream: %s",
			g.NodeID, g.Address, formatAgo(g.Since, now), g.Cause))
	}
	if more := len(gone) - len(out); more > 0 {
		out = append(out, problem(view.SeverityWarning, "%d more Envoys vanished without closing their streams: see "+
			"gone_envoys of /api/v1/status", more))
	}
	return out
}
