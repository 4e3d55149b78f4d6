package replicas

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"steelyard/collectors/replicas/merge"
	"steelyard/e2e/rig/output"
	"steelyard/e2e/rig/proc"
	"steelyard/e2e/rig/proc/proctest"
	"steelyard/internal/api"
	"steelyard/weighting/flight"
)

// The tests in this file are with a real Redis.

const (
	llama = "llama"
	x, y  = "10.0.0.1:8000", "10.0.0.2:8000"
)

// A node is a replica whose own counts the test sets.
type node struct {
	t    *testing.T
	link *Link
	stop func()

	mu  sync.Mutex
	own map[string]flight.Part
}

func startNode(t *testing.T, address, name string) *node {
	t.Helper()
	return startNodeAs(t, address, name, "", slog.DiscardHandler)
}

// startNodeAs starts one with a user of Redis.
func startNodeAs(t *testing.T, address, name, user string, log slog.Handler) *node {
	t.Helper()
	n := &node{t: t, own: map[string]flight.Part{x: {Address: x}, y: {Address: y}}}
	n.link = New(merge.ID("run of "+name), Options{
		Connect: func() Client {
			c := redis.NewClient(&redis.Options{Addr: address, Username: user, Password: user, MaxRetries: -1,
				DialerRetries: 1, ContextTimeoutEnabled: true})
			return Client{UniversalClient: c, Stop: func() { _ = c.Close() }}
		},
		Prefix: "test", Name: name, Log: slog.New(log),
		Own: n.counts, Changed: func([]string) {},
	})
	n.link.SetMembers(map[string][]string{llama: {x, y}})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = n.link.Run(ctx)
	}()
	n.stop = sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(n.stop)
	return n
}

func (n *node) counts(_ string, into []flight.Part) (flight.Watchers, []flight.Part) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return flight.Watchers{Watching: 1, Events: 1, Reconciled: 1}, append(into[:0], n.own[x], n.own[y])
}

// request counts requests that began at an endpoint, and are in flight.
func (n *node) request(address string, count int64) {
	n.mu.Lock()
	p := n.own[address]
	p.InFlight += count
	p.Sums.Issued += uint64(count)
	n.own[address] = p
	n.mu.Unlock()
	n.link.CountsChanged(llama)
}

// inFlight returns what the node merges for each endpoint.
func (n *node) inFlight() map[string]float64 {
	head, parts := n.counts(llama, nil)
	counts := []flight.Counts{{Address: x}, {Address: y}}
	n.link.Merge(time.Now(), llama, head, parts, counts, time.Time{})
	return map[string]float64{x: counts[0].InFlight.Value, y: counts[1].InFlight.Value}
}

func (n *node) until(what string, holds func() error) {
	n.t.Helper()
	var err error
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if err = holds(); err == nil {
			return
		}
	}
	n.t.Fatalf("never: %s: %v", what, err)
}

func (n *node) untilInFlight(want map[string]float64) {
	n.t.Helper()
	n.until("the counts of all", func() error {
		if got := n.inFlight(); !maps.Equal(got, want) {
			return fmt.Errorf("in flight %v, want %v", got, want)
		}
		return nil
	})
}

// other wants one other replica in a state.
func (n *node) other(state api.ReplicaState) func() error {
	return func() error {
		s := n.link.Status()
		if !s.Connected || len(s.Others) != 1 || s.Others[0].State != state {
			return fmt.Errorf("connected %t, others %+v", s.Connected, s.Others)
		}
		return nil
	}
}

func startStore(t *testing.T) *proc.Redis { return proctest.Redis(t, proc.RedisConfig{}) }

func TestCountsReachTheOther(t *testing.T) {
	store := startStore(t)
	a, b := startNode(t, store.Address(), "a"), startNode(t, store.Address(), "b")
	a.until("the other is live", a.other(api.ReplicaLive))
	b.until("the other is live", b.other(api.ReplicaLive))
	a.request(x, 3)
	b.request(x, 1)
	b.request(y, 2)
	want := map[string]float64{x: 4, y: 2}
	a.untilInFlight(want)
	b.untilInFlight(want)

	a.stop()
	b.until("one that stops is gone", b.other(api.ReplicaGone))
	if o := b.link.Status().Others[0]; o.Since.Sub(o.LastMessage.Time) > merge.Silence/2 {
		t.Errorf("gone %v after its last message, though it took leave", o.Since.Sub(o.LastMessage.Time))
	}
	if n, err := redisOf(t, store).HLen(t.Context(), "test:replicas:state").Result(); err != nil || n > 1 {
		t.Errorf("%d states are left, %v", n, err)
	}
}

