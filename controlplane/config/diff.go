package config

import (
	"reflect"
	"slices"

	"steelyard/weighting"
)

// Params are the knobs of the weighting law for this cluster.
func (c *Cluster) Params() weighting.Params {
	return weighting.Params{
		Fresh:    c.Weighting.Fresh,
		Hold:     c.Weighting.Hold,
		Decay:    c.Weighting.Decay,
		Blackout: c.Weighting.Blackout,
		Ramp:     c.Weighting.Ramp,
		Floor:    c.Weighting.Floor,
		LeastLatency: weighting.LeastLatency{
			Enabled: c.Policy == PolicyLeastLatency, Alpha: c.Latency.Alpha, Threshold: c.Latency.Threshold,
		},
		Overload: weighting.Overload(c.Overload),
		Shedding: weighting.Shedding(c.Shedding),
	}
}

// Equal reports whether two clusters are configured alike.
func (c *Cluster) Equal(other *Cluster) bool { return reflect.DeepEqual(c, other) }

// Change is what a reload has to do. The names are those of clusters, sorted.
type Change struct {
	XDS, Admin, Redis, Kubernetes bool // the section differs; XDS by more than Clients
	Replicas                      bool // the same
	Pools, EnvoyGateway           bool // the same
	Clients                       bool // xds.clients differs
	Added, Removed, Changed       []string
}

// Diff compares the running configuration with the next one.
func Diff(running, next *Config) Change {
	section := next.XDS
	section.Clients = running.XDS.Clients
	change := Change{
		XDS:     !reflect.DeepEqual(running.XDS, section),
		Clients: !reflect.DeepEqual(running.XDS.Clients, next.XDS.Clients),
		Admin:   !reflect.DeepEqual(running.Admin, next.Admin),
		Redis:   !reflect.DeepEqual(running.Redis, next.Redis),

		Kubernetes: running.Kubernetes != next.Kubernetes,
		Replicas:   !reflect.DeepEqual(running.Replicas, next.Replicas),

		Pools:        !reflect.DeepEqual(running.Pools, next.Pools),
		EnvoyGateway: !reflect.DeepEqual(running.EnvoyGateway, next.EnvoyGateway),
	}
	for i := range next.Clusters {
		c := &next.Clusters[i]
		switch old := running.Cluster(c.Name); {
		case old == nil:
			change.Added = append(change.Added, c.Name)
		case !old.Equal(c):
			change.Changed = append(change.Changed, c.Name)
		}
	}
	for i := range running.Clusters {
		if name := running.Clusters[i].Name; next.Cluster(name) == nil {
			change.Removed = append(change.Removed, name)
		}
	}
	slices.Sort(change.Added)
	slices.Sort(change.Removed)
	slices.Sort(change.Changed)
	return change
}

// Cluster is the cluster of that name, or nil.
func (c *Config) Cluster(name string) *Cluster {
	for i := range c.Clusters {
		if c.Clusters[i].Name == name {
			return &c.Clusters[i]
		}
	}
	return nil
}
