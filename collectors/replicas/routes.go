package replicas

import (
	"encoding/binary"
	"time"

	"steelyard/collectors/replicas/merge"
)

// Bounds on the learned routes in messages.
const (
	maxHashes = 128     // of a prompt
	maxWaits  = 1 << 20 // bytes of what waits to be sent; then the oldest is left out

	// RoutesPerSecond is how many bytes of what its pickers learn a replica sends, and as many of what it keeps while
	// it answers another one: what is sent at once would hold the counts up, which go the same way.
	RoutesPerSecond = 1 << 20
)

// An outbox has the routes that wait to be sent, the oldest first.
type outbox struct {
	learned []merge.Route
	bytes   int // of these
	budget  budget

	to         merge.ID      // who asked for what is kept; empty: no replica
	read       bool          // that is known
	kept       []merge.Route // the rest of it
	keptBudget budget
	dropped    uint64
}

// A budget is how many bytes may be sent: those of at most a beat at once.
type budget struct {
	left float64
	at   time.Time
}

func (b *budget) fill(now time.Time, perSecond float64) {
	b.left = min(b.left+now.Sub(b.at).Seconds()*perSecond, beat.Seconds()*perSecond)
	b.at = now
}

// size is how many bytes a route has in a message, at most.
func size(r *merge.Route) int { return 40 + len(r.Cluster) + len(r.Endpoint) + 8*len(r.Hashes) }

// add adds what a picker has learned. Where too much waits, the oldest is dropped.
func (o *outbox) add(r merge.Route) {
	o.learned = append(o.learned, r)
	o.bytes += size(&r)
	for o.bytes > maxWaits {
		o.bytes -= size(&o.learned[0])
		o.learned = o.learned[1:]
		o.dropped++
	}
}

// take moves what may be sent now into a message.
func (o *outbox) take(now time.Time, m *merge.Message) {
	var taken int
	o.budget.fill(now, RoutesPerSecond)
	o.learned, taken = o.budget.take(o.learned, m)
	o.bytes -= taken
	o.keptBudget.fill(now, RoutesPerSecond)
	o.kept, _ = o.keptBudget.take(o.kept, m)
	if o.read && len(o.kept) == 0 {
		m.Gave, o.to, o.read, o.kept = o.to, "", false, nil
	}
}

// take moves routes into a message while there is something of the budget, and returns the rest.
func (b *budget) take(routes []merge.Route, m *merge.Message) (rest []merge.Route, bytes int) {
	n := 0
	for ; n < len(routes) && b.left > 0; n++ {
		bytes += size(&routes[n])
		b.left -= float64(size(&routes[n]))
	}
	m.Routes = append(m.Routes, routes[:n]...)
	return routes[n:], bytes
}

// Learned has the other replicas be sent what a picker has learned, or what an endpoint has lost.
func (l *Link) Learned(r merge.Route) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.settings.Enabled {
		l.routes.add(r)
		l.changed.Set()
	}
}

// addRoutes adds to a message the routes that are to be sent, and the question for others.
func (s *sender) addRoutes(now time.Time, m *merge.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.routes.to == "" {
		if s.routes.to = s.peers.Asker(now); s.routes.to != "" {
			s.reading.Go(s.readKept)
		}
	}
	m.Wants = s.peers.Wants(now)
	s.routes.take(now, m)
	if m.Gave != "" {
		s.peers.Answered(now, m.Gave)
	}
	s.peers.Messages.Prompts.Sent += uint64(len(m.Routes))
	s.peers.Messages.Prompts.LeftOut += s.routes.dropped
	s.routes.dropped = 0
}

// readKept reads what is kept, for the one that asked. That may take some time, and counts do not wait for it.
func (s *sender) readKept() {
	kept := s.o.Kept()
	s.mu.Lock()
	s.routes.kept, s.routes.read = kept, true
	s.mu.Unlock()
	s.changed.Set()
}

func routesOf(routes []merge.Route) (out []route) {
	for i := range routes {
		r := &routes[i]
		hashes := make([]byte, 0, 8*len(r.Hashes))
		for _, h := range r.Hashes {
			hashes = binary.BigEndian.AppendUint64(hashes, h)
		}
		out = append(out, route{r.Cluster, r.Endpoint, hashes, r.Kept, r.Age})
	}
	return out
}

func (r *route) route() merge.Route {
	out := merge.Route{Cluster: r.Cluster, Endpoint: r.Endpoint, Kept: r.Kept, Age: r.Age}
	for b := r.Hashes; len(b) > 0; b = b[8:] {
		out.Hashes = append(out.Hashes, binary.BigEndian.Uint64(b))
	}
	return out
}

func (r *route) valid() bool {
	return len(r.Cluster) <= maxText && len(r.Endpoint) <= maxText && len(r.Hashes)%8 == 0 &&
		len(r.Hashes) <= 8*maxHashes && r.Age >= 0 && r.Age <= maxRun
}
