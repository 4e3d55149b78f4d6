package replicas

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

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
	again      = 200 * time.Millisecond // between two attempts to connect
	exchange   = 300 * time.Millisecond // a message may take
	storing    = 2 * time.Second        // between two states in the hash
	valid      = 5 * time.Second        // of a state in the hash
	farewell   = 200 * time.Millisecond // the last message may take
)

// A Client is a connection to Redis.
type Client struct {
	redis.UniversalClient
	Stop func() // closes it, and waits for what it dialled
}

// Options configure a Link.
type Options struct {
	// Connect makes a client. It does not wait for Redis.
	Connect func() Client
	Prefix  string // of the channel and the key, the same for all replicas
	Name    string // of this replica, for display
	Log     *slog.Logger

	// Own returns the counts of this replica's Envoys for a cluster. It may overwrite into.
	Own func(cluster string, into []flight.Part) (flight.Watchers, []flight.Part)
	// Changed is called when the counts of other replicas changed. It may not block.
	Changed func(clusters []string)
}

// A Link publishes this replica's state, and follows the others.
type Link struct {
	o       Options
	id      merge.ID
	log     *slog.Logger
	changed loops.Signal // there is something to send

	mu       sync.Mutex
	peers    *merge.Peers
	clusters []string // that are configured here
	dirty    map[string]struct{}
	client   *Client                 // of the current session; nil between two
	abort    context.CancelCauseFunc // ends that session
	whole    bool                    // the next message has everything
	err      error                   // why there is no session, or the latest message could not be sent
	known    map[string]api.ReplicaState
	wasCut   bool // as of the last line of the log
	warned   bool // of a cut, in the log
}

// New makes a link. No run of any replica may have had its id before.
func New(id merge.ID, o Options) *Link {
	return &Link{
		o: o, id: id, log: o.Log, changed: loops.NewSignal(), peers: merge.New(id, time.Now()),
		dirty: make(map[string]struct{}),
		known: make(map[string]api.ReplicaState), wasCut: true,
	}
}

// ID returns the id of this replica.
func (l *Link) ID() merge.ID { return l.id }

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

// Merge calls merge.Peers.Merge under the lock.
func (l *Link) Merge(now time.Time, cluster string, own flight.Watchers, parts []flight.Part, counts []flight.Counts,
	before time.Time) flight.Watchers {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.peers.Merge(now, cluster, own, parts, counts, before)
}

// Served calls merge.Peers.Served under the lock.
func (l *Link) Served(now time.Time, address string, requests float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.peers.Served(now, address, requests)
}

// Status returns the state of the link.
func (l *Link) Status() api.Replicas {
	l.mu.Lock()
	defer l.mu.Unlock()
	cut, since := l.peers.Cut()
	s := api.Replicas{Enabled: true, ID: string(l.id), Name: l.o.Name, Connected: !cut, Since: api.At(since),
		Messages: l.peers.Messages, Others: l.peers.Status()}
	switch {
	case cut && l.err != nil:
		s.Error = l.err.Error()
	case cut:
		s.Error = errSilent.Error()
	}
	return s
}

// Run connects the replicas until ctx is done, and then publishes that this one leaves. Call it once.
func (l *Link) Run(ctx context.Context) error {
	connected, stop := context.WithCancel(context.WithoutCancel(ctx)) // until the last message is sent
	var all sync.WaitGroup
	all.Go(func() { l.follow(connected) })
	all.Go(func() { l.look(connected) })
	l.send(ctx)
	stop()
	all.Wait()
	return nil
}

// look checks periodically which replicas are silent, and reports changes.
func (l *Link) look(ctx context.Context) {
	loops.Every(ctx, checkEvery, func(time.Time) {
		l.mu.Lock()
		changed := l.peers.Tick(time.Now())
		clusters, lines := l.clusters, l.news()
		l.mu.Unlock()
		for _, line := range lines {
			l.log.Log(ctx, line.level, line.text, line.args...)
		}
		if changed {
			l.o.Changed(clusters)
		}
	})
}

// A line is a line of the log.
type line struct {
	level slog.Level
	text  string
	args  []any
}

// news returns the changes since the last check, as lines of the log.
func (l *Link) news() (lines []line) {
	cut, _ := l.peers.Cut()
	if cut != l.wasCut || cut && !l.warned && l.err != nil { // the first time it may never have been open
		l.wasCut, l.warned = cut, cut
		if cut {
			lines = append(lines, line{slog.LevelWarn, "replicas cannot be reached through Redis: using only the " +
				"counts of this replica's Envoys", []any{"error", fmt.Sprint(l.err)}})
		} else {
			lines = append(lines, line{slog.LevelInfo, "the replicas are connected through Redis", nil})
		}
	}
	seen := make(map[string]api.ReplicaState)
	for _, p := range l.peers.Status() {
		seen[p.ID] = p.State
		if l.known[p.ID] != p.State {
			lines = append(lines, line{slog.LevelInfo, "another replica is " + string(p.State),
				[]any{"replica", p.Name, "id", p.ID}})
		}
	}
	l.known = seen
	return lines
}
