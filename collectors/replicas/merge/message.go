package merge

import (
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
}

// A Cluster is the state of one cluster at a replica: a summary of all its Envoys, and some endpoints.
type Cluster struct {
	Name  string
	Head  flight.Watchers // its Age is that of the counts when they were sent
	Parts []flight.Part
}
