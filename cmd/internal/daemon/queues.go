package daemon

import (
	"steelyard/controlplane/config"
	"steelyard/picking/queue"
	"steelyard/xds/loads"
	"steelyard/xds/loads/loadsv1"
	"steelyard/xds/places"
)

// configurePickers makes the queues, and what pickers are sent, those of the configuration. Pickers get that with the
// next decision.
func (d *Daemon) configurePickers(cfg *config.Config) {
	settings := make(map[string]*places.Settings)
	sent := make(map[string]loads.Settings)
	for i := range cfg.Clusters {
		c := &cfg.Clusters[i]
		s := loads.Settings{Prefix: prefixOf(&c.Prefix)}
		if c.Queue != nil {
			s.Queue = &loadsv1.QueueHeaders{Class: c.Queue.ClassHeader, Tenant: c.Queue.TenantHeader}
		}
		sent[c.Name] = s
		if c.Queue == nil {
			continue
		}
		o := &places.Settings{MaxInFlight: c.Queue.MaxInFlight, LongestMatch: s.Prefix.GetLongestMatch()}
		for _, class := range c.Queue.All() {
			o.Classes = append(o.Classes, queue.Class(class))
		}
		settings[c.Name] = o
	}
	d.places.Configure(settings)
	d.loads.Configure(sent)
}

func prefixOf(c *config.Prefix) *loadsv1.Prefix {
	p := &loadsv1.Prefix{Routes: uint32(c.Routes), TtlSeconds: uint32(c.TTL.Seconds()),
		LongestMatch: c.Choice == config.PrefixLongestMatch}
	for _, m := range c.Markers {
		p.Markers = append(p.Markers, uint32(m))
	}
	return p
}
