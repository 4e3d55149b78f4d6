package history

import (
	"cmp"
	"slices"
	"time"

	"steelyard/controlplane/admin/conditions"
	"steelyard/internal/api"
	"steelyard/internal/envoyid"
)

// A Moment is what the Recorder last saw, and found in it. It does not change any more.
type Moment struct {
	conditions.Observation
	Measures  map[string]*Measure
	Incidents []api.Incident
	Fleet     *api.Fleet
}

const (
	// recordEvery is the time between two looks.
	recordEvery = time.Second
	leftFor     = time.Hour
	maxLeft     = 256
	maxConfigs  = 10
)

// idOf identifies an Envoy over its connections, and after the last of them.
func IDOf(node, address string) envoyid.ID {
	return envoyid.ID{NodeID: node, Host: cmp.Or(envoyid.HostOf(address), address)}
}

// LeftEnvoys are those that left in the last hour.
func (m *Moment) LeftEnvoys(now time.Time) []api.LeftEnvoy {
	if m == nil {
		return []api.LeftEnvoy{}
	}
	out := slices.Clone(api.OrEmpty(m.Left))
	for i := range out {
		out[i].State = conditions.LeftState(&out[i], now)
	}
	return out
}

// MeasureOf is what was measured of a cluster; nil where there is nothing.
func (m *Moment) MeasureOf(cluster string) *Measure {
	if m == nil {
		return nil
	}
	return m.Measures[cluster]
}
