package inflight

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// A Hash is a Redis hash that keeps texts over a restart. It has its own connections, so that a poll of the counts
// never waits for it. Its methods take at most a second each.
//
// Beyond the rights of a Poller, the ACL user needs +hlen +hgetall +hset +hdel on the key.
type Hash struct {
	key    string
	client redis.UniversalClient
	stop   func()
}

// maxTexts bounds what is read of a hash: this process never writes more.
const maxTexts = 10_000

// NewHash reads the files that the options name; it does not connect. Close ends it.
func NewHash(o Options, key string) (*Hash, error) {
	connect, err := Connector(o)
	if err != nil {
		return nil, err
	}
	h := &Hash{key: key}
	h.client, h.stop = connect()
	return h, nil
}

// Close ends the connections.
func (h *Hash) Close() { h.stop() }

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
