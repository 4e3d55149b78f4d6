package ledger

import (
	"cmp"
	"math"
	"slices"
	"time"

	"steelyard/internal/api"
	"steelyard/internal/envoyid"
)

// A Dispute is a report of one Envoy about an endpoint that all others contradict. It does not count.
type Dispute struct {
	Kind     api.DisputeKind
	Envoy    Envoy
	Address  string
	Requests int // in flight, of api.DisputeInFlight; issued, of api.DisputeIssued
	Since    time.Time
}

// Disputes returns the disputes about the endpoints of a cluster, sorted by Envoy and endpoint.
func (l *Ledger) Disputes(name string, now time.Time) (all []Dispute) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	c := l.clusters[name]
	if c == nil {
		return nil
	}
	for _, s := range c.members {
		all = append(all, l.unconfirmedAt(s, now)...)
		if s.failures == nil {
			continue
		}
		for _, by := range s.failures.discounted {
			if by.persist(now) {
				all = append(all, Dispute{Kind: api.DisputeFailures, Envoy: by.account.envoy.node, Address: s.address,
					Since: by.since})
			}
		}
	}
	for node := range c.watchers {
		if e := l.envoys[node]; e != nil && now.Sub(e.overstated.latest) <= rowPause && c.has(e.overstated.address) {
			all = append(all, Dispute{api.DisputeIssued, node, e.overstated.address,
				int(min(e.overstated.requests, math.MaxInt32)), e.overstated.since})
		}
	}
	slices.SortFunc(all, func(a, b Dispute) int {
		return cmp.Or(envoyid.Compare(a.Envoy, b.Envoy), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Address, b.Address))
	})
	return all
}

// has reports whether an address, as Envoys write it, is that of an endpoint of the cluster.
func (c *cluster) has(address string) bool {
	return slices.ContainsFunc(c.members, func(s *member) bool { return s.at.key == address })
}

// unconfirmedAt returns a dispute for each Envoy that is not confirmed, and has requests in flight at an endpoint that
// does not show them.
func (l *Ledger) unconfirmedAt(s *member, now time.Time) (all []Dispute) {
	lasts := now.Sub(s.excessSince)
	if s.excess == 0 || lasts < gaugeLag {
		return nil
	}
	for _, e := range l.countedBy(s.cluster).envoys {
		a := e.account(s)
		if a != nil && a.watched && !e.confirmed && a.count.InFlight() > 0 && lasts >= e.lag() {
			all = append(all, Dispute{api.DisputeInFlight, e.node, s.address, int(a.count.InFlight()), s.excessSince})
		}
	}
	return all
}
