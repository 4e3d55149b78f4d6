package xds

import (
	"context"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"steelyard/internal/api"
	"steelyard/internal/credentials"
	"steelyard/internal/envoyid"
	"steelyard/xds/port"
)

const (
	maxSubscriptions = 10_000 // clusters per stream
	maxNameBytes     = 1024   // of a cluster or type name
	maxHeldTypes     = 32     // other resource types per stream
	maxPending       = 8      // unanswered responses remembered per stream; the protocol allows one or two
)

// A tracker follows every stream: its node, its subscriptions, what it was sent and what it answered. Each stream
// reports to it from its own goroutine.
type tracker struct {
	prefix   string
	now      func() time.Time
	observer Observer
	// firstSubscriber is called, without the lock, for a name that has its first subscriber.
	firstSubscriber func(name string)
	names           *port.Quota // subscriptions of all streams, by connection

	closing atomic.Bool // the server itself ends the streams
	ended   <-chan struct{}

	mu       loggingMutex
	streams  map[streamKey]*stream
	byPeer   streamIndex[string] // all streams
	byNode   streamIndex[envoy]  // those that have named their node
	clusters map[string]*publication
	watches  watches
	gone     goneList
	paces    map[envoyid.ID]*pace
	paced    uint64 // requests that had to wait
}

func newTracker(prefix string, now func() time.Time, log *slog.Logger, o Observer, names *port.Quota) *tracker {
	return &tracker{
		prefix:          prefix,
		now:             now,
		observer:        o,
		names:           names,
		mu:              loggingMutex{log: log},
		firstSubscriber: func(string) {},
		streams:         make(map[streamKey]*stream),
		byPeer:          make(streamIndex[string]),
		byNode:          make(streamIndex[envoy]),
		clusters:        make(map[string]*publication),
		paces:           make(map[envoyid.ID]*pace),
		watches:         watches{names: make(map[string]int), clusters: make(map[string]map[envoyid.ID]int)},
	}
}

func (t *tracker) opened(ctx context.Context, key streamKey, transport, peer string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	st := &stream{
		ctx:           ctx,
		transport:     transport,
		peer:          peer,
		host:          hostOf(peer),
		certificate:   credentials.PeerIdentity(ctx).Name,
		connected:     t.now(),
		subscriptions: make(map[string]*subscription),
		held:          make(map[string]struct{}),
	}
	t.streams[key] = st
	t.byPeer.add(peer, st)
	return nil
}

func (t *tracker) closed(key streamKey) {
	t.mu.Lock()
	defer t.mu.Unlock()
	st := t.streams[key]
	if st == nil {
		return
	}
	for name := range st.subscriptions {
		t.unsubscribe(st, name)
	}
	for range st.held {
		t.names.Release(st.peer)
	}
	t.leavePace(st)
	delete(t.streams, key)
	t.byPeer.remove(st.peer, st)
	t.byNode.remove(st.envoy(), st)
	if st.node.NodeID != "" {
		t.mu.logLater(slog.LevelInfo, "envoy stream closed",
			"node", st.node.NodeID, "peer", st.peer, "transport", st.transport)
	}
}

// requested records a request. An error ends the stream.
func (t *tracker) requested(key streamKey, r request) error {
	t.mu.Lock()
	st := t.streams[key]
	if st == nil {
		t.mu.Unlock()
		return status.Error(codes.Internal, "request on a stream that was not opened")
	}
	var answered answer
	pending := len(st.pending)
	err := t.introduce(st, r.node)
	if err == nil {
		err = t.apply(st, r, &answered)
	}
	if err != nil {
		t.mu.logLater(slog.LevelWarn, "envoy stream refused", "node", st.node.NodeID, "peer", st.peer, "error", err)
	}
	due := t.account(st, len(st.pending) < pending)
	t.mu.Unlock()
	answered.report(t.observer)
	for _, name := range answered.firstNames {
		t.firstSubscriber(name)
	}
	if err == nil {
		t.wait(st.ctx, due)
	}
	return err
}

// account uses the cost of a request, unless it only answers, and returns how long it has to wait.
func (t *tracker) account(st *stream, answers bool) time.Duration {
	st.requests++
	changes := st.changes
	st.changes = 0
	if st.pace == nil {
		return 0
	}
	now := t.now()
	if st.requests > 1 && (!answers || changes > 0) {
		st.pace.Use(now, requestCost)
	}
	if changes > 0 {
		st.pace.Use(now, time.Duration(changes)*changeCost)
	}
	due := st.pace.Wait(now)
	if due > 0 {
		t.paced++
	}
	return due
}

// errNoNode ends a stream whose first request names no node. Every Envoy names one: it does not start without an id.
var errNoNode = status.Error(codes.InvalidArgument, "the first request of the stream names no node: "+
	"set node.id in the Envoy's bootstrap, or start it with --service-node")

// introduce keeps the node of the stream's first request: later requests may leave it out, and go-control-plane then
// repeats what takeNode left of it.
func (t *tracker) introduce(st *stream, node api.Node) error {
	switch {
	case st.node.NodeID != "":
		return nil
	case node.NodeID == "":
		return errNoNode
	}
	st.node = node
	t.byNode.add(st.envoy(), st)
	t.joinPace(st)
	t.gone.remove(st.envoy())
	t.mu.logLater(slog.LevelInfo, "envoy stream opened",
		"node", node.NodeID, "peer", st.peer, "transport", st.transport, "version", node.Version)
	return nil
}

