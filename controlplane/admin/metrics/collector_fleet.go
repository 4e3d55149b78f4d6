package metrics

import (
	"steelyard/controlplane/admin/conditions"
	"steelyard/internal/api"
)

// collectRoutes has the learned routes that this replica keeps of a cluster.
func collectRoutes(s sink, r *api.Routes) {
	each(s, "origin", "steelyard_prefix_routes", "Learned routes that this replica keeps, learned here or elsewhere.",
		map[string]int{"here": r.Here, "elsewhere": r.Elsewhere})
	each(s, "within", "steelyard_prefix_routes_confirmed", "Learned routes that were confirmed within that time.",
		map[string]int{"1m": r.LastMinute, "10m": r.LastTenMinutes, "1h": r.LastHour})
	s.set("steelyard_prefix_routes_evicted_total", "Learned routes that made room for newer ones.", num(r.Evicted))
}

// collectFleet counts the Envoys of each replica, so that any of them shows all. There are none of the only replica.
func collectFleet(s sink, p *conditions.Observation, r api.Replicas) {
	if !r.Enabled {
		return
	}
	type labels struct {
		replica string
		state   api.EnvoyState
	}
	counts := map[labels]int{{label(r.Name), api.EnvoyFollows}: 0}
	for i := range p.Clients {
		counts[labels{label(r.Name), conditions.ClientState(&p.Clients[i], p.Now)}]++
	}
	for _, e := range p.Elsewhere {
		if e.Kind == api.FollowerEnvoy {
			counts[labels{label(e.Replica), e.State}]++
		}
	}
	for _, o := range r.Others {
		if o.State == api.ReplicaLive {
			counts[labels{label(o.Name), api.EnvoyFollows}] += o.LeftOut
		}
	}
	for l, n := range counts {
		s.with("replica", l.replica, "state", string(l.state)).set("steelyard_fleet_envoys",
			"Envoys of all replicas, by the replica that they follow and their state.", num(n))
	}
}
