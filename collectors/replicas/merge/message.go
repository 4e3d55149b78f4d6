package merge

import (
	"slices"
	"time"

	"steelyard/internal/api"
	"steelyard/weighting/flight"
)

// An ID identifies one run of a replica: it changes with a restart.
type ID string

// A Message is what a replica publishes: a part of its state, in absolute values.
type Message struct {
	From     ID
	Name     string // for display
	Seq      uint64 // rises by one with each
	Leaving  bool   // the last one: the process stops
	Clusters []Cluster
	Envoys   *Envoys // all of its sender; nil: as before
	Routes   []Route // that its sender's pickers have learned, or that it keeps
	Wants    ID      // the replica that its sender asks for the routes that it keeps
	Gave     ID      // with this message, this replica has all that its sender keeps
}

// A Route is what pickers learned of a prompt.
type Route struct {
	Cluster  string
	Endpoint string
	Hashes   []uint64      // none: the endpoint has lost all
	Kept     bool          // it was learned before, by any picker
	Age      time.Duration // of one that was kept
}

// A Cluster is the state of one cluster at a replica: a summary of all its Envoys, and some endpoints.
type Cluster struct {
	Name  string
	Head  flight.Watchers // its Age is that of the counts when they were sent
	Parts []flight.Part
}

// MaxEnvoys bounds the list of Envoys and pickers.
const MaxEnvoys = 2000

// Envoys are what is connected to a replica. Those that need a look are first, so that those left out do not.
type Envoys struct {
	List    []Envoy // at most MaxEnvoys
	LeftOut int     // Envoys beyond them
}

// An Envoy is one that is connected to a replica, or a picker. Its times are as of when it was sent.
type Envoy struct {
	Kind      api.FollowerKind
	Name      string // node id, or the picker's name
	Address   string
	State     api.EnvoyState
	Clusters  []string
	Connected time.Duration // for how long
	Acked     time.Duration // since it last accepted an assignment; 0: never
}

// Same reports whether nothing but times differs.
func (e *Envoys) Same(f *Envoys) bool {
	return e.LeftOut == f.LeftOut && slices.EqualFunc(e.List, f.List, func(a, b Envoy) bool {
		return a.Kind == b.Kind && a.Name == b.Name && a.Address == b.Address && a.State == b.State &&
			slices.Equal(a.Clusters, b.Clusters)
	})
}
