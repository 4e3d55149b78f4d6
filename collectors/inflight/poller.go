package inflight

import (
	"context"
	"log/slog"
	"time"
)

// A Key is one sorted set to read and the cluster whose counts it holds.
type Key struct {
	Cluster string
	Key     string
}

// A Result is what one poll read of one key.
type Result struct {
	Cluster  string
	Key      string
	At       time.Time
	Requests map[string]float64
	Exists   bool
	Err      error
}

// A Poller reads all keys from Redis, once per interval.
type Poller struct{}

// New checks the options.
func New(o Options, sink func([]Result), log *slog.Logger) (*Poller, error) { return &Poller{}, nil }

// SetKeys replaces the keys to read.
func (p *Poller) SetKeys(keys []Key) {}

// Run polls until ctx is done.
func (p *Poller) Run(ctx context.Context) error { <-ctx.Done(); return nil }
