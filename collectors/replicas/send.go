package replicas

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"steelyard/collectors/replicas/merge"
	"steelyard/weighting/flight"
)

// A sender remembers what was sent last.
type sender struct {
	*Link
	seq    uint64
	sent   map[string]*sentCluster
	at     time.Time // of the last message
	beaten time.Time // of the last beat
	turn   int
	parts  []flight.Part // reused
	listed listing

	reading sync.WaitGroup // of what is kept
}

type sentCluster struct {
	head  flight.Watchers
	parts map[string]flight.Part
}

// send sends changes and beats to the followers until ctx is done, and then a message that this replica leaves.
func (l *Link) send(ctx context.Context) {
	s := &sender{Link: l, sent: make(map[string]*sentCluster)}
	timer := time.NewTimer(0)
	defer timer.Stop()
	rest := gather
	for {
		timer.Reset(time.Until(s.beaten.Add(beat)))
		select {
		case <-ctx.Done():
			s.leave()
			s.reading.Wait()
			return
		case <-l.changed:
		case <-timer.C:
		}
		if wait := time.Until(s.at.Add(rest)); wait > 0 { // changes until then go into the same message
			timer.Reset(wait)
			select {
			case <-ctx.Done():
			case <-timer.C:
			}
		}
		const idle = 4 // times what a message takes to make
		rest = max(gather, min(beat/2, idle*s.step(time.Now())))
	}
}

// step sends what changed, and with a beat a part of the rest. It returns how long it took to make the message.
func (s *sender) step(now time.Time) (making time.Duration) {
	const stoodStill = 250 * time.Millisecond
	s.mu.Lock()
	followed, whole, dirty := len(s.followers) > 0, s.whole, s.dirty
	s.dirty = make(map[string]struct{})
	s.whole = whole && !followed
	m := &merge.Message{From: s.id, Name: s.settings.Name}
	clusters := s.clusters
	s.mu.Unlock()
	beats := now.Sub(s.beaten) >= beat
	whole = whole || now.Sub(s.at) > stoodStill // the others may regard this one as gone
	s.at = now
	if beats {
		s.beaten = now
		s.turn = (s.turn + 1) % turns
	}
	if !followed {
		return 0 // the next follower begins with everything
	}
	for _, name := range clusters {
		if _, changed := dirty[name]; changed || beats || whole {
			if c, any := s.changes(name, beats, whole); any {
				m.Clusters = append(m.Clusters, c)
			}
		}
	}
	m.Envoys = s.listed.next(now, whole, s.o.Envoys)
	s.addRoutes(now, m)
	making = time.Since(now)
	maps.DeleteFunc(s.sent, func(name string, _ *sentCluster) bool { return !slices.Contains(clusters, name) })
	if beats || whole || len(m.Clusters) > 0 || m.Envoys != nil || len(m.Routes) > 0 || m.Gave != "" {
		s.publish(m)
	}
	return making
}

// changes returns what changed of a cluster since it was last sent; with a beat also the endpoints whose turn it is,
// and all if whole is set.
func (s *sender) changes(name string, beats, whole bool) (c merge.Cluster, any bool) {
	sent := s.sent[name]
	if sent == nil {
		sent = &sentCluster{parts: make(map[string]flight.Part)}
		s.sent[name] = sent
	}
	c.Name = name
	c.Head, s.parts = s.o.Own(name, s.parts)
	for i, p := range s.parts {
		if before, was := sent.parts[p.Address]; whole || !was || before != p || beats && i%turns == s.turn {
			c.Parts = append(c.Parts, p)
			sent.parts[p.Address] = p
		}
	}
	if len(sent.parts) > len(s.parts) {
		maps.DeleteFunc(sent.parts, func(address string, _ flight.Part) bool {
			return !slices.ContainsFunc(s.parts, func(p flight.Part) bool { return p.Address == address })
		})
	}
	moved := c.Head.Counted() != sent.head.Counted() || c.Head.Reconciled != sent.head.Reconciled
	sent.head = c.Head
	return c, beats || whole || moved || len(c.Parts) > 0
}

// publish sends a message to all followers, split if it is large.
func (s *sender) publish(m *merge.Message) {
	var encoded [][]byte
	for _, piece := range split(m) {
		s.seq++
		piece.Seq = s.seq
		encoded = append(encoded, encode(piece))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.followers {
		for _, b := range encoded {
			select {
			case f.out <- b:
				s.peers.Messages.Sent++
			default:
				s.peers.Messages.Failed++
			}
		}
	}
}

// split divides a message into pieces of maxMessage bytes at most.
func split(m *merge.Message) (pieces []*merge.Message) {
	const aPart, aCluster = 160, 100 // bytes at most, without an address and names
	head := 48 + len(m.From) + len(m.Name) + len(m.Wants) + len(m.Gave)
	var piece *merge.Message
	left := 0
	need := func(bytes int) bool {
		if left -= bytes; left >= 0 && piece != nil {
			return false
		}
		piece = &merge.Message{From: m.From, Name: m.Name, Leaving: m.Leaving, Wants: m.Wants}
		pieces = append(pieces, piece)
		left = maxMessage - head - bytes
		return true
	}
	need(head)
	for i := range m.Clusters {
		c := &m.Clusters[i]
		need(aCluster + len(c.Name))
		piece.Clusters = append(piece.Clusters, merge.Cluster{Name: c.Name, Head: c.Head})
		for _, p := range c.Parts {
			if need(aPart + len(p.Address)) {
				piece.Clusters = append(piece.Clusters, merge.Cluster{Name: c.Name, Head: c.Head})
			}
			last := &piece.Clusters[len(piece.Clusters)-1]
			last.Parts = append(last.Parts, p)
		}
	}
	for i := range m.Routes {
		need(size(&m.Routes[i]))
		piece.Routes = append(piece.Routes, m.Routes[i])
	}
	if m.Envoys != nil {
		need(maxMessage) // a piece of their own
		piece.Envoys = m.Envoys
	}
	piece.Gave = m.Gave
	return pieces
}

// leave sends the last message, and ends the streams of all followers when they have it.
func (s *sender) leave() {
	s.mu.Lock()
	m := &merge.Message{From: s.id, Name: s.settings.Name, Leaving: true}
	s.mu.Unlock()
	s.publish(m)
	s.mu.Lock()
	s.left = true
	for _, f := range s.followers {
		s.dismiss(f)
	}
	s.mu.Unlock()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		s.serving.Wait()
	}()
	limit := time.NewTimer(farewell)
	defer limit.Stop()
	select {
	case <-sent:
	case <-limit.C: // the server ends the streams of those that do not read
	}
}
