package xds

import (
	"cmp"
	"net/netip"
	"slices"
	"sync/atomic"
)

// A Watcher identifies an Envoy to other services on the same port, by its node id, the IP address from which it
// connects and the names in its certificate. The port is left out, because to other services an Envoy opens one
// connection from each worker thread.
type Watcher struct {
	NodeID      string
	Host        string
	Certificate string // empty without one
}

func compareWatchers(a, b Watcher) int {
	return cmp.Or(cmp.Compare(a.NodeID, b.NodeID), cmp.Compare(a.Host, b.Host),
		cmp.Compare(a.Certificate, b.Certificate))
}

// Watchers returns the Envoys that subscribe to the cluster under any of its names, each once, sorted by node id and
// host. cluster is the base name. The caller may change the result.
func (s *Server) Watchers(cluster string) []Watcher { return s.tracker.watching(cluster) }

// WatchGeneration changes whenever the result of Watchers may have changed, for any cluster. It costs one atomic load.
func (s *Server) WatchGeneration() uint64 { return s.tracker.watches.generation.Load() }

// watches counts subscriptions: of all streams to each name, and of each Envoy to any name of a cluster. The tracker's
// lock guards everything except the generation.
type watches struct {
	generation atomic.Uint64
	names      map[string]int
	clusters   map[string]map[Watcher]int // by base name
}

// add counts a subscription.
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

// remove undoes add.
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

// watcher returns the Envoy of the stream.
func (st *stream) watcher() Watcher { return Watcher{st.node.id, st.host, st.certificate} }

// hostOf returns the IP address of a peer without its port. An IPv4-mapped address becomes IPv4, so that the
// connections of an Envoy have one host whether the listener is dual-stack or not.
func hostOf(peer string) string {
	address, err := netip.ParseAddrPort(peer)
	if err != nil {
		return peer // not a TCP connection
	}
	return address.Addr().Unmap().String()
}
