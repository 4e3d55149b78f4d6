package daemon

import (
	"context"

	"golang.org/x/sync/errgroup"
)

// watchOver watches the loops, and the locks that loops and streams share: without them no Envoy is served.
//
// An activity is only for work that ends soon whatever peers and files do, because the restart that follows would not
// help against a peer or a file: a poll of Redis returns at its timeout, the pool of scrapes takes up new targets, a
// reload changes the clusters. The loops of the clusters have activities of their own.
//
// These loops have no activity, because every call in them has a deadline: followCertificates, config.Watcher and the
// sources of endpoints (package files, timeouts of look-ups; the watcher's reload has an activity, see above), and the
// fetches of the scrape loops, and the link between replicas (deadlines of the sockets). A metrics page that cannot be
// read is a state of its endpoint. Nor has the one of the overrides: what it asks of Redis has a deadline.
func (d *Daemon) watchOver(ctx context.Context, group *errgroup.Group) {
	group.Go(func() error {
		defer d.monitor.Watch("scrape targets", &d.scraping)()
		defer d.monitor.Watch("counts in Redis", &d.polling)()
		d.monitor.Run(ctx)
		return nil
	})
	for name, probe := range d.probes() {
		group.Go(func() error {
			d.monitor.Probe(ctx, name, probe)
			return nil
		})
	}
}

// probes returns functions that take a lock and return. They have the names of what the locks guard.
func (d *Daemon) probes() map[string]func() {
	return map[string]func(){
		"assignments":            func() { d.streams.Weights("") },
		"connected Envoys":       func() { d.streams.AckDelay("") },
		"runtime layers":         func() { d.streams.RuntimeClients() },
		"ledger of requests":     func() { d.signals.ledger.Reporters() },
		"replicas":               func() { d.link.Status() },
		"clusters":               func() { d.manager.Cluster("") },
		"configuration in force": func() { d.mu.Lock(); defer d.mu.Unlock() },
	}
}

// stuck describes the loops and locks without progress, for /healthz.
func (d *Daemon) stuck() []string {
	var out []string
	for _, s := range d.monitor.Stuck() {
		out = append(out, s.String())
	}
	return out
}
