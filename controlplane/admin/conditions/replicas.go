package conditions

import (
	"time"

	"steelyard/internal/api"
)

func replicaProblems(r api.Replicas, now time.Time) (out problemList) {
	if !r.Enabled {
		return nil
	}
	if !r.Connected {
		out.fail("counts of other replicas are missing for %s%s; this one uses the counts of the Envoys that it knows "+
			"of, and scrapes every endpoint", FormatSeconds(r.Since.Age(now).Or(0)), because(r.Error))
	}
	if r.Lookup != "" {
		out.warn("the other replicas were not found again%s; those found before stay", because(r.Lookup))
	}
	for _, o := range r.Others {
		switch {
		case o.State != api.ReplicaLive:
			last := ""
			if !o.LastMessage.IsZero() {
				last = "; its last message came " + formatAgo(o.LastMessage, now)
			}
			out.warn("replica %s is %s%s%s", replicaName(o), o.State, because(o.Error), last)
		case !o.Follows:
			out.warn("replica %s does not follow this one: it lacks the counts of the Envoys here", replicaName(o))
		}
	}
	const recent = 10 // seconds
	if at := r.Messages.LastForeign; at.Age(now).Or(recent) < recent {
		out.warn("%d messages of replicas of another version were ignored, the latest %s: these and this one do not "+
			"have each other's counts", r.Messages.Foreign, formatAgo(at, now))
	}
	return out
}

// replicaName is how a replica is named to people: by its address as long as nothing is known of it.
func replicaName(r api.Replica) string {
	switch {
	case r.Name == "":
		return OrUnknown(r.Address)
	case r.Address == "":
		return r.Name
	}
	return sprint("%s at %s", r.Name, r.Address)
}
