package controlplane

import (
	"fmt"
	"strings"

	"steelyard/controlplane/override"
	"steelyard/internal/api"
	"steelyard/internal/spelling"
)

// Overrides are what operators decided about endpoints of any cluster.
func (m *Manager) Overrides() *override.Registry { return m.overrides }

// Override puts an override in force: of an endpoint that there is, as long as another one is left that serves.
func (m *Manager) Override(o api.Override) error {
	c := m.Cluster(o.Cluster)
	if c == nil {
		return m.noCluster(o.Cluster)
	}
	if err := c.admits(o); err != nil {
		return err
	}
	return m.overrides.Put(o)
}

func (m *Manager) noCluster(name string) error {
	var names []string
	for _, r := range m.sorted() {
		names = append(names, r.name)
	}
	return NotFound{fmt.Errorf("no cluster %q is configured%s; there are: %s", name, spelling.DidYouMean(name, names),
		strings.Join(names, ", "))}
}

// NotFound is the error about a cluster or an endpoint that does not exist.
type NotFound struct{ error }

// Unwrap returns the cause.
func (n NotFound) Unwrap() error { return n.error }

// admits refuses an override that would leave no endpoint to serve, or more than all of the traffic.
func (c *Cluster) admits(o api.Override) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.records[o.Address] == nil {
		var addresses []string
		for _, e := range c.endpoints {
			addresses = append(addresses, e.Address)
		}
		return NotFound{fmt.Errorf("cluster %s has no endpoint %s%s", c.name, o.Address,
			spelling.DidYouMean(o.Address, addresses))}
	}
	left, pinned := 0, 0.0
	for address := range c.records {
		other := c.overrides[address]
		if address == o.Address {
			other = o
		}
		switch other.Kind {
		case api.OverridePin:
			pinned += other.Share.Or(0)
			left++
		case api.OverrideDrain:
		default:
			left++
		}
	}
	switch {
	case left == 0:
		return fmt.Errorf("%s is the last endpoint of cluster %s that is not drained: undrain another one first",
			o.Address, c.name)
	case pinned > override.MostShare:
		return fmt.Errorf("the pins of cluster %s would take %.1f %% of the requests: write a smaller share", c.name,
			100*pinned)
	}
	return nil
}
