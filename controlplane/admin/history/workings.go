package history

import (
	"slices"
	"time"

	"steelyard/internal/api"
)

// The bounds of the decisions that are kept for explanations: those of 15 minutes, in 8 MiB of all clusters together,
// and two at least.
// What does not fit is the time between two of them, which grows with the endpoints: a second for each 13 of them.
const (
	workingsFor   = 15 * time.Minute
	workingsBytes = 8 << 20
)

// workings are past decisions of a cluster, oldest first.
type workings struct {
	kept []api.Working
	step time.Duration
}

// stepOf is the time between two decisions that are kept of each cluster.
func stepOf(clusters []api.Cluster) time.Duration {
	bytes := 0
	for i := range clusters {
		bytes += clusters[i].Working.Bytes()
	}
	step := (workingsFor*time.Duration(bytes)/workingsBytes + time.Second - 1).Truncate(time.Second)
	return max(step, time.Second)
}

// add keeps a decision if the latest is old enough.
func (w *workings) add(now api.Working, step time.Duration) {
	w.step = step
	at := now.At()
	if at.IsZero() {
		return
	}
	if n := len(w.kept); n > 0 {
		since := at.Sub(w.kept[n-1].At())
		if since < 0 {
			w.kept = nil // the clock was set back
		} else if since < step-recordEvery/2 {
			return
		}
	}
	w.kept = append(w.kept, now)
	most := max(2, int(workingsFor/step))
	for len(w.kept) > most || at.Sub(w.kept[0].At()) > workingsFor {
		w.kept[0] = api.Working{}
		w.kept = w.kept[1:]
	}
}

// at is the latest decision at a time or before it.
func (w *workings) at(t time.Time) (api.Working, bool) {
	for _, kept := range slices.Backward(w.kept) {
		if !kept.At().After(t) {
			return kept, true
		}
	}
	return api.Working{}, false
}
