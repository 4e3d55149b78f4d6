package modelsim

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// A Counter keeps in-flight counts in a Redis sorted set, one member for each
// address with the number of its requests in flight as the score: the layout
// that a sidecar or an external processor writes. It is an Observer.
//
// Changes are collected while a write is under way and go out together in the
// next one, so a slow Redis delays the counts and never a request. Scores do
// not go below zero: a count that was lost must not become a debt.
type Counter struct {
	client redis.UniversalClient
	key    string
	log    *slog.Logger

	mu      sync.Mutex
	changes map[string]int64 // not yet written, by member
	wake    chan struct{}    // capacity one: there are changes
}

// Pauses of a Counter.
const (
	counterTimeout = time.Second            // of one write
	counterRetry   = 100 * time.Millisecond // after a failed one
)

// NewCounter returns a counter that writes to key. Nothing is written until Run.
func NewCounter(client redis.UniversalClient, key string, log *slog.Logger) *Counter {
	return &Counter{
		client: client, key: key, log: log,
		changes: make(map[string]int64), wake: make(chan struct{}, 1),
	}
}

// Track announces addresses that have no requests yet. Without it a member
// appears with its first request.
func (c *Counter) Track(addresses ...string) {
	for _, a := range addresses {
		c.add(a, 0)
	}
}

// Begin counts a request in.
func (c *Counter) Begin(address string) { c.add(address, 1) }

// End counts a request out.
func (c *Counter) End(address string) { c.add(address, -1) }

func (c *Counter) add(address string, delta int64) {
	c.mu.Lock()
	c.changes[address] += delta
	c.mu.Unlock()
	c.poke()
}

func (c *Counter) poke() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Run writes changes until ctx is done, then those that are left, and returns
// nil. A failed write is repeated.
func (c *Counter) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			_ = c.flush(context.WithoutCancel(ctx))
			return nil
		case <-c.wake:
		}
		if err := c.flush(ctx); err != nil && ctx.Err() == nil {
			c.log.Debug("writing in-flight counts", "key", c.key, "error", err)
			pause(ctx, counterRetry)
			c.poke()
		}
	}
}

// flush writes all changes in one transaction, so that no reader sees a score
// between its decrement and its clamp.
func (c *Counter) flush(ctx context.Context) error {
	c.mu.Lock()
	batch := c.changes
	c.changes = make(map[string]int64, len(batch))
	c.mu.Unlock()
	if len(batch) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, counterTimeout)
	defer cancel()
	_, err := c.client.TxPipelined(ctx, func(p redis.Pipeliner) error {
		for member, delta := range batch {
			p.ZIncrBy(ctx, c.key, float64(delta), member)
			if delta < 0 {
				// XX GT: raise what is there to 0 if it is below.
				p.ZAddArgs(ctx, c.key, redis.ZAddArgs{XX: true, GT: true, Members: []redis.Z{{Member: member}}})
			}
		}
		return nil
	})
	if err != nil {
		c.restore(batch)
	}
	return err
}

func (c *Counter) restore(batch map[string]int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for member, delta := range batch {
		c.changes[member] += delta
	}
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
