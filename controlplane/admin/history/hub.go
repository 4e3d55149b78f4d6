package history

import "sync"

// MaxStreams bounds the readers of a hub.
const MaxStreams = 64

// A Hub wakes all streams each second. It is made with the channel next.
type Hub struct {
	mu      sync.Mutex
	streams int
	latest  *Moment       // of the latest second
	next    chan struct{} // closed when there is another
	ended   bool          // there will be no more
}

// Join counts a stream in, and returns what is closed with the next second; ok is false when there are too many
// streams, or when everything is about to end.
func (h *Hub) Join() (next <-chan struct{}, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended || h.streams >= MaxStreams {
		return nil, false
	}
	h.streams++
	return h.next, true
}

func (h *Hub) Leave() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.streams--
}

// Second returns the latest second, nil when there are no more, and what is closed with the next one.
func (h *Hub) Second() (*Moment, <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.latest, h.next
}

// publish hands out a second; nil ends all streams.
func (h *Hub) publish(m *Moment) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.latest, h.ended = m, m == nil
	close(h.next)
	h.next = make(chan struct{})
}
