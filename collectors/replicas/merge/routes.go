package merge

import (
	"cmp"
	"slices"
	"time"

	"steelyard/internal/api"
)

const (
	// answering is how long a replica may take to send what it keeps, or the next part of it.
	answering = 2 * time.Second
	// maxTaken bounds the routes that wait to be handed on.
	maxTaken = 100_000
)

// A question is to another replica, for the routes that it keeps: this one has missed some, as it began or was cut off.
type question struct {
	to     ID
	since  time.Time // when it was asked, or its latest answer came
	asked  []ID      // before, without an answer
	missed bool      // a message got lost that may have been a part of the answer
	done   bool
}

// again returns the question after this replica was cut off: the end of an answer that was interrupted may still come.
func (q question) again() question { return question{missed: q.to != "" && !q.done} }

// Wants returns the replica that is to be asked now; empty for none. One that does not answer is asked no more until
// all others were.
func (p *Peers) Wants(now time.Time) ID {
	q := &p.question
	if p.cut || q.done {
		return ""
	}
	if o := p.peers[q.to]; o != nil && o.state == api.ReplicaLive && now.Sub(q.since) < answering {
		return q.to
	}
	q.missed = q.missed || q.to != "" // the end of an answer that was interrupted may still come
	var live []*peer
	for _, o := range p.peers {
		if o.state == api.ReplicaLive && !slices.Contains(q.asked, o.id) {
			live = append(live, o)
		}
	}
	if len(live) == 0 {
		q.to, q.asked = "", nil
		return ""
	}
	longest := slices.MinFunc(live, func(a, b *peer) int {
		return cmp.Or(a.since.Compare(b.since), cmp.Compare(a.id, b.id))
	})
	q.to, q.since = longest.id, now
	q.asked = append(q.asked, longest.id)
	return q.to
}

// Asker returns a replica that asks this one for the routes that it keeps; empty for none. It is asked once for each
// answer.
func (p *Peers) Asker(now time.Time) ID {
	for id, o := range p.peers {
		if o.wants && o.state == api.ReplicaLive && now.Sub(o.answered) > answering {
			o.wants, o.answered = false, now
			return id
		}
	}
	return ""
}

// Answered notes that a replica has been sent all that it asked for: questions that it sent before are answered, too.
func (p *Peers) Answered(now time.Time, id ID) {
	if o := p.peers[id]; o != nil {
		o.wants, o.answered = false, now
	}
}

// takeRoutes takes in what a message has of routes.
func (p *Peers) takeRoutes(now time.Time, o *peer, m *Message) {
	o.wants = m.Wants == p.self
	room := max(0, maxTaken-len(p.routes))
	p.Messages.Prompts.LeftOut += uint64(max(0, len(m.Routes)-room))
	p.routes = append(p.routes, m.Routes[:min(len(m.Routes), room)]...)
	if q := &p.question; q.to == m.From && !q.done {
		if slices.ContainsFunc(m.Routes, func(r Route) bool { return r.Kept }) {
			q.since = now
		}
		if m.Gave == p.self {
			q.done, q.missed = !q.missed, false // otherwise it is asked once more
			p.given = p.given || q.done
		}
	}
}

// Routes returns the routes of the messages that were taken in since the call before, and whether another replica has
// sent all that it keeps.
func (p *Peers) Routes() (routes []Route, given bool) {
	routes, given = p.routes, p.given
	p.routes, p.given = nil, false
	return routes, given
}
