package xds

import (
	"cmp"
	"net/netip"
	"strings"
	"time"

	"steelyard/weighting"
)

// A cluster is served under three names, because an EDS resource has one policy
// for all who subscribe to it, and an Envoy that can fall back needs another than
// one that sheds:
//
//	NAME           weights, DEGRADED where overloaded, drop_overloads
//	NAME/failsafe  weights, DEGRADED where overloaded, endpoint_stale_after
//	NAME/fallback  the members alone, all DEGRADED, sent when they change
//
// Who takes endpoint_stale_after without a fallback loses all endpoints with the
// control plane; an aggregate cluster, which has the fallback, does not enforce
// drop_overloads. With names neither can be had by mistake. The fallback is
// DEGRADED so that flagged endpoints of the weighted cluster come before it.
const (
	failsafeSuffix = "/failsafe"
	fallbackSuffix = "/fallback"
)

// PublishVariants publishes a decision under all names of the cluster. The push
// it returns is that of NAME; an error is that of any.
func (s *Server) PublishVariants(cluster string, d weighting.Decision, o ClusterOptions) Push {
	staleAfter := o.EndpointStaleAfter
	o.EndpointStaleAfter = 0
	push := s.Publish(cluster, d, o)

	failsafe := d
	failsafe.DropFraction = 0
	o.EndpointStaleAfter = staleAfter
	other := s.Publish(cluster+failsafeSuffix, failsafe, o)
	// Shares are all equal, so only a change of the members is a push; and a rare
	// heartbeat, for an Envoy that refused the last one.
	third := s.Publish(cluster+fallbackSuffix, members(d), ClusterOptions{Deadband: 1, Heartbeat: time.Minute})
	push.Err = cmp.Or(push.Err, other.Err, third.Err)
	return push
}

// members is a decision about who is there, and nothing else.
func members(d weighting.Decision) weighting.Decision {
	out := weighting.Decision{At: d.At, Endpoints: make([]weighting.EndpointDecision, len(d.Endpoints))}
	for i, e := range d.Endpoints {
		out.Endpoints[i] = weighting.EndpointDecision{
			Address: e.Address, Zone: e.Zone, Share: 1 / float64(len(d.Endpoints)),
			Overloaded: true, OverloadReason: "fallback",
		}
	}
	return out
}

// RemoveVariants stops serving a cluster under all its names.
func (s *Server) RemoveVariants(cluster string) {
	for _, suffix := range []string{"", failsafeSuffix, fallbackSuffix} {
		s.Remove(cluster + suffix)
	}
}

// AckDelayOfVariants is the larger AckDelay of the two names that carry weights.
func (s *Server) AckDelayOfVariants(cluster string) time.Duration {
	return max(s.AckDelay(cluster), s.AckDelay(cluster+failsafeSuffix))
}

// BaseName is the cluster that a name of it belongs to.
func BaseName(name string) string {
	for _, suffix := range []string{failsafeSuffix, fallbackSuffix} {
		if base, ok := strings.CutSuffix(name, suffix); ok {
			return base
		}
	}
	return name
}

// Weights returns the weights that were last pushed of a cluster, by address.
func (s *Server) Weights(cluster string) map[string]uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.clusters[cluster]
	if c == nil || c.last == nil {
		return nil
	}
	weights := make(map[string]uint32, len(c.last.hosts))
	for _, l := range c.last.message.GetEndpoints() {
		for _, e := range l.GetLbEndpoints() {
			a := e.GetEndpoint().GetAddress().GetSocketAddress()
			weights[netip.AddrPortFrom(netip.MustParseAddr(a.GetAddress()), uint16(a.GetPortValue())).String()] = e.GetLoadBalancingWeight().GetValue()
		}
	}
	return weights
}
