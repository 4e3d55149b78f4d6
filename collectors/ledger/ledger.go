package ledger

import (
	"hash/maphash"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"steelyard/internal/api"
	"steelyard/weighting/flight"
)

// Bounds on what is kept: any client can connect as an Envoy.
const (
	maxEnvoys        = 16_384
	maxOpen          = 65_536    // requests of one Envoy
	maxOpenTotal     = 1_048_576 // requests of all, about 150 MB
	maxAccounts      = 2_097_152 // of all Envoys with all endpoints, about 350 MB
	strangers        = 4         // Envoys that watch no cluster get one part in this many
	maxInProgress    = 1_000_000 // requests in progress at one endpoint, by one report
	maxPerSecond     = 100_000   // requests of one Envoy to one endpoint: see Reports.most
	maxLatency       = 24 * time.Hour
	silentAfter      = 3 * time.Second
	silentIntervals  = 3
	maxServices      = 2048             // names of clusters of one Envoy: two for each that can be configured
	maxServicesTotal = 131_072          // of all Envoys, of a kilobyte at most: collectors/loadstats cuts them
	idleAfter        = 10 * time.Second // without a beginning or an end of a request
	idleReports      = 2                // of each Envoy that is counted by its reports, without requests
)

// A Ledger counts the requests in flight of all Envoys. It is safe for concurrent use.
type Ledger struct {
	wake func(cluster string)
	seed maphash.Seed // secret, so that ids cannot be made to collide

	mu           sync.RWMutex // reads share it, and change nothing
	clusters     map[string]*cluster
	addresses    map[string]*address
	envoys       map[Envoy]*envoy
	left         api.Entries // of Envoys that have left
	open         int         // requests of all Envoys
	accounts     int         // of all Envoys
	services     int         // of all Envoys
	watching     map[Envoy]*watching
	reporters    Reporters
	hashed       map[*account]int32 // requests issued by a hash, of the report that is being read
	dirty        []*cluster         // to be woken when the lock is released
	epoch        uint64             // changes with the Envoys that are counted, and how
	trafficEpoch uint64             // changes with which clusters have traffic, which is more often

	batchAbove, reportsAbove float64

	generation atomic.Uint64 // of the modes; written under mu
}

// New makes an empty ledger. wake is called, without the lock and from the goroutine that
// made the change, when a count or a sum of a cluster changed; it must
// not block. It may be nil.
func New(wake func(cluster string)) *Ledger {
	return &Ledger{
		wake:      wake,
		seed:      maphash.MakeSeed(),
		clusters:  make(map[string]*cluster),
		addresses: make(map[string]*address),
		envoys:    make(map[Envoy]*envoy),
		watching:  make(map[Envoy]*watching),
		hashed:    make(map[*account]int32),
	}
}

// A cluster is a set of endpoints and the Envoys that move their counts.
type cluster struct {
	name     string
	alpha    float64   // weight of an end in the averages
	members  []*member // in the caller's order
	watchers map[Envoy]struct{}
	dropped  uint64
	dirty    bool
	counted  *countedWatchers // as of the last Tick; see countedBy
	idle     bool             // no request for a while, and all watchers would have reported one
	traffic  bool             // a request since the last sweep
	quiet    time.Time        // the first sweep without one
	rotated  time.Time        // when the current half minute of the answers' times began
}

// watching counts the clusters that an Envoy is subscribed to.
type watching struct{ clusters, busy int }

// A member is one endpoint of one cluster, with the sums and averages over all Envoys that count.
type member struct {
	cluster  *cluster
	at       *address
	address  string // as the caller wrote it
	inFlight int64

	unconfirmed int64 // of inFlight, of Envoys that are not confirmed; see mismatch.go
	excess      int64 // of those, as many do not count
	excessSince time.Time

	sums     flight.Sums
	answers  newestAnswers // of accounts that do not fail
	gaps     gaps
	failures *failureCheck // nil where no Envoy reports failures
	bytes    average       // of an answer
	failed   average       // of requests that the endpoint answered or failed: 1 for a failure
	times    *times        // of answers; nil before the first
}

// An address is an endpoint of at least one cluster.
type address struct {
	key     string
	members []*member
	served  served
}

// servedBy returns which of the endpoint's clusters has a name in EDS: NAME or NAME/…; nil if none of them has.
func (a *address) servedBy(service string) *cluster {
	base, _, _ := strings.Cut(service, "/")
	for _, s := range a.members {
		if s.cluster.name == service || s.cluster.name == base {
			return s.cluster
		}
	}
	return nil
}

// release unlocks, and then wakes the clusters that changed.
func (l *Ledger) release() {
	var space [4]string
	names := space[:0]
	for _, c := range l.dirty {
		c.dirty = false
		names = append(names, c.name)
	}
	l.dirty = l.dirty[:0]
	l.mu.Unlock()
	if l.wake == nil {
		return
	}
	for _, name := range names {
		l.wake(name)
	}
}

// changed makes release wake the cluster.
func (l *Ledger) changed(c *cluster) {
	if !c.dirty {
		c.dirty = true
		l.dirty = append(l.dirty, c)
	}
}

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

// setIdle notes whether a cluster has traffic.
func (l *Ledger) setIdle(c *cluster, idle bool) {
	if c.idle == idle {
		return
	}
	c.idle = idle
	for node := range c.watchers {
		if idle {
			l.watching[node].busy--
		} else {
			l.watching[node].busy++
		}
	}
	l.trafficEpoch++
}

// room returns how many of something there may be at most, when this Envoy asks for one more. An Envoy that watches no
// cluster may be about to, so it is counted; but any client can invent such Envoys, so they leave most of the room to
// those that watch one.
func (l *Ledger) room(node Envoy, limit int) int {
	if l.watching[node] == nil {
		return limit / strangers
	}
	return limit
}

// canonical returns an address as Envoys write it.
func canonical(given string) string {
	if a, err := netip.ParseAddrPort(given); err == nil {
		return a.String()
	}
	return given
}
