package xds

import "time"

// Settled reports whether every Envoy that answers has answered what was published of its clusters. One that has
// not answered a response for longer than patience is taken not to: it may be frozen, and nobody is to
// wait for it. Neither is anybody waited for whose response has not gone out for so long.
func (s *Server) Settled(patience time.Duration) bool { return s.tracker.settled(patience) }

func (t *tracker) settled(patience time.Duration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	since := t.now().Add(-patience)
	for _, st := range t.streams {
		if t.owes(st, since) {
			return false
		}
	}
	return true
}

// owes reports whether an answer is to come on the stream, to what was sent or published after since.
func (t *tracker) owes(st *stream, since time.Time) bool {
	if len(st.pending) > 0 {
		return st.pending[0].at.After(since)
	}
	for name, sub := range st.subscriptions {
		p := t.clusters[name]
		if p != nil && p.newest().at.After(since) && sub.VersionSent != p.version(t.prefix) {
			return true
		}
	}
	return false
}
