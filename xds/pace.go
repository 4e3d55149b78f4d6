package xds

import (
	"context"
	"time"

	"steelyard/weighting/push"
)

const (
	// requestCost is what a request costs that is neither the first of its stream nor an answer that changes nothing.
	// An Envoy sends one when its clusters change.
	requestCost = 2 * time.Millisecond
	// changeCost is what each name costs that a request subscribes to, or no longer subscribes to.
	changeCost = 200 * time.Microsecond
)

// A pace is the allowance of an Envoy, which all its streams share. A push uses of it what the gate's verdict says, an
// unsolicited request requestCost, and a change of subscriptions changeCost for each name. Where the Envoy has used too
// much, the server handles its next request later. It sends nothing on that stream in the meantime, and the latest
// assignment afterwards.
type pace struct {
	push.Allowance
	streams int
}

// Paced returns how many requests were handled later because their Envoy had used more than it is entitled to.
func (s *Server) Paced() uint64 {
	s.tracker.mu.Lock()
	defer s.tracker.mu.Unlock()
	return s.tracker.paced
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

// spend uses the parts of a response.
func (t *tracker) spend(st *stream, parts []part, now time.Time) {
	for _, p := range parts {
		if c := t.clusters[p.cluster]; c != nil && st.pace != nil {
			st.pace.Use(now, c.proxyTime)
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
