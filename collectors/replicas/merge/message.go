package merge

import (
	"time"

	"steelyard/weighting"
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
	Scrapes  []Scrape
}

// A Cluster is the state of one cluster at a replica: a summary of all its Envoys, and some endpoints.
type Cluster struct {
	Name  string
	Head  flight.Watchers // its Age is that of the counts when they were sent
	Parts []flight.Part
}

// A Scrape is the outcome of a replica's scrape.
type Scrape struct {
	Cluster, Address string
	At               time.Time // by the clock of the receiver
	Took             time.Duration
	Refused          bool
	Error            string                 // empty if it succeeded
	Doubt            string                 // then, why a number of the page is unknown; empty for none
	Report           weighting.ServerReport // of the time At, with the sums of that replica
	WrongCounters    string                 // which, and why; empty for none
}
