package xds

import (
	"cmp"
	"net/netip"
	"strings"

	"steelyard/weighting"
	"steelyard/weighting/push"
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

// kept has the verdict of the latest call of Publish.
type kept struct {
	number  uint64 // of the call
	verdict push.Verdict
}

// Publish pushes a decision under all names of the cluster that have subscribers and for which the verdict says that it
// is due, and returns the version of the weights. Envoys with a fallback drop the endpoints if they get no assignment
// for StaleAfter; 0 is never. The server keeps the decision until the next call, so the caller must not change it. If
// an assignment cannot be built, Publish returns the reason, and the Envoys keep the previous one.
func (s *Server) Publish(cluster string, v push.Verdict) (version string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	latest := kept{s.kept[cluster].number + 1, v}
	s.kept[cluster] = latest
	failsafe := s.tracker.subscribed(cluster + failsafeSuffix)
	if failsafe {
		err = s.publishVariant(cluster+failsafeSuffix, latest)
		version = s.clusters[cluster+failsafeSuffix].version()
	}
	if !failsafe || s.tracker.subscribed(cluster) {
		err = cmp.Or(err, s.publishVariant(cluster, latest))
		version = s.clusters[cluster].version()
	}
	for _, suffix := range []string{fallbackSuffix, membersSuffix} {
		name := cluster + suffix
		if s.tracker.subscribed(name) && (v.Members || s.clusters[name].version() == "") {
			err = cmp.Or(err, s.publishVariant(name, latest))
		}
	}
	return version, err
}

// publishVariant publishes the assignment of one name.
func (s *Server) publishVariant(name string, latest kept) error {
	v := latest.verdict
	if !strings.HasSuffix(name, failsafeSuffix) {
		v.StaleAfter = 0
	}
	switch {
	case strings.HasSuffix(name, failsafeSuffix):
		v.Decision.DropFraction = 0
	case strings.HasSuffix(name, fallbackSuffix):
		v.Decision = fallback(v.Decision)
	case strings.HasSuffix(name, membersSuffix):
		v.Decision = members(v.Decision)
	}
	return s.publish(name, latest.number, &v)
}

// firstSubscriber publishes the latest decision under a name that has its first subscriber, if it is the name of a
// cluster: an assignment that was built under it before may be old.
func (s *Server) firstSubscriber(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	latest, ok := s.kept[BaseName(name)]
	if last := s.clusters[name].latest(); ok && (last == nil || last.number != latest.number) {
		_ = s.publishVariant(name, latest) // the error is logged, and the next Publish returns it
	}
}

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

// Weights returns the weights of the latest push of a cluster, under either name that carries weights, by address.
func (s *Server) Weights(cluster string) map[string]uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := newer(s.clusters[cluster].latest(), s.clusters[cluster+failsafeSuffix].latest())
	if last == nil {
		return nil
	}
	weights := make(map[string]uint32, last.endpoints)
	for _, l := range last.message.GetEndpoints() {
		for _, e := range l.GetLbEndpoints() {
			a := e.GetEndpoint().GetAddress().GetSocketAddress()
			address := netip.AddrPortFrom(netip.MustParseAddr(a.GetAddress()), uint16(a.GetPortValue()))
			weights[address.String()] = e.GetLoadBalancingWeight().GetValue()
		}
	}
	return weights
}

// newer returns the later of two pushes, a if they have the same time; either may be nil.
func newer(a, b *pushed) *pushed {
	if a == nil || b != nil && b.at.After(a.at) {
		return b
	}
	return a
}