func redisOf(t *testing.T, store *proc.Redis) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: store.Address()})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// The hash has the state of one that is silent at the moment.
func TestOneThatJoinsLateBeginsWithTheStoredStates(t *testing.T) {
	store := startStore(t)
	a := startNode(t, store.Address(), "a")
	a.request(x, 5)
	client := redisOf(t, store)
	a.until("its state is stored", func() error {
		state, err := client.HGet(t.Context(), "test:replicas:state", "run of a").Result()
		if err != nil {
			return err
		}
		_, blob, _ := cut(state)
		m, err := decode([]byte(blob), maxState)
		if err == nil && m.Clusters[0].Parts[0].InFlight != 5 {
			err = fmt.Errorf("%+v", m)
		}
		return err
	})
	if left := client.PTTL(t.Context(), "test:replicas:state").Val(); left <= 0 || left > 2*valid {
		t.Errorf("the hash expires in %v", left)
	}
	// Nothing comes over the channel of this one.
	late := New("late", Options{Prefix: "test", Log: slog.New(slog.DiscardHandler), Changed: func([]string) {}})
	late.SetMembers(map[string][]string{llama: {x, y}})
	states, err := late.loadStates(t.Context(), Client{UniversalClient: client})
	if err != nil {
		t.Fatal(err)
	}
	late.echoed(time.Now(), states)
	counts := []flight.Counts{{Address: x}, {Address: y}}
	late.Merge(time.Now(), llama, flight.Watchers{}, []flight.Part{{Address: x}, {Address: y}}, counts, time.Time{})
	if got := counts[0].InFlight.Value; got != 5 {
		t.Errorf("%v in flight at once, want 5", got)
	}
}

func cut(state string) (expiry, blob string, ok bool) {
	for i := range state {
		if state[i] == ' ' {
			return state[:i], state[i+1:], true
		}
	}
	return "", "", false
}

func TestStatesThatAreOldAreRemovedByTheClockOfRedis(t *testing.T) {
	client := redisOf(t, startStore(t))
	keys := []string{"h"}
	// The other way round the whole hash would expire, as all replicas write for equally long.
	for _, s := range []struct {
		id string
		ms int64
	}{{"old", 1}, {"new", 60_000}} {
		if err := store.Run(t.Context(), client, keys, s.id, s.ms, "state of "+s.id).Err(); err != nil {
			t.Fatal(err)
		}
	}
	n := &node{t: t}
	n.until("only the new one is left", func() error {
		got, err := load.Run(t.Context(), client, keys).StringSlice()
		left := client.HLen(t.Context(), "h").Val()
		if err == nil && (len(got) != 1 || got[0] != "state of new" || left != 1) {
			err = fmt.Errorf("%v of %d", got, left)
		}
		return err
	})
}

