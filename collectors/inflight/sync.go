package inflight

import (
	"context"
	_ "embed"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"steelyard/internal/loops"
)

//go:embed sync.lua
var syncScript string

// Times of the members that are synchronised.
const (
	syncEvery    = time.Second      // without a change of the endpoints
	listLasts    = 5 * time.Second  // after a replica last wrote it
	unknownGrace = 10 * time.Second // for a member that is on no list
	goneKept     = time.Minute      // that a member was removed
)

// members keeps the sets of some keys equal to the endpoints of their clusters.
type members struct {
	replica string
	script  *redis.Script
	changed loops.Signal // wanted has

	mu     sync.Mutex
	wanted map[Key][]string
	errs   map[Key]error // of the latest attempt
}

func newMembers(replica string) *members {
	return &members{
		replica: replica, script: redis.NewScript(syncScript), changed: loops.NewSignal(),
		wanted: make(map[Key][]string), errs: make(map[Key]error),
	}
}

// set replaces the sets: see SetMembers.
func (m *members) set(wanted map[Key][]string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	wanted = maps.Clone(wanted)
	maps.DeleteFunc(wanted, func(k Key, list []string) bool {
		_, had := m.wanted[k]
		return len(list) == 0 && !had
	})
	if maps.EqualFunc(m.wanted, wanted, slices.Equal) {
		return
	}
	m.wanted = wanted
	maps.DeleteFunc(m.errs, func(k Key, _ error) bool { _, ok := wanted[k]; return !ok })
	m.changed.Set()
}

// run synchronises the sets, and has the adder withdraw what it adds no longer, until ctx is done.
func (m *members) run(ctx context.Context, a *adder, client redis.UniversalClient, log *slog.Logger) {
	tick := time.NewTicker(syncEvery)
	defer tick.Stop()
	for {
		m.mu.Lock()
		wanted := m.wanted // replaced as a whole
		m.mu.Unlock()
		for k, list := range wanted {
			added, removed, err := m.sync(ctx, client, k.Key, list)
			if ctx.Err() != nil {
				return
			}
			m.mu.Lock()
			m.errs[k] = err
			m.mu.Unlock()
			if added+removed > 0 {
				log.Info("members of an in-flight key are synchronised", "cluster", k.Cluster, "key", k.Key,
					"added", added, "removed", removed)
			}
		}
		a.withdraw(ctx, client, false)
		select {
		case <-ctx.Done():
			return
		case <-m.changed:
		case <-tick.C:
		}
	}
}

// sync makes one set equal to a list, as far as the other replicas agree.
func (m *members) sync(ctx context.Context, client redis.UniversalClient, key string, list []string) (
	added, removed int64, err error) {
	if len(list) > MaxMembers {
		return 0, 0, fmt.Errorf("in-flight key %q: %d endpoints are more than %d members, so they are not synchronised",
			key, len(list), MaxMembers)
	}
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	args := make([]any, 0, 4+len(list))
	args = append(args, m.replica, listLasts.Milliseconds(), unknownGrace.Milliseconds(), goneKept.Milliseconds())
	for _, member := range list {
		args = append(args, member)
	}
	counts, err := m.script.Run(ctx, client, []string{key, companion(key)}, args...).Int64Slice()
	switch {
	case mayNot(err):
		return 0, 0, fmt.Errorf("in-flight key %q: its members cannot be synchronised, because the ACL user may not "+
			"write them; grant %s, and the patterns of the key and of %q: %w", key, syncRights, companion(key), err)
	case err != nil:
		return 0, 0, fmt.Errorf("in-flight key %q: its members cannot be synchronised: %w", key, err)
	case len(counts) != 2:
		return 0, 0, fmt.Errorf("in-flight key %q: the script that synchronises its members returned %d numbers, "+
			"want 2", key, len(counts))
	}
	return counts[0], counts[1], nil
}

// syncRights are the rights that the script needs.
const syncRights = "+evalsha +eval +time +hgetall +hset +hdel +zrange +zscore +zadd +zrem +pexpire"

// fault adds to the result of a key why its members are not synchronised.
func (m *members) fault(r *Result) {
	m.mu.Lock()
	err := m.errs[Key{r.Cluster, r.Key}]
	m.mu.Unlock()
	if err != nil && r.Err == nil {
		r.Err = err
	}
}
