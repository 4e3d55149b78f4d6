package admin

import (
	"time"

	"steelyard/internal/stat"
)

// completeReplicas works out what follows from the rest.
func completeReplicas(r stat.Replicas, now time.Time) stat.Replicas {
	others := make([]stat.Replica, len(r.Others))
	for i, o := range r.Others {
		o.AgeSeconds = o.LastMessage.Age(now)
		others[i] = o
	}
	r.Others = others
	return r
}

func replicaProblems(r stat.Replicas, now time.Time) (out problemList) {
	if !r.Enabled {
		return nil
	}
	if !r.Connected {
		out.fail("cut off from the other replicas for %s%s; this one uses only the counts of its own Envoys, and "+
			"scrapes every endpoint", formatSeconds(r.Since.Age(now).Or(0)), because(r.Error))
	}
	for _, o := range r.Others {
		if o.State != stat.ReplicaLive && r.Connected {
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