func (t *tracker) apply(st *stream, r request, answered *answer) error {
	onEDS := st.transport == TransportEDS || st.transport == TransportEDSDelta
	if r.typeURL != resource.EndpointType && !(r.typeURL == "" && onEDS) {
		return t.hold(st, r.typeURL)
	}
	if r.replace && len(st.pending) > 0 && r.nonce != st.pending[len(st.pending)-1].nonce {
		return nil // stale: go-control-plane ignores it, including its subscriptions
	}
	t.answer(st, r, answered)
	return t.subscribe(st, r, answered)
}

func (t *tracker) hold(st *stream, typeURL string) error {
	if _, ok := st.held[typeURL]; ok {
		return nil
	}
	if len(st.held) >= maxHeldTypes || len(typeURL) > maxNameBytes {
		return status.Errorf(codes.ResourceExhausted,
			"more than %d resource types, or a type of more than %d bytes: this server has only endpoints",
			maxHeldTypes, maxNameBytes)
	}
	if !t.names.Acquire(st.peer) {
		return t.full()
	}
	st.held[strings.Clone(typeURL)] = struct{}{}
	return nil
}

// full returns the status of a stream that wants more names than there is room for.
func (t *tracker) full() error {
	return status.Errorf(codes.ResourceExhausted,
		"the limit of %d subscriptions leaves no more of them for this connection", t.names.Usage().Limit)
}

// subscribe follows the names of a request.
func (t *tracker) subscribe(st *stream, r request, answered *answer) error {
	if r.replace {
		wanted := make(map[string]struct{}, len(r.subscribe))
		for _, name := range r.subscribe {
			wanted[name] = struct{}{}
		}
		for name := range st.subscriptions {
			if _, ok := wanted[name]; !ok {
				t.unsubscribe(st, name)
			}
		}
	}
	for _, name := range r.subscribe {
		first, err := t.subscribeTo(st, name)
		if err != nil {
			return err
		}
		if first {
			answered.firstNames = append(answered.firstNames, strings.Clone(name))
		}
	}
	for _, name := range r.unsubscribe {
		t.unsubscribe(st, name)
	}
	return nil
}

// subscribeTo reports whether the stream is the first to subscribe to the name.
func (t *tracker) subscribeTo(st *stream, name string) (first bool, err error) {
	if _, ok := st.subscriptions[name]; ok || name == "*" || name == "" {
		return false, nil
	}
	if len(name) > maxNameBytes {
		return false, status.Errorf(codes.InvalidArgument,
			"a cluster name of %d bytes; at most %d are allowed", len(name), maxNameBytes)
	}
	if len(st.subscriptions) >= maxSubscriptions {
		return false, status.Errorf(codes.ResourceExhausted, "more than %d clusters on one stream", maxSubscriptions)
	}
	if !t.names.Acquire(st.peer) {
		return false, t.full()
	}
	name = strings.Clone(name)
	st.changes++
	st.subscriptions[name] = &subscription{since: t.now(),
		Subscription: api.Subscription{Resource: name, Cluster: BaseName(name)}}
	t.watches.add(name, st.watcher())
	t.watches.names[name]++
	return t.watches.names[name] == 1, nil
}

func (t *tracker) unsubscribe(st *stream, name string) {
	if _, ok := st.subscriptions[name]; !ok {
		return
	}
	delete(st.subscriptions, name)
	st.changes++
	t.names.Release(st.peer)
	t.watches.remove(name, st.watcher())
	t.watches.names[name]--
	if t.watches.names[name] == 0 {
		delete(t.watches.names, name)
	}
}

// sent records that a response is about to be sent.
func (t *tracker) sent(key streamKey, nonce, version string, parts []part) {
	seq, _ := strconv.ParseUint(strings.TrimPrefix(version, t.prefix), 10, 64)
	t.mu.Lock()
	defer t.mu.Unlock()
	st := t.streams[key]
	if st == nil {
		return
	}
	now := t.now()
	for i := range parts {
		p := &parts[i]
		p.version, p.published = t.clusters[p.cluster].versionAt(t.prefix, seq)
		if sub := st.subscriptions[p.cluster]; sub != nil {
			sub.VersionSent, sub.LastSent = p.version, api.At(now)
		}
	}
	if len(st.pending) == maxPending {
		st.pending = slices.Delete(st.pending, 0, 1)
	}
	st.pending = append(st.pending, response{nonce: nonce, at: now, parts: parts})
	t.spend(st, parts, now)
}

// spend uses the parts of a response.
func (t *tracker) spend(st *stream, parts []part, now time.Time) {
	for _, p := range parts {
		if c := t.clusters[p.cluster]; c != nil && st.pace != nil {
			st.pace.Use(now, c.proxyTime)
		}
	}
}

// wait returns when the request may be handled, or its stream or the server ends.
func (t *tracker) wait(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-t.ended:
	}
}

// joinPace adds the stream to the pace of its Envoy.
func (t *tracker) joinPace(st *stream) {
	p := t.paces[st.watcher()]
	if p == nil {
		p = &pace{}
		t.paces[st.watcher()] = p
	}
	p.streams++
	st.pace = p
}

func (t *tracker) leavePace(st *stream) {
	if st.pace == nil {
		return
	}
	if st.pace.streams--; st.pace.streams == 0 {
		delete(t.paces, st.watcher())
	}
}
