package replicas

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"

	"steelyard/collectors/replicas/merge"
	"steelyard/internal/api"
	"steelyard/internal/loops"
	"steelyard/weighting/flight"
)

// Times of the link.
const (
	gather     = 5 * time.Millisecond   // changes within this time go into one message
	beat       = 100 * time.Millisecond // between two messages at most
	turns      = 10                     // beats in which all endpoints are repeated once
	checkEvery = 50 * time.Millisecond  // between two checks for silent replicas
	farewell   = 200 * time.Millisecond // the last message may take
	settled    = time.Second            // counts are missing for so long before the log says so
)

// Options configure a Link.
type Options struct {
	// Dial makes a connection to the xDS port of another replica, host:port.
	Dial func(address string) (*grpc.ClientConn, error)
	// Trusted reports whether the client of a stream is another replica.
	Trusted func(context.Context) bool
	Log     *slog.Logger

	// Own returns the counts of this replica's Envoys for a cluster. It may overwrite into.
	Own func(cluster string, into []flight.Part) (flight.Watchers, []flight.Part)
	// Envoys returns what is connected here, those that need a look first.
	Envoys func() []merge.Envoy
	// Kept returns the routes that are kept here, the newest first, for a replica that asks.
	Kept func() []merge.Route
	// Routes is called with the routes of other replicas; given: with all that one of them keeps.
	Routes func(routes []merge.Route, given bool)
	// Changed is called when the counts of other replicas changed. It may not block.
	Changed func(clusters []string)
}

// A Link sends this replica's state to the others, and follows theirs. Without Configure it does neither.
type Link struct {
	o       Options
	id      merge.ID
	changed loops.Signal // there is something to send
	named   loops.Signal // there are other addresses
	serving sync.WaitGroup

	mu       sync.Mutex
	settings Settings
	peers    *merge.Peers
	clusters []string // that are configured here
	dirty    map[string]struct{}
	whole    bool // the next message has everything
	stale    bool // counts of others changed, which the next look reports
	routes   outbox
	others
	reported
}

// Settings of a Link.
type Settings struct {
	Enabled bool   // there may be other replicas
	Name    string // of this replica, for display
}

// others are the other replicas as the link knows them, besides the counts that package merge has.
type others struct {
	targets   map[string]*target // that this one follows, by address
	followers map[merge.ID]*follower
	found     bool  // the addresses are known
	lookup    error // why they were not found again
	left      bool  // this replica has taken leave
}

// reported is what the latest lines of the log say.
type reported struct {
	states map[string]api.ReplicaState
	warned bool // that counts are missing
}

// New makes a link. No run of any replica may have had its id before.
func New(id merge.ID, o Options) *Link {
	return &Link{
		o: o, id: id, changed: loops.NewSignal(), named: loops.NewSignal(), peers: merge.New(id, time.Now()),
		dirty:    make(map[string]struct{}),
		others:   others{targets: make(map[string]*target), followers: make(map[merge.ID]*follower)},
		reported: reported{states: make(map[string]api.ReplicaState)},
	}
}

// Configure replaces the settings. The caller looks for the other replicas again, and calls SetPeers.
func (l *Link) Configure(s Settings) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.settings, l.found, l.lookup = s, false, nil
	if !s.Enabled {
		l.retarget(nil)
		for _, f := range l.followers {
			l.dismiss(f)
		}
	}
	l.judge(time.Now())
}

// SetPeers replaces the addresses, host:port, of the other replicas. That of this one may be among them. With an error,
// which says why they were not found, those known stay where there are none.
func (l *Link) SetPeers(addresses []string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lookup = err
	if err == nil || len(addresses) > 0 {
		l.found = l.found || err == nil // one of those that are not known may be the only other one
		l.retarget(addresses)
	}
	l.judge(time.Now())
}

// SetMembers replaces the endpoints of all clusters.
func (l *Link) SetMembers(members map[string][]string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.peers.SetMembers(members)
	l.clusters = slices.Sorted(maps.Keys(members))
}

// CountsChanged announces that a count of this replica's Envoys changed.
func (l *Link) CountsChanged(cluster string) {
	l.mu.Lock()
	l.dirty[cluster] = struct{}{}
	l.mu.Unlock()
	l.changed.Set()
}

// Merge calls merge.Peers.Merge under the lock, where there may be other replicas.
func (l *Link) Merge(now time.Time, cluster string, own flight.Watchers, parts []flight.Part, counts []flight.Counts,
	before time.Time) flight.Watchers {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.settings.Enabled {
		return own
	}
	return l.peers.Merge(now, cluster, own, parts, counts, before)
}

// Served calls merge.Peers.Served under the lock.
func (l *Link) Served(now time.Time, address string, requests float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.peers.Served(now, address, requests)
}

// Envoys returns the Envoys and pickers of the other replicas.
func (l *Link) Envoys() []api.OtherEnvoy {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.peers.Envoys()
}

// Watching returns how many Envoys of live replicas subscribe to a cluster.
func (l *Link) Watching(cluster string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.peers.Watching(cluster)
}

// Run connects the replicas until ctx is done, and then says that this one leaves. Call it once.
func (l *Link) Run(ctx context.Context) error {
	connected, stop := context.WithCancel(context.WithoutCancel(ctx)) // until the last message is sent
	var all sync.WaitGroup
	all.Go(func() { l.attend(connected) })
	all.Go(func() { l.look(connected) })
	l.send(ctx)
	stop()
	all.Wait()
	return nil
}

// look checks periodically which replicas are silent, and reports changes.
func (l *Link) look(ctx context.Context) {
	loops.Every(ctx, checkEvery, func(time.Time) {
		now := time.Now()
		l.mu.Lock()
		changed := l.peers.Tick(now)
		changed = l.judge(now) || changed || l.stale
		l.stale = false
		clusters, lines := l.clusters, l.news(now)
		l.mu.Unlock()
		for _, line := range lines {
			l.o.Log.Log(ctx, line.level, line.text, line.args...)
		}
		if changed {
			l.o.Changed(clusters)
		}
	})
}
