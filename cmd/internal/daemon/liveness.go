package daemon

import (
	"context"

	"golang.org/x/sync/errgroup"
)

// watchOver watches what has to move for Envoys to be served: the loops, and the locks that
// loops and streams share.
func (d *Daemon) watchOver(ctx context.Context, group *errgroup.Group) {
	group.Go(func() error {
		d.beats.Run(ctx)
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
