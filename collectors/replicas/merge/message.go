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
	Head  Head
	Parts []flight.Part
}

// A Head sums up the Envoys of one cluster at a replica.
type Head struct {
	Watching   int // Envoys that subscribe to it
	Events     int // of them, counted by their access log
	Reports    int // counted by their load reports only
	Reconciled int // of both, those that have load reports
	Rate       float64
	Age        time.Duration // of the counts, when they were sent
	Interval   time.Duration // between two readings of an Envoy; 0 if each change is reported at once
}

// Counted returns how many Envoys are counted.
func (h *Head) Counted() int { return h.Events + h.Reports }

// weight returns the weight of the ages in a mean: what a count lacks are the requests since then.
func (h *Head) weight() float64 {
	const idle = 0.01 // requests per second
	return h.Rate + idle*float64(h.Counted())
}

// A Scrape is the outcome of a replica's scrape.
type Scrape struct {
	Cluster, Address string
	At               time.Time // by the clock of the receiver
	Took             time.Duration
	Refused          bool
	Error            string                 // empty if it succeeded
	Report           weighting.ServerReport // of the time At, with the sums of that replica
}
