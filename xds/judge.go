package xds

import (
	"math"
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
	hosts      map[string]pushedHost // by address
	drop       float64
	staleAfter time.Duration
	message    *endpointv3.ClusterLoadAssignment
}

type pushedHost struct {
	zone       string
	share      float64
	overloaded bool
}

func pushedHosts(endpoints []weighting.EndpointDecision) map[string]pushedHost {
	hosts := make(map[string]pushedHost, len(endpoints))
	for i := range endpoints {
		e := &endpoints[i]
		hosts[e.Address] = pushedHost{zone: e.Zone, share: e.Share, overloaded: e.Overloaded}
	}
	return hosts
}

// judge says why d is to be pushed now, or why not, and how far its shares are from
// those pushed last. last is nil when nothing was.
func judge(last *pushed, d *weighting.Decision, o ClusterOptions, now time.Time) (reason string, push bool, distance float64) {
	if last == nil {
		if len(d.Endpoints) == 0 {
			// Nobody has found an endpoint yet, which is no reason to tell
			// Envoys to drop theirs. Later it is: then there are none any more.
			return ReasonNotReady, false, 0
		}
		return ReasonMembership, true, 1
	}
	same, flagged, distance := last.compare(d.Endpoints)
	switch {
	case !same:
		return ReasonMembership, true, distance
	case flagged:
		return ReasonOverload, true, distance
	case dropChanged(last.drop, d.DropFraction):
		return ReasonDrop, true, distance
	case !(distance <= max(0, o.Deadband)): // so that NaN reaches the builder, which names it
		return ReasonChanged, true, distance
	case last.staleAfter != o.EndpointStaleAfter:
		return ReasonChanged, true, distance
	case o.Heartbeat > 0 && now.Sub(last.at) >= o.Heartbeat:
		return ReasonHeartbeat, true, distance
	}
	return ReasonDeadband, false, distance
}

// compare reports whether the endpoints are those pushed last, whether an overload flag changed, and
// the total variation distance of the shares.
func (p *pushed) compare(endpoints []weighting.EndpointDecision) (same, flagged bool, distance float64) {
	same = len(endpoints) == len(p.hosts)
	var moved, kept float64
	for i := range endpoints {
		e := &endpoints[i]
		was, ok := p.hosts[e.Address]
		// A decision is sorted, so an address that is there twice follows itself: the
		// builder is to name it, not the length of the list to hide it.
		twice := i > 0 && endpoints[i-1].Address == e.Address
		if !ok || twice || was.zone != e.Zone {
			same = false
		}
		if ok {
			kept += was.share
			flagged = flagged || was.overloaded != e.Overloaded
		}
		moved += math.Abs(e.Share - was.share)
	}
	gone := 0.0
	if !same && len(p.hosts) > 0 {
		gone = max(0, 1-kept) // the shares of the endpoints that went
	}
	return same, flagged, (moved + gone) / 2
}

func dropChanged(was, is float64) bool {
	return (was == 0) != (is == 0) || !(math.Abs(was-is) < dropResolution)
}
