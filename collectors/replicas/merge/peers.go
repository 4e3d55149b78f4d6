package merge

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"steelyard/internal/api"
	"steelyard/weighting/flight"
)

// Bounds and times.
const (
	// MaxReplicas bounds how many other replicas are followed.
	MaxReplicas = 32
	// Silence is the time without a message after which a replica is unreachable: five times that between two.
	Silence = 500 * time.Millisecond
	// Fade is how long the requests of a replica that is gone count at most.
	Fade = 30 * time.Second
	// shown is how long a replica that is gone is shown.
	shown = time.Minute
	// pause is longer than the time between two ticks, unless this process was stopped.
	pause = 250 * time.Millisecond
	// transit is the age of a count that its replica reports at once: changes are gathered for that time.
	transit = 5 * time.Millisecond
)

// Peers has the state of the other replicas. It is not safe for concurrent use.
type Peers struct {
	self     ID
	peers    map[ID]*peer
	clusters map[string]*cluster
	ticked   time.Time
	cut      bool
	since    time.Time // of cut
	question question
	routes   []Route // that were taken in, to be handed on
	given    bool    // all that another replica keeps is among them
	// Messages are counted here, but for those that do not get here, which the caller counts.
	Messages api.ReplicaMessages
}

// A peer is another replica.
type peer struct {
	id       ID
	name     string
	seq      uint64
	lastSeen time.Time
	state    api.ReplicaState
	since    time.Time
	clusters map[string]*share
	envoys   Envoys
	listed   time.Time // when these came
	wants    bool      // it asks this replica for the routes that it keeps
	answered time.Time
}

// A share has the counts of another replica for one cluster.
type share struct {
	head  flight.Watchers
	at    time.Time // of the head
	parts map[string]*part
	pace  pace
	other int // Envoys with load reports at all other replicas, when this one was gone
}

// A part has the counts of another replica at an endpoint.
type part struct {
	inFlight int64
	seen     flight.Sums // in the latest message
}

// A cluster is a cluster that is configured here.
type cluster struct {
	members map[string]*member
	own     flight.Watchers // as of the last Merge
}

// A member is an endpoint of a cluster.
type member struct {
	sums     flight.Sums // of the others, since their first message
	served   float64     // requests that its server last reported
	servedAt time.Time
}

// New returns peers without any replica.
func New(self ID, now time.Time) *Peers {
	return &Peers{self: self, peers: make(map[ID]*peer), clusters: make(map[string]*cluster), since: now}
}

// SetMembers replaces the endpoints of all clusters. What is known of those that stay is kept.
func (p *Peers) SetMembers(members map[string][]string) {
	clusters := make(map[string]*cluster, len(members))
	for name, addresses := range members {
		c, old := &cluster{members: make(map[string]*member, len(addresses))}, p.clusters[name]
		for _, address := range addresses {
			if old != nil && old.members[address] != nil {
				c.members[address] = old.members[address]
			} else {
				c.members[address] = &member{}
			}
		}
		if old != nil {
			c.own = old.own
		}
		clusters[name] = c
	}
	p.clusters = clusters
	for _, other := range p.peers {
		other.keep(clusters)
	}
}

// keep forgets clusters and endpoints that are not configured here.
func (o *peer) keep(clusters map[string]*cluster) {
	for name, s := range o.clusters {
		c := clusters[name]
		if c == nil {
			delete(o.clusters, name)
			continue
		}
		for address := range s.parts {
			if c.members[address] == nil {
				delete(s.parts, address)
			}
		}
	}
}

// SetCut notes whether there are replicas, or may be, whose messages do not arrive: then all counts are partial. It
// reports whether that changed.
func (p *Peers) SetCut(now time.Time, cut bool) (changed bool) {
	if p.cut == cut {
		return false
	}
	if p.cut, p.since = cut, now; !cut {
		p.question = p.question.again() // routes were missed
	}
	return true
}

// Take takes in a message that came at that time, and returns the clusters whose counts changed.
func (p *Peers) Take(now time.Time, m *Message) (changed []string) {
	if m.From == p.self {
		return nil
	}
	o, lost := p.of(now, m)
	if o == nil {
		return nil
	}
	p.Messages.Received++
	p.Messages.Lost += lost
	o.lastSeen = now
	switch {
	case m.Leaving:
		p.leave(now, o, api.ReplicaGone)
		return p.names()
	case o.state != api.ReplicaLive:
		if lost > 0 || now.Sub(o.since) > Silence { // otherwise a message was late, and all is known as before
			o.clusters = make(map[string]*share)
		}
		o.state, o.since = api.ReplicaLive, now
		changed = p.names()
	}
	p.takeRoutes(now, o, m)
	if m.Envoys != nil {
		o.envoys, o.listed = *m.Envoys, now
	}
	for i := range m.Clusters {
		if c := p.clusters[m.Clusters[i].Name]; c != nil {
			o.update(now, c, &m.Clusters[i])
			changed = append(changed, m.Clusters[i].Name)
		}
	}
	return changed
}

// of returns the sender of a message, and how many messages were lost before it; nil if the message does not count.
func (p *Peers) of(now time.Time, m *Message) (o *peer, lost uint64) {
	o = p.peers[m.From]
	if o == nil {
		if m.Leaving || len(p.peers) >= MaxReplicas && !p.drop() {
			p.Messages.Refused++
			return nil, 0
		}
		o = &peer{id: m.From, name: m.Name, state: api.ReplicaLive, since: now, seq: m.Seq,
			clusters: make(map[string]*share)}
		p.peers[m.From] = o
		return o, 0
	}
	if m.Seq <= o.seq {
		p.Messages.Stale++
		return nil, 0
	}
	if lost = m.Seq - o.seq - 1; lost > 0 {
		p.question.missed = p.question.missed || p.question.to == o.id
	}
	o.seq = m.Seq
	return o, lost
}

