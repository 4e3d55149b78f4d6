package daemon

import (
	"context"

	"golang.org/x/sync/errgroup"
)

// watchOver watches what has to move for Envoys to be served: the loops, and the locks that
// loops and streams share.
//
// Only what ends soon whatever peers and files do is watched, because the restart that follows helps nothing else: of
// Redis that a poll returns at its timeout, of the scrapes that the pool takes up new targets, of a reload that the
// clusters change. The loops of the clusters have beats of their own.
//
// Not watched, because every call in it has a deadline (package files) and every lock is held for moments, is what
// follows the certificates (followCertificates) and the file of the configuration (config.Watcher), which hands its
// work to the reload that is watched; and the fetches of the scrape loops, whose sockets have deadlines. A page that
// cannot be read is a state of its endpoint.
func (d *Daemon) watchOver(ctx context.Context, group *errgroup.Group) {
	forget := []func(){d.beats.Watch("scrape targets", &d.scraping), d.beats.Watch("counts in Redis", &d.polling)}
	group.Go(func() error {
		d.beats.Run(ctx)
		for _, f := range forget {
			f()
		}
		return nil
	})
	for name, probe := range d.probes() {
		group.Go(func() error {
			d.beats.Probe(ctx, name, probe)
			return nil
		})
	}
}

// probes return when the lock that guards what they are named after was had.
func (d *Daemon) probes() map[string]func() {
	return map[string]func(){
		"assignments":            func() { d.streams.Weights("") },
		"connected Envoys":       func() { d.streams.AckDelay("") },
		"runtime layers":         func() { d.streams.RuntimeClients() },
		"ledger of requests":     func() { d.signals.ledger.Reporters() },
		"clusters":               func() { d.manager.Cluster("") },
		"configuration in force": func() { d.mu.Lock(); defer d.mu.Unlock() },
	}
}

// stuck is what does not move, in words, for /healthz.
func (d *Daemon) stuck() []string {
	var out []string
	for _, s := range d.beats.Stuck() {
		out = append(out, s.String())
	}
	return out
}
