package inflight

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/redis/go-redis/v9"
)

// A Hash is a Redis hash that keeps texts over a restart. It has its own connections, so that a poll of the counts
// never waits for it. Its methods take at most a second each.
//
// Beyond the rights of a Poller, the ACL user needs +hlen +hgetall +hset +hdel on the key.
type Hash struct {
	key    string
	dialer *dialer
	client redis.UniversalClient
}

// maxTexts bounds what is read of a hash: this process never writes more.
const maxTexts = 10_000

// NewHash checks the options as New does; it does not connect. Close ends it.
func NewHash(o Options, key string, log *slog.Logger) (*Hash, error) {
	p, err := New(o, nil, log)
	if err != nil {
		return nil, err
	}
	return &Hash{key: key, dialer: p.dialer, client: redis.NewUniversalClient(p.o.universal(p.dialer))}, nil
}

// Close ends the connections.
func (h *Hash) Close() {
	_ = h.client.Close() // before the dialer: what is dialled after that finds the pool closed
	h.dialer.close()
}

// Load returns all texts by name.
func (h *Hash) Load(ctx context.Context) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, background)
	defer cancel()
	n, err := h.client.HLen(ctx, h.key).Result()
	if err == nil && n > maxTexts {
		return nil, fmt.Errorf("the hash %s has %d fields, more than %d", h.key, n, maxTexts)
	}
	if err != nil {
		return nil, err
	}
	return h.client.HGetAll(ctx, h.key).Result()
}

// Save writes a text.
func (h *Hash) Save(ctx context.Context, name, text string) error {
	ctx, cancel := context.WithTimeout(ctx, background)
	defer cancel()
	return h.client.HSet(ctx, h.key, name, text).Err()
}

// Delete removes a text, if it is there.
func (h *Hash) Delete(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, background)
	defer cancel()
	return h.client.HDel(ctx, h.key, name).Err()
}
