package main

import (
	"context"
	"time"
)

const (
	// between two changes, each of which causes a push.
	between = time.Second
	// burdened is how many requests wait at a server whose load has changed: less
	// than would flag it as overloaded, so that only the weight shows it.
	burdened = 24
	// patience is how long the last change may take to reach the last stream.
	patience = 5 * time.Second
)

// changeLoads changes the load of one server a second, until ctx is done: first
// one server after another gets a queue, then one after another loses it.
func changeLoads(ctx context.Context, servers []*server, w *watch) {
	servers = servers[:min(50, len(servers)/4)]
	ticker := time.NewTicker(between)
	defer ticker.Stop()
	for k := 0; ; k++ {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		s, lower := servers[k%len(servers)], k/len(servers)%2 == 0
		extra := 0.0
		if lower {
			extra = burdened
		}
		now := time.Now()
		c := w.begin(s.address, lower, now)
		s.burden(extra, now, func(at time.Time) { w.seen(c, at) })
	}
}

// settle waits until every change has reached every stream, but not forever.
func settle(ctx context.Context, w *watch) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for !w.done() {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}
