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
//
// A name that nobody subscribes to is not built. The newest decision is kept, and
// published under the name when its first subscriber comes, before that one is
// answered. Without any subscriber the plain name is built all the same, so that there
// are weights to show.
const (
	failsafeSuffix = "/failsafe"
	fallbackSuffix = "/fallback"
)

// decided is what PublishVariants was called with last.
type decided struct {
	decision weighting.Decision
	options  ClusterOptions
}

// PublishVariants publishes a decision under all names of the cluster that somebody
// subscribes to. The push it returns is that of NAME, or of NAME/failsafe where only that
// one is subscribed to or pushed; an error is that of any. The decision is kept until the next
// call: the caller leaves it as it is.
func (s *Server) PublishVariants(cluster string, d weighting.Decision, o ClusterOptions) Push {
	s.mu.Lock()
	defer s.mu.Unlock()
	latest := decided{d, o}
	s.kept[cluster] = latest
	failsafe := s.tracker.subscribed(cluster + failsafeSuffix)
	var push, other, third Push
	if failsafe {
		other = s.publishVariant(cluster+failsafeSuffix, latest)
		push = other
	}
	if !failsafe || s.tracker.subscribed(cluster) {
		push = s.publishVariant(cluster, latest)
	}
	if other.Pushed && !push.Pushed { // the two get out of step when one had no subscriber for a while
		push = other
	}
	if s.tracker.subscribed(cluster + fallbackSuffix) {
		third = s.publishVariant(cluster+fallbackSuffix, latest)
	}
	push.Err = cmp.Or(push.Err, other.Err, third.Err)
	return push
}

// publishVariant publishes what the name stands for.
func (s *Server) publishVariant(name string, latest decided) Push {
	d, o := latest.decision, latest.options
	switch {
	case strings.HasSuffix(name, failsafeSuffix):
		d.DropFraction = 0
	case strings.HasSuffix(name, fallbackSuffix):
		// Shares are all equal, so only a change of the members is a push; and a rare
		// heartbeat, for an Envoy that refused the last one.
		d, o = members(d), ClusterOptions{Deadband: 1, Heartbeat: time.Minute}
	default:
		o.EndpointStaleAfter = 0
	}
	return s.publish(name, d, o)
}

// wanted publishes the newest decision under a name that has its first subscriber, if it is the name
// of a cluster with variants. What was pushed of it before, to others, may be old.
func (s *Server) wanted(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if latest, ok := s.kept[BaseName(name)]; ok {
		latest.options.Worth = 0 // a push that nobody else gets need not be worth it
		s.publishVariant(name, latest)
	}
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
	s.mu.Lock()
	delete(s.kept, cluster)
	s.mu.Unlock()
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

// Weights returns the weights that were last pushed of a cluster, under whichever name that
// carries any, by address.
func (s *Server) Weights(cluster string) map[string]uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := newer(s.clusters[cluster], s.clusters[cluster+failsafeSuffix])
	if last == nil {
		return nil
	}
	weights := make(map[string]uint32, len(last.hosts))
	for _, l := range last.message.GetEndpoints() {
		for _, e := range l.GetLbEndpoints() {
			a := e.GetEndpoint().GetAddress().GetSocketAddress()
			weights[netip.AddrPortFrom(netip.MustParseAddr(a.GetAddress()), uint16(a.GetPortValue())).String()] = e.GetLoadBalancingWeight().GetValue()
		}
	}
	return weights
}

// newer is the later push of the two, a's when they are of one time; nil when there is none.
func newer(a, b *cluster) *pushed {
	switch {
	case a == nil || a.last == nil:
		if b == nil {
			return nil
		}
		return b.last
	case b != nil && b.last != nil && b.last.at.After(a.last.at):
		return b.last
	}
	return a.last
}