func TestMessagesOfAnotherVersionAndNonsenseAreIgnoredAndCounted(t *testing.T) {
	store := startStore(t)
	a := startNode(t, store.Address(), "a")
	a.until("it is connected", func() error {
		if s := a.link.Status(); !s.Connected {
			return errors.New(s.Error)
		}
		return nil
	})
	client := redisOf(t, store)
	foreign := encode(&merge.Message{From: "b", Seq: 1})
	foreign[len(magic)]++
	for _, m := range [][]byte{foreign, foreign, []byte("hello")} {
		if err := client.Publish(t.Context(), "test:replicas", m).Err(); err != nil {
			t.Fatal(err)
		}
	}
	a.until("they are counted", func() error {
		if c := a.link.Status().Messages; c.Foreign != 2 || c.Invalid != 1 || c.LastForeign.IsZero() {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
	if others := a.link.Status().Others; len(others) != 0 {
		t.Errorf("others: %+v", others)
	}
}

// Each message has what changed in 5 ms: requests that begin all the time are not a message each.
func TestChangesAreGathered(t *testing.T) {
	store := startStore(t)
	a, b := startNode(t, store.Address(), "a"), startNode(t, store.Address(), "b")
	b.until("the other is live", b.other(api.ReplicaLive))
	before, began := b.link.Status().Messages.Received, time.Now()
	const requests = 2000
	for range requests {
		a.request(x, 1)
		time.Sleep(100 * time.Microsecond) // what a request takes to come, not what is waited for
	}
	b.untilInFlight(map[string]float64{x: requests, y: 0})
	received, most := b.link.Status().Messages.Received-before, uint64(time.Since(began)/gather)+2
	if received > most {
		t.Errorf("%d messages for %d requests in %v, want at most %d", received, requests, time.Since(began), most)
	}
}

func TestRedisKilledAndBack(t *testing.T) {
	store := startStore(t)
	a, b := startNode(t, store.Address(), "a"), startNode(t, store.Address(), "b")
	a.request(x, 2)
	b.untilInFlight(map[string]float64{x: 2, y: 0})
	if err := store.Kill(); err != nil {
		t.Fatal(err)
	}
	b.until("the way is cut, and why", func() error {
		s := b.link.Status()
		if s.Connected || s.Error == "" || s.Others[0].State != api.ReplicaUnreachable {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	proctest.Redis(t, proc.RedisConfig{Address: store.Address()})
	b.until("the other is live", b.other(api.ReplicaLive))
	b.untilInFlight(map[string]float64{x: 2, y: 0})
}

func TestAReplicaThatMayNotPublishIsCutAndSaysWhy(t *testing.T) {
	store := startStore(t)
	client := redisOf(t, store)
	acl := func(rule ...any) {
		if err := client.Do(t.Context(), append([]any{"ACL", "SETUSER", "mute"}, rule...)...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	acl("on", ">mute", "~test:*", "&test:*", "+subscribe", "+ping", "+evalsha", "+eval", "+time", "+hset", "+hgetall",
		"+hdel", "+pexpire") // all that the documents ask for, without +publish
	var log output.Buffer
	a := startNode(t, store.Address(), "a")
	mute := startNodeAs(t, store.Address(), "mute", "mute", slog.NewTextHandler(&log, nil))
	mute.until("it tried for several connections", func() error {
		s := mute.link.Status()
		if s.Connected || len(s.Others) > 0 {
			t.Fatalf("it counts as connected: %+v", s)
		}
		if s.Messages.Failed < 8 {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	if err := mute.link.Status().Error; !strings.Contains(err, "NOPERM") {
		t.Errorf("the error is %v", err)
	}
	if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "NOPERM") {
		t.Errorf("the log has\n%s", got)
	}
	if others := a.link.Status().Others; len(others) > 0 {
		t.Errorf("the other has heard of it: %+v", others)
	}
	acl("+publish")
	mute.until("the other is live", mute.other(api.ReplicaLive))
	a.until("the other is live", a.other(api.ReplicaLive))
}

// TestAReplicaOfRedisIsRefused: of two that are connected to a primary and to its replica, only one would hear of the
// other.
func TestAReplicaOfRedisIsRefused(t *testing.T) {
	store := startStore(t)
	_, port, _ := strings.Cut(store.Address(), ":")
	copied := proctest.Redis(t, proc.RedisConfig{Name: "copy", Args: []string{"--replicaof", "127.0.0.1 " + port}})
	wrong := startNode(t, copied.Address(), "wrong")
	wrong.until("it says why", func() error {
		if s := wrong.link.Status(); s.Connected || !strings.Contains(s.Error, "a replica of 127.0.0.1:"+port) {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	if err := redisOf(t, copied).Do(t.Context(), "REPLICAOF", "NO", "ONE").Err(); err != nil {
		t.Fatal(err)
	}
	wrong.until("a primary now, it is connected", func() error {
		if s := wrong.link.Status(); !s.Connected || s.Error != "" {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
}
