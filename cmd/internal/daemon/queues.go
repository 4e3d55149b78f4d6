package daemon

import (
	"steelyard/controlplane/config"
	"steelyard/controlplane/view"
	"steelyard/picking/queue"
	"steelyard/xds/loads/loadsv1"
	"steelyard/xds/places"
)

// configureQueues makes the queues those of the configuration. Envoys get the headers with the next decision.
func (d *Daemon) configureQueues(cfg *config.Config) {
	settings := make(map[string]*places.Settings)
	headers := make(map[string]*loadsv1.QueueHeaders)
	for i := range cfg.Clusters {
		c := &cfg.Clusters[i]
		if c.Queue == nil {
			continue
		}
		o := &places.Settings{MaxInFlight: c.Queue.MaxInFlight}
		for _, class := range c.Queue.All() {
			o.Classes = append(o.Classes, queue.Class(class))
		}
		settings[c.Name] = o
		headers[c.Name] = &loadsv1.QueueHeaders{Class: c.Queue.ClassHeader, Tenant: c.Queue.TenantHeader}
	}
	d.places.Configure(settings)
	d.loads.SetQueues(headers)
}

// addQueue fills in the queue of a cluster.
func (d *Daemon) addQueue(c *view.Cluster) {
	state, on := d.places.State(c.Name)
	if !on {
		return
	}
	c.Queue = &view.Queue{InFlight: state.InFlight, Envoys: state.Streams}
	if state.MaxInFlight > 0 {
		c.Queue.MaxInFlight = &state.MaxInFlight
	}
	for _, s := range state.Classes {
		c.Queue.Classes = append(c.Queue.Classes, view.QueueClass{
			Name: s.Name, Weight: s.Weight, Strict: s.Strict, MaxWaiting: s.MaxWaiting,
			MaxWaitSeconds: view.Seconds(s.MaxWait),
			Waiting:        s.Waiting, Tenants: s.Tenants, OldestAt: view.At(s.Oldest),
			Granted: s.Granted, Released: s.Released, Left: s.Left,
			RefusedFull: s.Refused[queue.RefusedFull], RefusedTimeout: s.Refused[queue.RefusedTimeout],
		})
	}
}
