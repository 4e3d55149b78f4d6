package history

import (
	"time"

	"steelyard/internal/api"
)

// pushCounts are how many pushes each cluster had at the looks of the last ten seconds, the latest last.
type pushCounts []pushCount

type pushCount struct {
	at       time.Time
	clusters map[string]uint64
}

// rate takes in a look, and returns the pushes per second of all clusters since the oldest one; unknown at the first.
// A cluster that joined since then, or began again, counts from when it was first seen.
func (c *pushCounts) rate(now time.Time, clusters []api.Cluster) api.Number {
	latest := pushCount{now, make(map[string]uint64, len(clusters))}
	for i := range clusters {
		latest.clusters[clusters[i].Name] = clusters[i].Pushes
	}
	*c = append(*c, latest)
	if len(*c) > tenSeconds+1 {
		*c = (*c)[1:]
	}
	elapsed := now.Sub((*c)[0].at).Seconds()
	if elapsed <= 0 {
		return api.Number{}
	}
	var sum uint64
	for i, look := range (*c)[1:] {
		for name, n := range look.clusters {
			if before, known := (*c)[i].clusters[name]; known && n > before {
				sum += n - before
			}
		}
	}
	return api.Num(float64(sum) / elapsed)
}
