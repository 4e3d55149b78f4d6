package inflight

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// A Poller reads all keys from Redis, once per interval.
type Poller struct {
	o      Options
	dialer *dialer
	sink   func([]Result)
	log    *slog.Logger
	source
	members *members

	mu   sync.Mutex
	keys []Key // replaced as a whole, never modified
}

// New reads the files that the options name; it does not connect. sink gets the results of each poll, one per key in
// the order of SetKeys, on the goroutine of Run: it must not block. New sends the log lines of the Redis library, for
// the whole process, to log at debug level.
func New(o Options, sink func([]Result), log *slog.Logger) (*Poller, error) {
	if o.Progress == nil {
		o.Progress = unwatched{}
	}
	config, err := o.transport()
	if err != nil {
		return nil, err
	}
	log = log.With("redis", o.Addresses)
	redis.SetLogger(libraryLog{log})
	return &Poller{
		o: o, dialer: newDialer(config, max(background, o.Timeout)), sink: sink, log: log,
		source: newSource(&o), members: newMembers(o.Replica),
	}, nil
}

// SetKeys replaces the keys to read, from the next poll on. Without keys Redis is not contacted.
func (p *Poller) SetKeys(keys []Key) {
	keys = slices.Clone(keys)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keys = keys
}

// SetMembers replaces the sets to keep equal to endpoints, each with its endpoints. A set without endpoints is left as
// it is until there are some: before the first discovery they are unknown. A set that had endpoints and has none any
// more is emptied as far as the other replicas agree.
func (p *Poller) SetMembers(wanted map[Key][]string) { p.members.set(wanted) }

// SetAdding replaces the keys whose scores get what this process counts. The Requests of their results are then those
// that others count. What was added to the scores of a key that is not in it any more is taken out of them again.
func (p *Poller) SetAdding(keys map[Key]bool) { p.adder.set(keys) }

func (p *Poller) snapshot() []Key {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.keys
}

// Run polls until ctx is done and then returns nil. It may be called once.
func (p *Poller) Run(ctx context.Context) error {
	client := redis.NewUniversalClient(p.o.universal(p.dialer))
	defer func() {
		p.o.Progress.Begin()
		defer p.o.Progress.End()
		_ = client.Close() // before the dialer: what is dialled after that finds the pool closed
		p.dialer.close()
	}()
	ctx, stop := context.WithCancel(ctx)
	var syncing sync.WaitGroup
	syncing.Go(func() { p.members.run(ctx, p.adder, client, p.log) })
	defer func() {
		syncing.Wait()
		p.adder.withdraw(context.WithoutCancel(ctx), client, true)
	}()
	defer stop()
	return p.loop(ctx, func(ctx context.Context, keys []Key) []Result {
		results := p.read(ctx, client, keys)
		if c, ok := client.(*redis.ClusterClient); ok && unreachable(results) {
			c.ReloadState(ctx) // the library asks by itself when a node answers MOVED, and otherwise once a minute
		}
		for i := range results {
			p.members.fault(&results[i])
		}
		return results
	})
}

// loop is Run without the network.
func (p *Poller) loop(ctx context.Context, read func(context.Context, []Key) []Result) error {
	tick := time.NewTicker(p.o.Interval)
	defer tick.Stop()
	h := health{log: p.log}
	for {
		if keys := p.snapshot(); len(keys) > 0 {
			results := p.poll(ctx, keys, read)
			if ctx.Err() != nil {
				return nil // Run was stopped: not a failure of Redis
			}
			h.update(results)
			p.o.Progress.Begin()
			p.sink(results)
			p.o.Progress.End()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// poll reads all keys once. It must return when ctx is done or the timeout has passed, whatever Redis does.
func (p *Poller) poll(ctx context.Context, keys []Key, read func(context.Context, []Key) []Result) []Result {
	ctx, cancel := context.WithTimeout(ctx, p.o.Timeout)
	defer cancel()
	inTime := context.AfterFunc(ctx, p.o.Progress.Begin)
	defer func() {
		if !inTime() {
			p.o.Progress.End() // Begin may still be running: the order does not matter
		}
	}()
	return read(ctx, keys)
}

// health logs when Redis, or a key, becomes readable or unreadable.
type health struct {
	log    *slog.Logger
	polled bool
	down   bool
	faulty map[Key]bool // keys that are faulty themselves
}

func (h *health) update(results []Result) {
	var source error
	failed := 0
	faulty := map[Key]bool{}
	for _, r := range results {
		k := Key{Cluster: r.Cluster, Key: r.Key}
		var s sourceError
		switch {
		case errors.As(r.Err, &s):
			failed++
			if source == nil {
				source = r.Err
			}
			faulty[k] = h.faulty[k] // nothing new is known of the key
		case r.Err != nil:
			faulty[k] = true
			h.noteFault(k, r.Err)
		case h.faulty[k]:
			h.log.Info("in-flight key is valid again", "cluster", k.Cluster, "key", k.Key)
		}
	}
	h.faulty = faulty
	h.noteSource(failed, len(results), source)
}

func (h *health) noteFault(k Key, err error) {
	level := slog.LevelWarn
	if h.faulty[k] {
		level = slog.LevelDebug
	}
	h.log.Log(context.Background(), level, "in-flight key is faulty", "cluster", k.Cluster, "key", k.Key, "error", err)
}

func (h *health) noteSource(failed, keys int, err error) {
	switch {
	case err != nil && !h.down:
		h.log.Warn("in-flight counts cannot be read", "failed", failed, "keys", keys, "error", err)
	case err != nil:
		h.log.Debug("in-flight counts still cannot be read", "failed", failed, "keys", keys, "error", err)
	case h.down || !h.polled:
		h.log.Info("in-flight counts are being read", "keys", keys)
	}
	h.down, h.polled = err != nil, true
}

// libraryLog receives the log lines of the Redis library.
type libraryLog struct{ log *slog.Logger }

func (l libraryLog) Printf(ctx context.Context, format string, v ...any) {
	if l.log.Enabled(ctx, slog.LevelDebug) {
		l.log.DebugContext(ctx, "redis library", "message", fmt.Sprintf(format, v...))
	}
}
