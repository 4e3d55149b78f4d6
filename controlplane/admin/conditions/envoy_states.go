package conditions

import (
	"slices"
	"time"

	"steelyard/internal/api"
)

// goneFor is how long an Envoy that vanished is an incident.
const goneFor = 10 * time.Minute

// SubscriptionState returns the state of one name that an Envoy subscribes to.
func SubscriptionState(s *api.Subscription, now time.Time) api.EnvoyState {
	switch {
	case s.Nack.Current:
		return api.EnvoyRefuses
	case behind(s, now):
		return api.EnvoyBehind
	case !s.Known:
		return api.EnvoyUnknown
	}
	return api.EnvoyFollows
}

// behind reports whether an Envoy has not answered for longer than Envoys take.
func behind(s *api.Subscription, now time.Time) bool {
	return !s.InSync && s.VersionSent != s.VersionAcked && s.LastSent.Age(now).Or(0) > ackPatience.Seconds()
}

// ClientState is the worst of an Envoy's subscriptions.
func ClientState(c *api.Client, now time.Time) api.EnvoyState {
	if len(c.Subscriptions) == 0 {
		return api.EnvoyIdle
	}
	order := []api.EnvoyState{api.EnvoyRefuses, api.EnvoyBehind, api.EnvoyUnknown, api.EnvoyFollows}
	worst := len(order) - 1
	for i := range c.Subscriptions {
		worst = min(worst, slices.Index(order, SubscriptionState(&c.Subscriptions[i], now)))
	}
	switch {
	case order[worst] != api.EnvoyFollows:
	case c.Signals.State == api.SignalSilent:
		return api.EnvoySilent
	case !slices.ContainsFunc(c.Subscriptions, func(s api.Subscription) bool { return s.Weighted() }):
		return api.EnvoyShadow
	}
	return order[worst]
}

// ShadowEnvoys counts, for each cluster, the Envoys that subscribe to it only by names without weights: their requests
// are counted, and go where their own clusters send them.
func ShadowEnvoys(clients []api.Client) map[string]int {
	out := map[string]int{}
	for i := range clients {
		weighted := map[string]bool{} // by cluster
		for k := range clients[i].Subscriptions {
			s := &clients[i].Subscriptions[k]
			weighted[s.Cluster] = weighted[s.Cluster] || s.Weighted()
		}
		for cluster, follows := range weighted {
			if !follows {
				out[cluster]++
			}
		}
	}
	return out
}

// noEnvoys reports whether no Envoy is connected to any replica, as far as is known.
func noEnvoys(p *Observation) bool {
	return len(p.Clients) == 0 && !slices.ContainsFunc(p.Elsewhere,
		func(e api.OtherEnvoy) bool { return e.Kind == api.FollowerEnvoy })
}

// LeftState returns the state of an Envoy that is not connected any more.
func LeftState(l *api.LeftEnvoy, now time.Time) api.EnvoyState {
	switch {
	case !l.Vanished:
		return api.EnvoyLeft
	case lost(l, now):
		return api.EnvoyBehind
	}
	return api.EnvoyGone
}

// lost reports whether an Envoy that answered nothing has to be expected to run: it may hang, and may go on.
func lost(l *api.LeftEnvoy, now time.Time) bool { return l.Silent && now.Sub(l.LeftAt.Time) < goneFor }

// CountEnvoys counts the Envoys of all replicas by what they do. Those that a replica does not list follow.
func CountEnvoys(p *Observation) (n api.FleetEnvoys) {
	n.Here, n.Left = len(p.Clients), len(p.Left)
	states := map[api.EnvoyState]int{}
	for i := range p.Clients {
		states[ClientState(&p.Clients[i], p.Now)]++
	}
	for _, e := range p.Elsewhere {
		if e.Kind == api.FollowerEnvoy {
			states[e.State]++
		}
	}
	for _, o := range p.Status.Replicas.Others {
		switch o.State {
		case api.ReplicaLive:
			states[api.EnvoyFollows] += o.LeftOut
		case api.ReplicaUnreachable: // those of one that is gone may be at another one by now
			states[api.EnvoyUnheard] += o.LeftOut
		}
	}
	for state, count := range states {
		if state != api.EnvoyUnheard {
			n.Connected += count
		}
	}
	n.Unheard, n.Refusing, n.Behind = states[api.EnvoyUnheard], states[api.EnvoyRefuses], states[api.EnvoyBehind]
	n.InSync = states[api.EnvoyFollows] + states[api.EnvoySilent] + states[api.EnvoyShadow]
	for i := range p.Left {
		n.Lost += BoolToInt(lost(&p.Left[i], p.Now))
	}
	return n
}
