package xds

import (
	"cmp"
	"slices"
	"sync/atomic"

	"steelyard/internal/envoyid"
)

// Watchers returns the Envoys that subscribe to the cluster under any of its names, each once, sorted by node id and
// host. cluster is the base name. The caller may change the result.
func (s *Server) Watchers(cluster string) []envoyid.ID { return s.tracker.watching(cluster) }

// Shadowed reports whether Envoys subscribe to the cluster, and none of them by a name that carries weights: their
// requests go where their own clusters send them.
func (s *Server) Shadowed(cluster string) bool {
	t := s.tracker
	t.mu.Lock()
	defer t.mu.Unlock()
	w := &t.watches
	return len(w.clusters[cluster]) > 0 && w.names[cluster]+w.names[cluster+failsafeSuffix] == 0
}

// WatchGeneration changes whenever the result of Watchers may have changed, for any cluster. It costs one atomic load.
func (s *Server) WatchGeneration() uint64 { return s.tracker.watches.generation.Load() }

// watches counts subscriptions: of all streams to each name, and of each Envoy to any name of a cluster. The tracker's
// lock guards everything except the generation.
type watches struct {
	generation atomic.Uint64
	names      map[string]int
	clusters   map[string]map[envoyid.ID]int // by base name
}

// add counts a subscription.
func (w *watches) add(name string, envoy envoyid.ID) {
	base := BaseName(name)
	envoys := w.clusters[base]
	if envoys == nil {
		envoys = make(map[envoyid.ID]int, 1)
		w.clusters[base] = envoys
	}
	envoys[envoy]++
	if envoys[envoy] == 1 {
		w.generation.Add(1)
	}
}

// remove undoes add.
func (w *watches) remove(name string, envoy envoyid.ID) {
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

// subscribed reports whether any stream subscribes to the name.
func (t *tracker) subscribed(name string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.watches.names[name] > 0
}

// watcher returns the Envoy of the stream.
func (st *stream) watcher() envoyid.ID {
	return envoyid.ID{NodeID: st.node.NodeID, Host: st.host, Certificate: st.certificate}
}

// hostOf returns the IP address of a peer, or the peer itself where that has none: it is no TCP connection.
func hostOf(peer string) string { return cmp.Or(envoyid.HostOf(peer), peer) }
