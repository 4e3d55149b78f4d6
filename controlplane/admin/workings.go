package admin

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"steelyard/controlplane/view"
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
	kept []view.Working
	step time.Duration
}

// stepOf is the time between two decisions that are kept of each cluster.
func stepOf(clusters []view.Cluster) time.Duration {
	bytes := 0
	for i := range clusters {
		bytes += clusters[i].Working.Bytes()
	}
	step := (workingsFor*time.Duration(bytes)/workingsBytes + time.Second - 1).Truncate(time.Second)
	return max(step, time.Second)
}

// add keeps a decision if the latest is old enough.
func (w *workings) add(now view.Working, step time.Duration) {
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
		w.kept[0] = view.Working{}
		w.kept = w.kept[1:]
	}
}

// at is the latest decision at a time or before it.
func (w *workings) at(t time.Time) (view.Working, bool) {
	for _, kept := range slices.Backward(w.kept) {
		if !kept.At().After(t) {
			return kept, true
		}
	}
	return view.Working{}, false
}

// working is the decision at a time, how far back they are kept, and the time between two.
func (r *Recorder) working(cluster string, at, now time.Time) (w view.Working, kept, step time.Duration, ok bool) {
	r.ticking.Lock()
	defer r.ticking.Unlock()
	past := &r.of(cluster).workings
	if len(past.kept) == 0 {
		return view.Working{}, 0, 0, false
	}
	w, ok = past.at(at)
	return w, now.Sub(past.kept[0].At()), past.step, ok
}

func (h *handler) getExplanation(r *http.Request) (Explanation, error) {
	s := h.snapshot()
	c, ok := s.cluster(r.PathValue("name"))
	if !ok {
		return Explanation{}, h.noCluster(r.PathValue("name"))
	}
	q := r.URL.Query()
	address := q.Get("endpoint")
	past, asked, err := parseAt(q, s.seen.now)
	if err != nil {
		return Explanation{}, err
	}
	working, kept, step, found := h.Recorder.working(c.Name, asked, s.seen.now)
	out := Explanation{Cluster: c.Name, KeptSeconds: view.Seconds(kept), StepSeconds: view.Seconds(step)}
	if !past {
		i := indexOf(c.Endpoints, address)
		if i < 0 {
			return out, noEndpoint(address, c.Name)
		}
		out.At, out.Decision, out.Endpoint = c.Decision.At, c.Decision, c.Endpoints[i]
		out.Endpoint.Why = c.Working.Explain(address)
		return out, nil
	}
	if !found {
		return out, Missing(fmt.Errorf("no decision of that time is kept: they go back %s, since the start",
			formatSeconds(kept.Seconds())))
	}
	decision, endpoint, found := working.Endpoint(address)
	if !found {
		return out, noEndpoint(address, c.Name+" at that time")
	}
	out.At, out.Decision, out.Endpoint = view.At(working.At()), decision, completePast(&c, endpoint, working)
	return out, nil
}

// completePast fills in what follows from a past decision.
func completePast(c *view.Cluster, e view.Endpoint, w view.Working) view.Endpoint {
	e.Inputs, e.Problems = orEmpty(e.Inputs), []view.Problem{}
	e.Engine = c.Engine
	e.LoadPerSlot, e.State, e.HeardSeconds = loadPerSlot(&e), endpointState(&e), lastSeen(&e)
	e.CapacityShare = capacityShare(&e, w.Capacity())
	return e
}

func indexOf(endpoints []view.Endpoint, address string) int {
	for i := range endpoints {
		if endpoints[i].Address == address {
			return i
		}
	}
	return -1
}

func noEndpoint(address, where string) error {
	return Missing(fmt.Errorf("no endpoint %q is in %s: write endpoint=HOST:PORT as in its list", address, where))
}

// parseAt reads the time that is asked about: a time, a duration that it is ago, or nothing for now.
func parseAt(q url.Values, now time.Time) (past bool, at time.Time, err error) {
	s := q.Get("at")
	if s == "" {
		return false, now, nil
	}
	if ago, err := time.ParseDuration(s); err == nil && ago >= 0 {
		return true, now.Add(-ago), nil
	}
	at, err = time.Parse(time.RFC3339, s)
	if err != nil || at.After(now) {
		return false, now, fmt.Errorf("at=%q is not a past time: for example, 2026-03-14T12:00:00Z, or 5m for five "+
			"minutes ago", s)
	}
	return true, at, nil
}
