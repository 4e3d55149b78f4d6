package xds

import (
	"context"
	"time"

	"steelyard/xds/envoyspec"
)

const (
	// requestCost is what a request costs that is neither the first of its stream nor an answer that changes nothing.
	// An Envoy sends one when its clusters change.
	requestCost = 2 * time.Millisecond
	// changeCost is what each name costs that a request subscribes to, or no longer subscribes to.
	changeCost = 200 * time.Microsecond
	// paceBurst is how much an Envoy may use before it has to wait: at its start it needs all its clusters.
	paceBurst = 2 * time.Second
	// longestPace bounds a single wait.
	longestPace = 10 * time.Second
)

// A pace records how much an Envoy has used of the time that it is entitled to. A push uses what Envoy takes for it,
// divided by the share of a core that pushes may take (push.envoy_cpu), so an Envoy that subscribes to more clusters
// than others gets fewer pushes of each; the pushes of a cluster are as frequent as its median Envoy can take them. An
// unsolicited request uses requestCost, and a change of subscriptions changeCost for each name. When an Envoy has used
// more than it is entitled to, the server handles its next request later. It sends nothing on that stream in the
// meantime, and the latest assignment afterwards. All streams of an Envoy share its pace.
type pace struct {
	paid    time.Time // when all that was used is paid for
	streams int
}

func (p *pace) use(d time.Duration, now time.Time) {
	if p.paid.Before(now) {
		p.paid = now
	}
	p.paid = p.paid.Add(d)
}

// due returns how long the next request has to wait.
func (p *pace) due(now time.Time) time.Duration {
	if !p.paid.After(now) {
		return 0
	}
	return min(max(0, p.paid.Sub(now)-paceBurst), longestPace)
}

// Paced returns how many requests were handled later because their Envoy had used more than it is entitled to.
func (s *Server) Paced() uint64 {
	s.tracker.mu.Lock()
	defer s.tracker.mu.Unlock()
	return s.tracker.paced
}

// SetEnvoyCPU sets the share of a core that pushes of a cluster may take of each Envoy, 0 for no bound. It applies from
// the next push on.
func (s *Server) SetEnvoyCPU(cluster string, share float64) {
	s.tracker.mu.Lock()
	defer s.tracker.mu.Unlock()
	if share > 0 {
		s.tracker.shares[cluster] = share
	} else {
		delete(s.tracker.shares, cluster)
	}
}

// joinPace adds the stream to the pace of its Envoy.
func (t *tracker) joinPace(st *stream) {
	p := t.paces[st.watcher()]
	if p == nil {
		p = &pace{}
		t.paces[st.watcher()] = p
	}
	p.streams++
	st.pace = p
}

func (t *tracker) leavePace(st *stream) {
	if st.pace == nil {
		return
	}
	if st.pace.streams--; st.pace.streams == 0 {
		delete(t.paces, st.watcher())
	}
}

// spend uses what the Envoy takes for the parts of a response.
func (t *tracker) spend(st *stream, parts []part, now time.Time) {
	for _, p := range parts {
		share := t.shares[BaseName(p.cluster)]
		if c := t.clusters[p.cluster]; c != nil && share > 0 && st.pace != nil {
			st.pace.use(time.Duration(float64(envoyspec.PushCost.Of(c.endpoints))/share), now)
		}
	}
}

// wait returns when the request may be handled, or its stream or the server ends.
func (t *tracker) wait(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-t.ended:
	}
}
