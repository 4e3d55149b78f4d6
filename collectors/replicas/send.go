package replicas

import (
	"context"
	"fmt"
	"maps"
	"slices"
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
	stored time.Time
	turn   int
	parts  []flight.Part // reused
}

type sentCluster struct {
	head  flight.Watchers
	parts map[string]flight.Part
}

// send publishes changes and beats until ctx is done, and then a message that this replica leaves.
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
		rest = max(gather, min(beat/2, idle*s.step(ctx, time.Now())))
	}
}

// step sends what changed, and with a beat a part of the rest. It returns how long it took to make the message.
func (s *sender) step(ctx context.Context, now time.Time) (making time.Duration) {
	const stoodStill = 250 * time.Millisecond
	s.mu.Lock()
	client, whole, dirty := s.client, s.whole, s.dirty
	s.dirty = make(map[string]struct{})
	if client != nil {
		s.whole = false
	}
	clusters := s.clusters
	s.mu.Unlock()
	beats := now.Sub(s.beaten) >= beat
	whole = whole || now.Sub(s.at) > stoodStill // the others may regard this one as gone
	s.at = now
	if beats {
		s.beaten = now
		s.turn = (s.turn + 1) % turns
	}
	if client == nil {
		return 0 // the next session begins with everything
	}
	m := &merge.Message{From: s.id, Name: s.o.Name}
	for _, name := range clusters {
		if _, changed := dirty[name]; changed || beats || whole {
			if c, any := s.changes(name, beats, whole); any {
				m.Clusters = append(m.Clusters, c)
			}
		}
	}
	making = time.Since(now)
	maps.DeleteFunc(s.sent, func(name string, _ *sentCluster) bool { return !slices.Contains(clusters, name) })
	if beats || whole || len(m.Clusters) > 0 {
		if !s.publish(ctx, client, m) {
			return making // not stored: a replica that joins would start with the state of one that sends nothing
		}
	}
	if now.Sub(s.stored) >= storing {
		s.stored = now
		s.store(ctx, client, clusters)
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

// publish sends a message, split if it is large, and reports whether Redis accepted it.
func (s *sender) publish(ctx context.Context, client *Client, m *merge.Message) bool {
	ctx, cancel := context.WithTimeout(ctx, exchange)
	defer cancel()
	pipe := client.Pipeline()
	pieces := split(m)
	for _, piece := range pieces {
		s.seq++
		piece.Seq = s.seq
		pipe.Publish(ctx, s.channel(), encode(piece))
	}
	_, err := pipe.Exec(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.peers.Messages.Failed += uint64(len(pieces))
		if s.client == client { // unless that session has ended
			s.client = nil
			s.abort(fmt.Errorf("publishing on %q: %w", s.channel(), err))
		}
		return false
	}
	s.peers.Messages.Sent += uint64(len(pieces))
	s.err = nil
	return true
}

// split divides a message into pieces of maxMessage bytes at most.
func split(m *merge.Message) (pieces []*merge.Message) {
	const aPart, aCluster = 160, 100 // bytes at most, without an address and names
	head := 40 + len(m.From) + len(m.Name)
	var piece *merge.Message
	left := 0
	need := func(bytes int) bool {
		if left -= bytes; left >= 0 && piece != nil {
			return false
		}
		piece = &merge.Message{From: m.From, Name: m.Name, Leaving: m.Leaving}
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
	return pieces
}

// store writes the whole state into the hash.
func (s *sender) store(ctx context.Context, client *Client, clusters []string) {
	m := &merge.Message{From: s.id, Name: s.o.Name, Seq: s.seq}
	for _, name := range clusters {
		head, parts := s.o.Own(name, nil)
		m.Clusters = append(m.Clusters, merge.Cluster{Name: name, Head: head, Parts: parts})
	}
	state := encode(m)
	if len(state) > maxState || s.seq == 0 {
		return // the beats send the same within a second
	}
	ctx, cancel := context.WithTimeout(ctx, exchange)
	defer cancel()
	if err := store.Run(ctx, client, []string{s.hash()}, string(s.id), valid.Milliseconds(), state).Err(); err != nil {
		s.failed(err)
	}
}

// leave sends the last message.
func (s *sender) leave() {
	s.mu.Lock()
	client := s.client
	s.mu.Unlock()
	if client == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), farewell)
	defer cancel()
	s.publish(ctx, client, &merge.Message{From: s.id, Name: s.o.Name, Leaving: true})
	client.HDel(ctx, s.hash(), string(s.id))
}
