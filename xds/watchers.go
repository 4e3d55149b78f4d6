package xds

import (
	"cmp"
	"net/netip"
	"slices"
	"sync/atomic"
)

// A Watcher is one Envoy as other services on the same port can recognize it: its
// node id and the IP address that it connects from. The port is left out, because the
// same Envoy opens one connection for each of its worker threads elsewhere.
type Watcher struct {
	NodeID string
	Host   string
}

func compareWatchers(a, b Watcher) int {
	return cmp.Or(cmp.Compare(a.NodeID, b.NodeID), cmp.Compare(a.Host, b.Host))
}

// Watchers returns the Envoys that subscribe to the cluster under any of its names, each
// once, sorted by node id and host. cluster is the base name. The result is the caller's.
func (s *Server) Watchers(cluster string) []Watcher { return s.tracker.watching(cluster) }

// WatchGeneration is another number whenever what Watchers returns may be another, for any
// cluster. It costs a load from memory.
func (s *Server) WatchGeneration() uint64 { return s.tracker.watches.generation.Load() }

// watches counts the subscriptions: of all streams to each name, and of each Envoy to any
// name of a cluster. It is guarded by the tracker's lock, but for the generation.
type watches struct {
	generation atomic.Uint64
	names      map[string]int
	clusters   map[string]map[Watcher]int // by base name
}

// add takes a subscription down.
func (w *watches) add(name string, envoy Watcher) {
	base := BaseName(name)
	envoys := w.clusters[base]
	if envoys == nil {
		envoys = make(map[Watcher]int, 1)
		w.clusters[base] = envoys
	}
	envoys[envoy]++
	if envoys[envoy] == 1 {
		w.generation.Add(1)
	}
}

// remove takes one back.
func (w *watches) remove(name string, envoy Watcher) {
	base := BaseName(name)
	envoys := w.clusters[base]
	if envoys[envoy] == 0 {
		return
	}
	envoys[envoy]--
	if envoys[envoy] > 0 {
		return
	}
	delete(envoys, envoy)
	if len(envoys) == 0 {
		delete(w.clusters, base)
	}
	w.generation.Add(1)
}

func (t *tracker) watching(cluster string) []Watcher {
	t.mu.Lock()
	out := make([]Watcher, 0, len(t.watches.clusters[cluster]))
	for envoy := range t.watches.clusters[cluster] {
		out = append(out, envoy)
	}
	t.mu.Unlock()
	slices.SortFunc(out, compareWatchers)
	return out
}

// subscribed reports whether any stream subscribes to the name.
func (t *tracker) subscribed(name string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.watches.names[name] > 0
}

// watcher is whom the stream speaks for.
func (st *stream) watcher() Watcher { return Watcher{NodeID: st.node.id, Host: st.host} }

// hostOf is the IP address of a peer, without the port, and IPv4 as such where it comes
// over IPv6: an Envoy's connections are of one host however the listener sees them.
func hostOf(peer string) string {
	address, err := netip.ParseAddrPort(peer)
	if err != nil {
		return peer // no TCP connection
	}
	return address.Addr().Unmap().String()
}
