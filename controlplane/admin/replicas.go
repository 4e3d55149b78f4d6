package admin

import (
	"time"

	"steelyard/controlplane/view"
)

// Replicas are this replica and the others of its control plane, as this one sees them. The zero value is that of the
// only one.
type Replicas struct {
	Enabled bool   `json:"enabled"`
	ID      string `json:"id"` // of this one: another after each start
	Name    string `json:"name"`
	// Connected means that its own messages come back through Redis; Since is when that changed last.
	Connected bool      `json:"connected"`
	Since     view.Time `json:"since"`
	Error     string    `json:"error"` // why it is not connected; empty when it is
	// Scraping is how many endpoints this replica scrapes.
	Scraping view.Number     `json:"scraping"`
	Messages ReplicaMessages `json:"messages"`
	Others   []Replica       `json:"others"`
}

// ReplicaMessages count messages between replicas. They never decrease.
type ReplicaMessages struct {
	Sent     uint64 `json:"sent"`
	Failed   uint64 `json:"failed"` // could not be sent
	Received uint64 `json:"received"`
	Lost     uint64 `json:"lost"`    // by gaps in their numbers
	Stale    uint64 `json:"stale"`   // older than one before
	Foreign  uint64 `json:"foreign"` // of another version, and ignored
	// LastForeign is when the latest of those came.
	LastForeign view.Time `json:"last_foreign"`
	Invalid     uint64    `json:"invalid"` // could not be read
	Refused     uint64    `json:"refused"` // of more replicas than are followed
}

// A Replica is another replica.
type Replica struct {
	ID    string    `json:"id"`
	Name  string    `json:"name"`
	State string    `json:"state"` // "live"; "gone": silent or stopped; "unreachable": no connectivity through Redis
	Since view.Time `json:"since"`
	// LastMessage is when one came, by the clock of this replica.
	LastMessage view.Time `json:"last_message"`
	Envoys      int       `json:"envoys"` // that are connected there, for the cluster that has most

	// Filled in by the handler.
	AgeSeconds view.Number `json:"age_seconds"` // since the last message
}

// replicaLive is the state of a replica that sends messages.
const replicaLive = "live"

// complete works out what follows from the rest.
func (r Replicas) complete(now time.Time) Replicas {
	others := make([]Replica, len(r.Others))
	for i, o := range r.Others {
		o.AgeSeconds = o.LastMessage.Age(now)
		others[i] = o
	}
	r.Others = others
	return r
}

func replicaProblems(r Replicas, now time.Time) (out problemList) {
	if !r.Enabled {
		return nil
	}
	if !r.Connected {
		out.fail("cut off from the other replicas for %s%s; this one uses only the counts of its own Envoys, and "+
			"scrapes every endpoint", formatSeconds(r.Since.Age(now).Or(0)), because(r.Error))
	}
	for _, o := range r.Others {
		if o.State != replicaLive && r.Connected {
			out.warn("replica %s is %s, its last message came %s", orUnknown(o.Name), o.State,
				formatAgo(o.LastMessage, now))
		}
	}
	const recent = 10 // seconds
	if at := r.Messages.LastForeign; at.Age(now).Or(recent) < recent {
		out.warn("%d messages of replicas of another version were ignored, the latest %s: these and this one do not "+
			"have each other's counts", r.Messages.Foreign, formatAgo(at, now))
	}
	return out
}