// drop makes room for one more replica: it forgets the one that is gone for longest, and reports whether there was one.
func (p *Peers) drop() bool {
	var longest *peer
	for _, o := range p.peers {
		if o.state != api.ReplicaLive && (longest == nil || o.since.Before(longest.since)) {
			longest = o
		}
	}
	if longest != nil {
		delete(p.peers, longest.id)
	}
	return longest != nil
}

// update takes in the part of a message about a cluster.
func (o *peer) update(now time.Time, c *cluster, m *Cluster) {
	s := o.clusters[m.Name]
	if s == nil {
		s = &share{parts: make(map[string]*part)}
		o.clusters[m.Name] = s
	}
	s.head, s.at = m.Head, now
	for i := range m.Parts {
		sent := &m.Parts[i]
		to := c.members[sent.Address]
		if to == nil {
			continue
		}
		before := s.parts[sent.Address]
		if before == nil {
			before = &part{seen: sent.Sums}
			s.parts[sent.Address] = before
		}
		risen := since(&before.seen, &sent.Sums)
		to.sums.Add(&risen)
		s.pace.observe(now, risen.Ended)
		before.inFlight, before.seen = max(0, sent.InFlight), sent.Sums
	}
}

// since returns by how much sums rose. If one of them fell, they restarted at zero.
func since(before, now *flight.Sums) flight.Sums {
	d := *now
	d.Latency -= before.Latency
	d.Bytes -= before.Bytes
	d.RefusedBytes -= before.RefusedBytes
	fell := d.Latency < 0 || d.Bytes < 0 || d.RefusedBytes < 0
	was := Counts(before)
	for i, n := range Counts(&d) {
		fell = fell || *n < *was[i]
		*n -= *was[i]
	}
	if fell {
		return *now
	}
	return d
}

// Counts returns the sums that are whole numbers.
func Counts(s *flight.Sums) [9]*uint64 {
	return [...]*uint64{
		&s.Issued, &s.Hashed, &s.Ended, &s.Failed, &s.Errors, &s.Succeeded, &s.Answered, &s.Sized, &s.Refused,
	}
}

// Tick finds replicas that have become silent. Call it several times within Silence. It reports whether one has.
func (p *Peers) Tick(now time.Time) (changed bool) {
	if gap := now.Sub(p.ticked); !p.ticked.IsZero() && gap > pause { // this process was stopped, and could not receive
		for _, o := range p.peers {
			o.lastSeen = o.lastSeen.Add(gap)
		}
	}
	p.ticked = now
	for id, o := range p.peers {
		switch {
		case o.state == api.ReplicaLive && now.Sub(o.lastSeen) > Silence:
			p.leave(now, o, api.ReplicaUnreachable)
			changed = true
		case o.state == api.ReplicaGone && now.Sub(o.since) > shown:
			delete(p.peers, id) // one that cannot be reached is kept: its Envoys are unknown, and not gone
		}
	}
	return changed
}

// Gone notes that a replica does not run any more. It reports whether that is news.
func (p *Peers) Gone(now time.Time, id ID) (changed bool) {
	o := p.peers[id]
	if o == nil || o.state == api.ReplicaGone {
		return false
	}
	p.leave(now, o, api.ReplicaGone)
	return true
}

// Live reports whether the messages of a replica arrive.
func (p *Peers) Live(id ID) bool {
	o := p.peers[id]
	return o != nil && o.state == api.ReplicaLive
}

// Served notes how many requests the server of an endpoint reports.
func (p *Peers) Served(now time.Time, address string, requests float64) {
	for _, c := range p.clusters {
		if m := c.members[address]; m != nil {
			m.served, m.servedAt = requests, now
		}
	}
}

// leave marks a replica as gone, or unreachable. Its requests in flight fade from now on.
func (p *Peers) leave(now time.Time, o *peer, s api.ReplicaState) {
	if o.state == api.ReplicaLive {
		o.since = now
		for name, shared := range o.clusters {
			shared.other = p.reconciled(name, o)
		}
	}
	o.state = s
}

// reconciled returns how many Envoys with load reports all live replicas except one have for a cluster.
func (p *Peers) reconciled(name string, but *peer) (n int) {
	if c := p.clusters[name]; c != nil {
		n = c.own.Reconciled
	}
	for _, o := range p.peers {
		if s := o.clusters[name]; s != nil && o != but && o.state == api.ReplicaLive {
			n += s.head.Reconciled
		}
	}
	return n
}

// names returns the clusters that are configured here.
func (p *Peers) names() []string { return slices.Collect(maps.Keys(p.clusters)) }

// Cut reports what SetCut noted last, and since when that holds.
func (p *Peers) Cut() (cut bool, since time.Time) { return p.cut, p.since }

// Status returns the other replicas, sorted.
func (p *Peers) Status() []api.Replica {
	all := make([]api.Replica, 0, len(p.peers))
	for _, o := range p.peers {
		s := api.Replica{ID: string(o.id), Name: o.name, State: o.state, Since: api.At(o.since),
			LastMessage: api.At(o.lastSeen), LeftOut: o.envoys.LeftOut, Envoys: o.envoys.LeftOut}
		for i := range o.envoys.List {
			if o.envoys.List[i].Kind == api.FollowerEnvoy {
				s.Envoys++
			}
		}
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b api.Replica) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
	})
	return all
}
