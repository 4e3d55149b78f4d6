package replicas

import (
	"context"
	_ "embed"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"steelyard/internal/lease"
)

var (
	//go:embed hold.lua
	holdScript string
	//go:embed release.lua
	releaseScript string

	hold, release = redis.NewScript(holdScript), redis.NewScript(releaseScript)
)

// A Client is a connection to Redis.
type Client struct {
	redis.UniversalClient
	Stop func() // closes it, and waits for what it dialled
}

// A Lease keeps the lease on the queue in Redis, under PREFIX:{queue}:owner. Its epoch is in PREFIX:{queue}:epoch, in
// the same slot of a Redis Cluster. It is a lease.Store.
type Lease struct {
	connect func() Client
	keys    []string
	client  *Client // nil before the first question
}

// NewLease makes a lease. The caller closes it.
func NewLease(connect func() Client, prefix string) *Lease {
	key := prefix + ":{queue}:"
	return &Lease{connect: connect, keys: []string{key + "owner", key + "epoch"}}
}

// Close closes the connection to Redis.
func (l *Lease) Close() {
	if l.client != nil {
		l.client.Stop()
	}
}

// Hold implements lease.Store.
func (l *Lease) Hold(ctx context.Context, self lease.Record, floor uint64) (lease.Record, error) {
	if l.client == nil {
		c := l.connect()
		l.client = &c
	}
	held, err := hold.Run(ctx, l.client, l.keys, self.Text(), lease.TTL.Milliseconds(), floor).Text()
	if err != nil {
		return lease.Record{}, fmt.Errorf("renewing the lease %q in Redis: %w", l.keys[0], err)
	}
	return ownerOf(held)
}

// Release implements lease.Store.
func (l *Lease) Release(ctx context.Context, self lease.Record) error {
	if l.client == nil {
		return nil
	}
	return release.Run(ctx, l.client, l.keys[:1], self.Text()).Err()
}

// ownerOf reads an epoch, a space, and the text of an owner.
func ownerOf(held string) (lease.Record, error) {
	number, text, _ := strings.Cut(held, " ")
	epoch, err := strconv.ParseUint(number, 10, 64)
	if err != nil {
		return lease.Record{}, fmt.Errorf("reading the lease in Redis: %.40q has no epoch", held)
	}
	return lease.Parse(text, epoch)
}
