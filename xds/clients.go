package xds

import (
	"cmp"
	"maps"
	"slices"
)

// clients takes a snapshot of all streams and merges those of each Envoy.
func (t *tracker) clients() []Client {
	clients := group(t.snapshot())
	countDuplicates(clients)
	slices.SortFunc(clients, compareClients)
	return clients
}

// snapshot returns a client for each stream.
func (t *tracker) snapshot() []Client {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make([]Client, 0, len(t.streams))
	for _, st := range t.streams {
		c := Client{
			NodeID:        st.node.id,
			NodeCluster:   st.node.cluster,
			Version:       st.node.version,
			Locality:      st.node.locality,
			Peer:          st.peer,
			Certificate:   st.certificate,
			Transport:     st.transport,
			ConnectedAt:   st.connected,
			Subscriptions: make([]Subscription, 0, len(st.subscriptions)),
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
func group(streams []Client) []Client {
	type key struct{ node, peer, transport string }
	index := make(map[key]int, len(streams))
	var clients []Client
	for _, c := range streams {
		k := key{c.NodeID, c.Peer, c.Transport}
		i, ok := index[k]
		if !ok {
			index[k] = len(clients)
			clients = append(clients, c)
			continue
		}
		merge(&clients[i], c)
	}
	for _, c := range clients {
		slices.SortFunc(c.Subscriptions, func(a, b Subscription) int {
			return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), a.SentAt.Compare(b.SentAt))
		})
	}
	return clients
}

func merge(into *Client, c Client) {
	if c.ConnectedAt.Before(into.ConnectedAt) {
		into.ConnectedAt = c.ConnectedAt
	}
	into.Subscriptions = append(into.Subscriptions, c.Subscriptions...)
}

// countDuplicates counts the connections over which the same node id subscribes to the same cluster. An Envoy has one
// connection to its control plane, and would use it even for two clusters with the same EDS name.
func countDuplicates(clients []Client) {
	type claim struct{ node, certificate, cluster string }
	peers := make(map[claim]map[string]struct{})
	for _, c := range clients {
		for _, s := range c.Subscriptions {
			k := claim{c.NodeID, c.Certificate, s.Cluster}
			if peers[k] == nil {
				peers[k] = make(map[string]struct{}, 1)
			}
			peers[k][c.Peer] = struct{}{}
		}
	}
	for i := range clients {
		c := &clients[i]
		others := make(map[string]struct{})
		for _, s := range c.Subscriptions {
			if claimed := peers[claim{c.NodeID, c.Certificate, s.Cluster}]; len(claimed) > 1 {
				maps.Copy(others, claimed)
			}
		}
		delete(others, c.Peer)
		c.Duplicates = len(others)
	}
}

func compareClients(a, b Client) int {
	return cmp.Or(
		cmp.Compare(a.NodeID, b.NodeID),
		cmp.Compare(a.Peer, b.Peer),
		cmp.Compare(a.Transport, b.Transport),
	)
}
