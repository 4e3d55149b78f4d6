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
	shares     []float64    // of the hosts
	drop       float64
	staleAfter time.Duration
	message    *endpointv3.ClusterLoadAssignment
}

type pushedHost struct {
	address, zone string
	share         float64
	overloaded    bool
}

// newPushed is a push of a decision's endpoints.
func newPushed(at time.Time, d *weighting.Decision, o ClusterOptions, message *endpointv3.ClusterLoadAssignment) *pushed {
	p := &pushed{at: at, drop: d.DropFraction, staleAfter: o.EndpointStaleAfter, message: message}
	for _, e := range byAddress(d.Endpoints) {
		p.hosts = append(p.hosts, pushedHost{e.Address, e.Zone, e.Share, e.Overloaded})
		p.shares = append(p.shares, e.Share)
	}
	return p
}

// byAddress is the endpoints in that order, in which the law has them.
func byAddress(endpoints []weighting.EndpointDecision) []weighting.EndpointDecision {
	compare := func(a, b weighting.EndpointDecision) int { return cmp.Compare(a.Address, b.Address) }
	for i := 1; i < len(endpoints); i++ {
		if endpoints[i].Address < endpoints[i-1].Address {
			return slices.SortedFunc(slices.Values(endpoints), compare)
		}
	}
	return endpoints
}

// judge says why d is to be pushed now, or why not. last is nil when nothing was pushed yet.
func judge(last *pushed, d *weighting.Decision, o ClusterOptions, now time.Time) (reason string, push bool) {
	if last == nil {
		if len(d.Endpoints) == 0 {
			// Nobody has found an endpoint yet, which is no reason to tell
			// Envoys to drop theirs. Later it is: then there are none any more.
			return ReasonNotReady, false
		}
		return ReasonMembership, true
	}
	same, flagged, distance := last.compare(byAddress(d.Endpoints))
	differs := !(distance <= max(0, o.Deadband)) // so that NaN reaches the builder, which names it
	switch {
	case !same:
		return ReasonMembership, true
	case flagged:
		return ReasonOverload, true
	case dropChanged(last.drop, d.DropFraction):
		return ReasonDrop, true
	case differs && (o.Worth <= 0 || !(d.Gain(last.shares) < o.Worth)):
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

// compare reports whether the endpoints, sorted by address, are those pushed last, and if so, whether an overload flag
// changed and the total variation distance of the shares.
func (p *pushed) compare(endpoints []weighting.EndpointDecision) (same, flagged bool, distance float64) {
	if len(endpoints) != len(p.hosts) {
		return false, false, 0
	}
	for i := range endpoints {
		e, was := &endpoints[i], &p.hosts[i]
		if e.Address != was.address || e.Zone != was.zone {
			return false, false, 0
		}
		flagged = flagged || was.overloaded != e.Overloaded
		distance += math.Abs(e.Share-was.share) / 2
	}
	return true, flagged, distance
}

func dropChanged(was, is float64) bool {
	return (was == 0) != (is == 0) || !(math.Abs(was-is) < dropResolution)
}
