package xds

import (
	"cmp"
	"math"
	"slices"
	"time"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"steelyard/weighting"
)

// dropResolution is the smallest change of a drop fraction that is pushed for its
// own sake. The fraction follows a mean over the pool and so moves with every
// decision; without a resolution every decision would be a push.
const dropResolution = 0.001

// A pushed is what the Envoys were sent last of a cluster.
type pushed struct {
	at         time.Time
	version    string
	hosts      []pushedHost // sorted by address
	drop       float64
	staleAfter time.Duration
	message    *endpointv3.ClusterLoadAssignment
}

type pushedHost struct {
	address, zone string
	share         float64
	overloaded    bool
}

func pushedHosts(endpoints []weighting.EndpointDecision) []pushedHost {
	hosts := make([]pushedHost, len(endpoints))
	for i := range endpoints {
		e := &endpoints[i]
		hosts[i] = pushedHost{e.Address, e.Zone, e.Share, e.Overloaded}
	}
	slices.SortFunc(hosts, byAddress)
	return hosts
}

func byAddress(a, b pushedHost) int { return cmp.Compare(a.address, b.address) }

// judge says why d is to be pushed now, or why not. last is nil when nothing was pushed yet.
// hosts are those of d.
func judge(last *pushed, d *weighting.Decision, hosts []pushedHost, o ClusterOptions, now time.Time) (reason string, push bool) {
	if last == nil {
		if len(d.Endpoints) == 0 {
			// Nobody has found an endpoint yet, which is no reason to tell
			// Envoys to drop theirs. Later it is: then there are none any more.
			return ReasonNotReady, false
		}
		return ReasonMembership, true
	}
	same, flagged, distance := last.compare(hosts)
	differs := !(distance <= max(0, o.Deadband)) // so that NaN reaches the builder, which names it
	switch {
	case !same:
		return ReasonMembership, true
	case flagged:
		return ReasonOverload, true
	case dropChanged(last.drop, d.DropFraction):
		return ReasonDrop, true
	case differs && (o.Worth <= 0 || !(d.Gain(last.shares()) < o.Worth)):
		return ReasonChanged, true
	case last.staleAfter != o.EndpointStaleAfter:
		return ReasonChanged, true
	case o.Heartbeat > 0 && now.Sub(last.at) >= o.Heartbeat:
		return ReasonHeartbeat, true
	case differs:
		return ReasonBudget, false
	}
	return ReasonDeadband, false
}

// compare reports whether the hosts are those pushed last, and if so, whether an overload flag
// changed and the total variation distance of the shares.
func (p *pushed) compare(hosts []pushedHost) (same, flagged bool, distance float64) {
	if len(hosts) != len(p.hosts) {
		return false, false, 0
	}
	for i := range hosts {
		h, was := &hosts[i], &p.hosts[i]
		if h.address != was.address || h.zone != was.zone {
			return false, false, 0
		}
		flagged = flagged || was.overloaded != h.overloaded
		distance += math.Abs(h.share-was.share) / 2
	}
	return true, flagged, distance
}

func (p *pushed) shares() []float64 {
	shares := make([]float64, len(p.hosts))
	for i := range p.hosts {
		shares[i] = p.hosts[i].share
	}
	return shares
}

func dropChanged(was, is float64) bool {
	return (was == 0) != (is == 0) || !(math.Abs(was-is) < dropResolution)
}
