package xds

import (
	"sync/atomic"

	"steelyard/internal/envoyid"
)

// watches counts subscriptions: of all streams to each name, and of each Envoy to any name of a cluster. The tracker's
// lock guards everything except the generation.
type watches struct {
	generation atomic.Uint64
	names      map[string]int
	clusters   map[string]map[envoyid.ID]int // by base name
}

// weighted reports whether a stream subscribes to the cluster by a name that carries weights.
func (w *watches) weighted(cluster string) bool {
	return w.names[cluster]+w.names[cluster+failsafeSuffix] > 0
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
