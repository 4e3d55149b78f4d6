package xds

import (
	"cmp"
	"maps"
	"slices"

	"steelyard/internal/api"
	"steelyard/internal/envoyid"
)

// EnvoyOf identifies the Envoy of a client as other services of the port do.
func EnvoyOf(c *api.Connection) envoyid.ID {
	return envoyid.ID{NodeID: c.NodeID, Host: hostOf(c.Address), Certificate: c.Certificate}
}

func (t *tracker) watching(cluster string) []envoyid.ID {
	t.mu.Lock()
	out := make([]envoyid.ID, 0, len(t.watches.clusters[cluster]))
	for envoy := range t.watches.clusters[cluster] {
		out = append(out, envoy)
	}
	t.mu.Unlock()
	slices.SortFunc(out, envoyid.Compare)
	return out
}

// clients takes a snapshot of all streams and merges those of each Envoy.
func (t *tracker) clients() []api.Connection {
	clients := group(t.snapshot())
	countDuplicates(clients)
	slices.SortFunc(clients, compareClients)
	return clients
}

// snapshot returns a client for each stream.
func (t *tracker) snapshot() []api.Connection {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make([]api.Connection, 0, len(t.streams))
	for _, st := range t.streams {
		c := api.Connection{
			Node:          st.node,
			Address:       st.peer,
			Certificate:   st.certificate,
			Transport:     st.transport,
			ConnectedAt:   api.At(st.connected),
			Subscriptions: make([]api.Subscription, 0, len(st.subscriptions)),
		}
		for name, sub := range st.subscriptions {
			s := sub.Subscription
			if p := t.clusters[name]; p != nil {
				s.Known = true
				s.InSync = s.VersionAcked == p.version(t.prefix)
			}
			c.Subscriptions = append(c.Subscriptions, s)
		}
		out = append(out, c)
	}
	return out
}

// group merges the streams of each connection, node and transport into one client.
func group(streams []api.Connection) []api.Connection {
	type key struct{ node, peer, transport string }
	index := make(map[key]int, len(streams))
	var clients []api.Connection
	for _, c := range streams {
		k := key{c.NodeID, c.Address, c.Transport}
		i, ok := index[k]
		if !ok {
			index[k] = len(clients)
			clients = append(clients, c)
			continue
		}
		merge(&clients[i], c)
	}
	for _, c := range clients {
		slices.SortFunc(c.Subscriptions, func(a, b api.Subscription) int {
			return cmp.Or(cmp.Compare(a.Resource, b.Resource), a.LastSent.Compare(b.LastSent.Time))
		})
	}
	return clients
}

func merge(into *api.Connection, c api.Connection) {
	if c.ConnectedAt.Before(into.ConnectedAt.Time) {
		into.ConnectedAt = c.ConnectedAt
	}
	into.Subscriptions = append(into.Subscriptions, c.Subscriptions...)
}

// countDuplicates counts the connections over which the same node id subscribes to the same cluster. An Envoy has one
// connection to its control plane, and would use it even for two clusters with the same EDS name.
func countDuplicates(clients []api.Connection) {
	type claim struct{ node, certificate, resource string }
	peers := make(map[claim]map[string]struct{})
	for _, c := range clients {
		for _, s := range c.Subscriptions {
			k := claim{c.NodeID, c.Certificate, s.Resource}
			if peers[k] == nil {
				peers[k] = make(map[string]struct{}, 1)
			}
			peers[k][c.Address] = struct{}{}
		}
	}
	for i := range clients {
		c := &clients[i]
		others := make(map[string]struct{})
		for _, s := range c.Subscriptions {
			if claimed := peers[claim{c.NodeID, c.Certificate, s.Resource}]; len(claimed) > 1 {
				maps.Copy(others, claimed)
			}
		}
		delete(others, c.Address)
		c.Duplicates = len(others)
	}
}

func compareClients(a, b api.Connection) int {
	return cmp.Or(
		cmp.Compare(a.NodeID, b.NodeID),
		cmp.Compare(a.Address, b.Address),
		cmp.Compare(a.Transport, b.Transport),
	)
}
