package daemon

import (
	"slices"
	"time"

	"steelyard/collectors/replicas/merge"
	"steelyard/controlplane/admin/conditions"
	"steelyard/controlplane/admin/history"
	"steelyard/internal/api"
	"steelyard/internal/envoyid"
)

// connected lists the Envoys and pickers of this replica for the others, those first that need a look.
func (d *Daemon) connected() []merge.Envoy {
	now := time.Now()
	var all []merge.Envoy
	clients := d.Clients()
	for i := range clients {
		c := &clients[i]
		e := merge.Envoy{Kind: api.FollowerEnvoy, Name: c.NodeID, Address: c.Address,
			State: conditions.ClientState(c, now), Connected: now.Sub(c.ConnectedAt.Time)}
		for k := range c.Subscriptions {
			s := &c.Subscriptions[k]
			if !slices.Contains(e.Clusters, s.Cluster) {
				e.Clusters = append(e.Clusters, s.Cluster)
			}
			if acked := now.Sub(s.LastAck.Time); !s.LastAck.IsZero() && (e.Acked == 0 || acked < e.Acked) {
				e.Acked = acked
			}
		}
		all = append(all, e)
	}
	slices.SortStableFunc(all, func(a, b merge.Envoy) int { return a.State.Rank() - b.State.Rank() })
	for _, p := range d.loads.Followers() {
		all = append(all, merge.Envoy{Kind: api.FollowerPicker, Name: p.Name, Address: p.Address,
			State: api.EnvoyFollows, Clusters: p.Clusters, Connected: now.Sub(p.Since.Time)})
	}
	return all
}

// Elsewhere returns the Envoys and pickers of the other replicas.
func (d *Daemon) Elsewhere() []api.OtherEnvoy {
	here := make(map[anyEnvoy]bool)
	for _, c := range d.streams.Clients() {
		here[anyEnvoyOf(api.FollowerEnvoy, c.NodeID, c.Address)] = true
	}
	for _, p := range d.loads.Followers() {
		here[anyEnvoyOf(api.FollowerPicker, p.Name, p.Address)] = true
	}
	return withoutMoved(d.link.Envoys(), here)
}

// An anyEnvoy is an Envoy or a picker, whichever its replica and connection.
type anyEnvoy struct {
	kind api.FollowerKind
	id   envoyid.ID
}

func anyEnvoyOf(kind api.FollowerKind, name, address string) anyEnvoy {
	return anyEnvoy{kind, history.IDOf(name, address)}
}

// withoutMoved leaves out what a silent replica had, and is now connected here or to a live one.
func withoutMoved(others []api.OtherEnvoy, here map[anyEnvoy]bool) []api.OtherEnvoy {
	for _, e := range others {
		if e.State != api.EnvoyUnheard {
			here[anyEnvoyOf(e.Kind, e.NodeID, e.Address)] = true
		}
	}
	return slices.DeleteFunc(others, func(e api.OtherEnvoy) bool {
		return e.State == api.EnvoyUnheard && here[anyEnvoyOf(e.Kind, e.NodeID, e.Address)]
	})
}
