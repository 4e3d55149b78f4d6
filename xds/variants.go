package xds

import (
	"strings"

	"steelyard/weighting"
)

// A cluster is served under four names, because an EDS resource has one policy for all its subscribers, and an Envoy
// with a fallback needs another policy than one that sheds:
//
//	NAME           weights, DEGRADED if overloaded, drop_overloads
//	NAME/failsafe  weights, DEGRADED if overloaded, endpoint_stale_after
//	NAME/fallback  only the members, all DEGRADED or drained
//	NAME/members   only the members, without weights, DEGRADED if they stall or fail
//
// The last two are sent when the verdict has Members: when any of that changes.
//
// An Envoy with endpoint_stale_after and without a fallback would lose all endpoints with the control plane; an
// aggregate cluster, which has the fallback, does not enforce drop_overloads. With separate names, no Envoy gets either
// combination by mistake. The members of the fallback are DEGRADED so that Envoy prefers the flagged endpoints of the
// weighted cluster. The other members are for policies that hash: those leave DEGRADED endpoints out, even if all
// are, and each change of a weight moves what they keep together.
//
// The server does not build an assignment for a name without subscribers. It keeps the newest decision, and publishes
// it under the name when the first subscriber comes, before it answers the subscriber. If no name has a subscriber, it
// builds that of the plain name anyway, so that there are weights to show.
const (
	failsafeSuffix = "/failsafe"
	fallbackSuffix = "/fallback"
	membersSuffix  = "/members"
)

// fallback returns a decision that has only the endpoints of d, with equal shares and DEGRADED.
func fallback(d weighting.Decision) weighting.Decision {
	return stripped(d, func(*weighting.EndpointDecision) bool { return true }, "fallback")
}

// members returns a decision that has only the endpoints of d, with equal shares. Those that sleep are DEGRADED, and
// those that stall or fail, unless that would leave less than half of them.
func members(d weighting.Decision) weighting.Decision {
	failing := 0
	for i := range d.Endpoints {
		if d.Endpoints[i].Failing {
			failing++
		}
	}
	few := 2*failing <= len(d.Endpoints)
	return stripped(d, func(e *weighting.EndpointDecision) bool {
		return e.Reason == weighting.ReasonAsleep || few && e.Failing
	}, "failing or asleep")
}

// stripped returns a decision that has only the endpoints of d, with equal shares; some are flagged, for a reason.
func stripped(d weighting.Decision, flagged func(*weighting.EndpointDecision) bool,
	reason string) weighting.Decision {
	out := weighting.Decision{At: d.At, Endpoints: make([]weighting.EndpointDecision, len(d.Endpoints))}
	for i := range d.Endpoints {
		e := &d.Endpoints[i]
		out.Endpoints[i] = weighting.EndpointDecision{
			Address: e.Address, Zone: e.Zone, Share: 1 / float64(len(d.Endpoints)),
			Override: weighting.Override{Drained: e.Override.Drained},
		}
		if flagged(e) {
			out.Endpoints[i].Overloaded, out.Endpoints[i].OverloadReason = true, reason
		}
	}
	return out
}

// BaseName returns the cluster of any of its names.
func BaseName(name string) string {
	for _, suffix := range []string{failsafeSuffix, fallbackSuffix, membersSuffix} {
		if base, ok := strings.CutSuffix(name, suffix); ok {
			return base
		}
	}
	return name
}
