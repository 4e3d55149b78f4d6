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
		out.fail("cut off from the other replicas for %s%s; this one uses only the counts of its own Envoys, and "+
			"scrapes every endpoint", FormatSeconds(r.Since.Age(now).Or(0)), because(r.Error))
	}
	for _, o := range r.Others {
		if o.State != api.ReplicaLive && r.Connected {
			out.warn("replica %s is %s, its last message came %s", OrUnknown(o.Name), o.State,
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
