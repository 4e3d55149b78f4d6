package controlplane

import (
	"reflect"
	"slices"
	"strings"
	"time"

	"steelyard/controlplane/config"
	"steelyard/controlplane/discovery"
	"steelyard/internal/api"
	"steelyard/weighting"
)

// Diff is what another configuration would change: of the running one, by a dry run of each cluster's law against its
// current reports. Nothing is changed, and no file or name of the other configuration is read.
func (m *Manager) Diff(running, next *config.Config) api.Diff {
	now := time.Now()
	change := config.Diff(running, next)
	d := api.Diff{At: api.At(now), Redis: change.Redis, Added: orNone(change.Added), Removed: orNone(change.Removed),
		Restart: []string{}, Clusters: []api.ClusterDiff{}}
	if change.XDS {
		d.Restart = append(d.Restart, "xds")
	}
	if change.Admin {
		d.Restart = append(d.Restart, "admin")
	}
	if change.Kubernetes {
		d.Restart = append(d.Restart, "kubernetes")
	}
	if change.EnvoyGateway {
		d.Restart = append(d.Restart, "envoy_gateway")
	}
	for _, name := range change.Changed {
		before, after := running.Cluster(name), next.Cluster(name)
		diff := api.ClusterDiff{Name: name, Keys: orNone(config.Changes(before, after)),
			Endpoints: []api.EndpointDiff{}}
		if c := m.Cluster(name); c != nil {
			c.preview(&diff, now, before, after, optionsOf(*after, next, m.cost))
		}
		d.Clusters = append(d.Clusters, diff)
	}
	return d
}

// orNone keeps null out of the JSON.
func orNone[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// preview fills in what would change for the endpoints.
func (c *Cluster) preview(diff *api.ClusterDiff, now time.Time, before, after *config.Cluster, o Options) {
	endpoints, known := nextEndpoints(before, after)
	if !known {
		diff.Note = "the endpoints come from another source, which a dry run does not read: the current ones are shown"
	}
	c.stepping.Lock()
	defer c.stepping.Unlock()
	if c.gate == nil || c.gate.Decided().IsZero() {
		diff.Note = "the cluster has not decided yet"
		return
	}
	c.mu.Lock() // by the reports of the latest step: a dry run takes in no others
	s := c.known(now, make([]weighting.Endpoint, len(c.endpoints)))
	c.mu.Unlock()
	current := c.current()
	was := c.gate.Preview(now, current.Push.Params, s)
	s.Endpoints = c.following(s.Endpoints, endpoints, o)
	s.ScrapeInterval = o.ScrapeInterval
	will := c.gate.Preview(now, o.Push.Params, s)
	diff.Endpoints, diff.CapacityBefore, diff.CapacityAfter = compare(was, will)
}

// nextEndpoints returns the endpoints of the other configuration; nil if they do not change. Not known: it has another
// source, which would have to be read.
func nextEndpoints(before, after *config.Cluster) (endpoints []discovery.Endpoint, known bool) {
	if after.Endpoints.Static == nil {
		return nil, reflect.DeepEqual(before.Endpoints, after.Endpoints)
	}
	endpoints, err := discovery.Normalize(after.Endpoints.Listed())
	return endpoints, err == nil
}

// following is the snapshot of the endpoints under another configuration.
func (c *Cluster) following(
	today []weighting.Endpoint, endpoints []discovery.Endpoint, o Options,
) []weighting.Endpoint {
	c.mu.Lock()
	defer c.mu.Unlock()
	if endpoints == nil {
		endpoints = c.endpoints
	}
	byAddress := make(map[string]weighting.Endpoint, len(today))
	for _, e := range today {
		byAddress[e.Address] = e
	}
	out := make([]weighting.Endpoint, len(endpoints))
	for i, e := range endpoints {
		out[i] = byAddress[e.Address]
		out[i].Address, out[i].Zone, out[i].Capacity = e.Address, e.Zone, e.Capacity
		if e.Capacity == 0 {
			out[i].Capacity = o.Capacity
		}
	}
	return out
}

// compare puts two decisions next to each other, by address.
func compare(before, after weighting.Decision) (all []api.EndpointDiff, was, will api.Number) {
	parts, was := partsOf(before)
	next, will := partsOf(after)
	for address, p := range parts {
		e := api.EndpointDiff{Address: address, Before: p, After: next[address]}
		if _, stays := next[address]; !stays {
			e.Change = "leaves"
		}
		all = append(all, e)
	}
	for address, p := range next {
		if _, there := parts[address]; !there {
			all = append(all, api.EndpointDiff{Address: address, Change: "joins", After: p})
		}
	}
	slices.SortFunc(all, func(a, b api.EndpointDiff) int { return strings.Compare(a.Address, b.Address) })
	return all, was, will
}

// partsOf are the endpoints' parts of the capacity, which is the second result. A new endpoint counts with all of its
// capacity, as it does in the long run.
func partsOf(d weighting.Decision) (map[string]api.Part, api.Number) {
	var all float64
	for i := range d.Endpoints {
		all += lasting(&d.Endpoints[i])
	}
	parts := make(map[string]api.Part, len(d.Endpoints))
	for i := range d.Endpoints {
		e := &d.Endpoints[i]
		parts[e.Address] = api.Part{
			CapacityShare: api.Num(lasting(e) / all), Capacity: api.Num(lasting(e)), Slots: api.Num(e.Slots),
			Overloaded: e.Overloaded, Reason: string(e.Reason),
		}
	}
	return parts, api.Num(all)
}

func lasting(e *weighting.EndpointDecision) float64 {
	if e.Ramp > 0 {
		return e.Capacity / e.Ramp
	}
	return e.Capacity
}
