package inflight

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed add.lua
var addScript string

// countsLast is how long the counts of a replica stay in the scores after it last wrote them: where it writes them less
// often than that, for two intervals.
const countsLast = 5 * time.Second

// An adder brings what this process counts into the scores of some sets.
type adder struct {
	replica string
	own     func(cluster string) map[string]int64
	lasts   time.Duration
	script  *redis.Script

	mu     sync.Mutex
	adding map[Key]bool // replaced as a whole
	asking map[Key]bool // of the poll that is under way
	added  map[Key]bool // that may have counts of this process
}

// newAdder makes the adder of a process that polls once per interval.
func newAdder(replica string, interval time.Duration, own func(cluster string) map[string]int64) *adder {
	return &adder{replica: replica, own: own, lasts: max(countsLast, 2*interval), script: redis.NewScript(addScript),
		added: make(map[Key]bool)}
}

// set replaces the keys: see SetAdding.
func (a *adder) set(keys map[Key]bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.adding = maps.Clone(keys)
}

// adds returns the keys that get counts of a poll that begins, and notes that they may have some.
func (a *adder) adds() map[Key]bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.Copy(a.added, a.adding)
	a.asking = a.adding
	return a.adding
}

// asked ends the poll.
func (a *adder) asked() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asking = nil
}

// withdraw takes the counts of this process out of the scores of keys: of those that get none any more, or of all. A
// poll that is under way may still add to keys that it began with, so these have to wait for its end.
func (a *adder) withdraw(ctx context.Context, client redis.UniversalClient, all bool) {
	a.mu.Lock()
	keys := maps.Clone(a.added)
	maps.DeleteFunc(keys, func(k Key, _ bool) bool { return !all && (a.adding[k] || a.asking[k]) })
	a.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	for k := range keys {
		if a.script.Run(ctx, client, a.keys(k), a.args(nil)...).Err() != nil {
			continue // until Redis answers; a poll shows why it does not
		}
		a.mu.Lock()
		if !a.adding[k] {
			delete(a.added, k)
		}
		a.mu.Unlock()
	}
}

// ask puts the exchange for a key into a pipeline.
func (a *adder) ask(ctx context.Context, pipe redis.Pipeliner, k Key) *redis.Cmd {
	return a.script.EvalSha(ctx, pipe, a.keys(k), a.args(a.own(k.Cluster))...)
}

// A cannotAdd explains what is missing, or in the way, for the script.
type cannotAdd struct{ error }

// addRights are the rights that the script needs.
const addRights = "+evalsha +eval +time +hgetall +hset +hdel +zrange +zcard +zadd"

// askAgain sends the script to a server that does not have it, because it was started since, with each exchange that
// failed for that.
func (a *adder) askAgain(ctx context.Context, client redis.UniversalClient, keys []Key, cmds []redis.Cmder) {
	_, _ = client.Pipelined(ctx, func(pipe redis.Pipeliner) error { // each command has its error
		for i, k := range keys {
			if lacksScript(cmds[i]) {
				cmds[i] = a.script.Eval(ctx, pipe, a.keys(k), a.args(a.own(k.Cluster))...)
			}
		}
		return nil
	})
}

func lacksScript(cmd redis.Cmder) bool { return redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") }

// others returns what others count for each member, by the answer to an exchange.
func (a *adder) others(k Key, cmd *redis.Cmd) ([]redis.Z, error) {
	texts, err := cmd.StringSlice()
	switch {
	case mayNot(err):
		return nil, cannotAdd{fmt.Errorf("counts cannot be added to it, because the ACL user may not write them; "+
			"grant %s, and the patterns of the key and of %q: %w", addRights, a.keys(k)[1], err)}
	case redis.HasErrorPrefix(err, "NOHASH"):
		return nil, cannotAdd{fmt.Errorf("counts cannot be added to it, because %q next to it is not a hash; delete "+
			"that: %w", a.keys(k)[1], err)}
	case err != nil:
		return nil, err
	}
	out := make([]redis.Z, 0, len(texts)/2)
	for i := 1; i < len(texts); i += 2 {
		score, err := strconv.ParseFloat(texts[i], 64)
		if err != nil {
			return nil, fmt.Errorf("the count of %s that the script returned: %w", quote(texts[i-1]), err)
		}
		out = append(out, redis.Z{Member: texts[i-1], Score: score})
	}
	return out, nil
}

func (a *adder) keys(k Key) []string { return []string{k.Key, companion(k.Key) + ":counts"} }

func (a *adder) args(own map[string]int64) []any {
	text := []byte("{}")
	if len(own) > 0 {
		text, _ = json.Marshal(own) // of texts and integers
	}
	return []any{a.replica, a.lasts.Milliseconds(), MaxMembers, text}
}
