package ledger

import (
	"slices"
)

func (l *Ledger) cluster(name string) *cluster {
	c := l.clusters[name]
	if c == nil {
		c = &cluster{name: name, alpha: defaultAlpha, watchers: make(map[Envoy]struct{}), counted: &countedWatchers{}}
		l.clusters[name] = c
	}
	return c
}

// SetMembers replaces the endpoints of a cluster. Counts of those that
// stay are kept; those of one that is no longer in any cluster are forgotten.
// Entries about other addresses are ignored, and counted as ignored.
func (l *Ledger) SetMembers(name string, addresses []string) {
	l.mu.Lock()
	defer l.release()
	c := l.cluster(name)
	if slices.EqualFunc(c.members, addresses, func(s *member, given string) bool { return s.address == given }) {
		return
	}
	before := make(map[string]*member, len(c.members))
	for _, s := range c.members {
		before[s.address] = s
	}
	c.members = make([]*member, 0, len(addresses))
	now := make(map[string]*member, len(addresses))
	for _, given := range addresses {
		s := before[given]
		if s == nil {
			if s = now[given]; s == nil {
				s = l.join(c, given)
			}
		}
		delete(before, given)
		now[given] = s
		c.members = append(c.members, s)
	}
	for _, s := range before {
		l.leave(s)
	}
	l.changed(c)
}

// SetAlpha sets the weight, 0 to 1, of an end in the averages of a cluster.
func (l *Ledger) SetAlpha(name string, alpha float64) {
	l.mu.Lock()
	defer l.release()
	l.cluster(name).alpha = min(max(alpha, 0), 1)
}

// join adds an endpoint to a cluster.
func (l *Ledger) join(c *cluster, given string) *member {
	key := canonical(given)
	a := l.addresses[key]
	if a == nil {
		a = &address{key: key}
		l.addresses[key] = a
	}
	s := &member{cluster: c, at: a, address: given}
	a.members = append(a.members, s)
	return s
}

// leave takes an endpoint out of its cluster.
func (l *Ledger) leave(s *member) {
	for _, e := range l.envoys {
		if acc := e.account(s); acc != nil {
			l.forget(acc)
		}
	}
	a := s.at
	a.members = slices.DeleteFunc(a.members, func(other *member) bool { return other == s })
	if len(a.members) == 0 {
		delete(l.addresses, a.key)
	}
}

// SetWatchers replaces the Envoys that are subscribed to a cluster: only they
// move its counts. What one of them has in flight counts from now on; the sums
// start with what it does next.
func (l *Ledger) SetWatchers(name string, envoys []Envoy) {
	l.mu.Lock()
	defer l.release()
	c := l.cluster(name)
	watchers := make(map[Envoy]struct{}, len(envoys))
	same := true
	for _, node := range envoys {
		watchers[node] = struct{}{}
		if _, had := c.watchers[node]; !had {
			same = false
			l.watches(c, node, 1)
			l.eachOf(c, node, func(a *account) { l.watch(a, true) })
		}
	}
	for node := range c.watchers {
		if _, has := watchers[node]; !has {
			same = false
			l.watches(c, node, -1)
			l.eachOf(c, node, func(a *account) { l.watch(a, false) })
		}
	}
	c.watchers = watchers
	if !same {
		l.epoch++
	}
}

// eachOf calls do for each account of the Envoy with an endpoint of the cluster.
func (l *Ledger) eachOf(c *cluster, node Envoy, do func(*account)) {
	e := l.envoys[node]
	for _, s := range c.members {
		if a := e.account(s); a != nil {
			do(a)
		}
	}
}

// Forget drops a cluster.
func (l *Ledger) Forget(name string) {
	l.mu.Lock()
	defer l.release()
	c := l.clusters[name]
	if c == nil {
		return
	}
	gone := make(map[*member]bool, len(c.members))
	for _, s := range c.members {
		if !gone[s] {
			gone[s] = true
			l.leave(s)
		}
	}
	for node := range c.watchers {
		l.watches(c, node, -1)
	}
	delete(l.clusters, name)
	l.epoch++
}

// watches adds a cluster to what an Envoy watches, or takes it away.
func (l *Ledger) watches(c *cluster, node Envoy, n int) {
	w := l.watching[node]
	if w == nil {
		w = &watching{}
		l.watching[node] = w
	}
	w.clusters += n
	if !c.idle {
		w.busy += n
	}
	if w.clusters == 0 {
		delete(l.watching, node)
	}
	if e := l.envoys[node]; e != nil {
		l.regroup(e)
	}
}
