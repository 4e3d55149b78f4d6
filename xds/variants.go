package xds

import (
	"cmp"
	"net/netip"
	"slices"
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

// kept is what Publish was called with last.
type kept struct {
	number     uint64 // of the call
	decision   weighting.Decision
	staleAfter time.Duration
}

// Publish pushes a decision under all names of the cluster that somebody subscribes to, and returns the
// version of the weights. The caller decides what is worth a push. staleAfter is sent along for Envoys with
// a fallback: they drop the endpoints when no assignment came for so long; 0 is never. The decision is kept
// until the next call: the caller leaves it as it is. When an assignment cannot be built, the error says
// why, and the Envoys keep the previous one.
func (s *Server) Publish(cluster string, d weighting.Decision, staleAfter time.Duration) (version string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	latest := kept{s.kept[cluster].number + 1, d, staleAfter}
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
	if s.tracker.subscribed(cluster + fallbackSuffix) {
		err = cmp.Or(err, s.publishVariant(cluster+fallbackSuffix, latest))
	}
	return version, err
}

// publishVariant publishes what the name stands for.
func (s *Server) publishVariant(name string, latest kept) error {
	d, staleAfter := latest.decision, latest.staleAfter
	switch {
	case strings.HasSuffix(name, failsafeSuffix):
		d.DropFraction = 0
	case strings.HasSuffix(name, fallbackSuffix):
		if !s.fallbackDue(name, d.Endpoints) {
			return nil
		}
		d, staleAfter = members(d), 0
	default:
		staleAfter = 0
	}
	return s.publish(name, latest.number, d, staleAfter)
}

// fallbackDue reports whether the members are to be pushed under the name of a fallback: when they
// change, and once a minute for an Envoy that refused the last ones.
func (s *Server) fallbackDue(name string, endpoints []weighting.EndpointDecision) bool {
	const repeat = time.Minute
	c := s.clusters[name]
	if c == nil || c.last == nil || s.now().Sub(c.last.at) >= repeat {
		return true
	}
	return !slices.EqualFunc(c.last.endpoints, endpoints, func(a, b weighting.EndpointDecision) bool {
		return a.Address == b.Address && a.Zone == b.Zone
	})
}

// wanted publishes what is in force under a name that has its first subscriber, if it is the name of a
// cluster. What was built of it before may be old.
func (s *Server) wanted(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	latest, ok := s.kept[BaseName(name)]
	if c := s.clusters[name]; ok && (c == nil || c.last == nil || c.last.number != latest.number) {
		_ = s.publishVariant(name, latest) // it is logged, and the next Publish returns it
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
	weights := make(map[string]uint32, len(last.endpoints))
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
