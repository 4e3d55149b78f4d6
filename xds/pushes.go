package xds

import "time"

// published records that update seq of the cache is about to change the cluster's content.
func (t *tracker) published(cluster string, seq uint64, at time.Time, proxyTime time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.clusters[cluster]
	if p == nil {
		p = &publication{}
		t.clusters[cluster] = p
	}
	p.pushes[p.count%recentPushes] = publishedAt{seq, at}
	p.count++
	p.proxyTime = proxyTime
}

func (t *tracker) removed(cluster string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.clusters, cluster)
}

func (t *tracker) ackDelay(cluster string) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p := t.clusters[cluster]; p != nil {
		return p.ackDelay
	}
	return 0
}

// subscribed reports whether any stream subscribes to the name.
func (t *tracker) subscribed(name string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.watches.names[name] > 0
}
