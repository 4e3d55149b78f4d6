package merge

import (
	"cmp"
	"slices"
	"time"

	"steelyard/internal/api"
)

// Envoys returns the Envoys and pickers of the other replicas, as these listed them last, by replica.
func (p *Peers) Envoys() (all []api.OtherEnvoy) {
	for _, o := range p.peers {
		for i := range o.envoys.List {
			all = append(all, o.envoy(&o.envoys.List[i]))
		}
	}
	slices.SortStableFunc(all, func(a, b api.OtherEnvoy) int {
		return cmp.Or(cmp.Compare(a.Replica, b.Replica), cmp.Compare(a.ReplicaID, b.ReplicaID))
	})
	return all
}

// envoy is one of a replica's Envoys. Nothing is known of it while that one is not heard.
func (o *peer) envoy(e *Envoy) api.OtherEnvoy {
	out := api.OtherEnvoy{Kind: e.Kind, NodeID: e.Name, Address: e.Address, Replica: o.name, ReplicaID: string(o.id),
		State: e.State, Clusters: e.Clusters, ConnectedAt: o.before(e.Connected), HeardAt: api.At(o.lastSeen)}
	if e.Acked > 0 {
		out.LastAck = o.before(e.Acked)
	}
	if o.state != api.ReplicaLive {
		out.State = api.EnvoyUnheard
	}
	return out
}

// before is a time so long before the list came.
func (o *peer) before(d time.Duration) api.Time { return api.At(o.listed.Add(-d)) }
