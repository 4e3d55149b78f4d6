package xds

import "time"

func (t *tracker) settled(patience time.Duration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	since := t.now().Add(-patience)
	for _, st := range t.streams {
		if t.awaitsAnswer(st, since) {
			return false
		}
	}
	return true
}

// awaitsAnswer reports whether an answer is still expected on the stream, to something sent or published after since.
func (t *tracker) awaitsAnswer(st *stream, since time.Time) bool {
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
