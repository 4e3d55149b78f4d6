package replicas

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"steelyard/e2e/rig/proc"
	"steelyard/e2e/rig/proc/proctest"
	"steelyard/e2e/rig/testbed"
	"steelyard/internal/api"
)

// redisDo runs a command on one server, as a client that follows no redirection.
func redisDo(t *testing.T, address string, args ...any) (any, error) {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: address, MaxRetries: -1, DialerRetries: 1})
	defer client.Close()
	return client.Do(t.Context(), args...).Result()
}

// redisHas wants the answer to a command to have all these texts.
func redisHas(t *testing.T, address string, command []any, texts ...string) error {
	t.Helper()
	answer, err := redisDo(t, address, command...)
	for _, text := range texts {
		if err == nil && !strings.Contains(fmt.Sprint(answer), text) {
			err = fmt.Errorf("%s: %v has no %q: %v", address, command, text, answer)
		}
	}
	return err
}

// A redisCluster is the smallest Redis Cluster that survives a primary: three primaries, of which two can elect, and a
// replica of the one that holds the key.
type redisCluster struct {
	t       *testing.T
	nodes   []*proc.Redis // the replica comes last
	primary int           // of the key
}

// startRedisCluster runs a Redis Cluster that gives a node up after a second of silence.
func startRedisCluster(t *testing.T, f *testbed.Fleet) *redisCluster {
	t.Helper()
	const primaries, slots = 3, 16384
	c := &redisCluster{t: t}
	buses, err := proc.FreeAddresses(primaries + 1)
	if err != nil {
		t.Fatal(err)
	}
	for i := range primaries + 1 {
		config := proc.RedisConfig{Name: fmt.Sprint("redis-", i), Dir: proctest.Dir(t), Args: []string{
			"--cluster-enabled", "yes", "--cluster-port", portOf(buses[i]), "--cluster-node-timeout", "1000",
			"--repl-diskless-sync-delay", "0",
		}}
		c.nodes = append(c.nodes, proctest.Redis(t, config))
		if i < primaries {
			c.do(i, "CLUSTER", "ADDSLOTSRANGE", i*slots/primaries, (i+1)*slots/primaries-1)
		}
	}
	for i, n := range c.nodes[1:] {
		c.do(0, "CLUSTER", "MEET", "127.0.0.1", portOf(n.Address()), portOf(buses[i+1]))
	}
	f.Eventually("all nodes know each other", func() error {
		return c.everywhere([]any{"CLUSTER", "INFO"}, "cluster_state:ok",
			fmt.Sprint("cluster_known_nodes:", primaries+1))
	})
	for i := range primaries {
		if c.serves(i) == nil {
			c.primary = i
		}
	}
	c.do(primaries, "CLUSTER", "REPLICATE", c.do(c.primary, "CLUSTER", "MYID"))
	f.Eventually("the replica has its primary", func() error {
		err := redisHas(t, c.nodes[primaries].Address(), []any{"INFO", "replication"}, "master_link_status:up")
		// The others have to know of the replica, or it would not be elected.
		return errors.Join(err, c.everywhere([]any{"CLUSTER", "NODES"}, "slave"))
	})
	return c
}

func portOf(address string) string {
	_, port, _ := net.SplitHostPort(address)
	return port
}

func (c *redisCluster) do(node int, args ...any) any {
	c.t.Helper()
	answer, err := redisDo(c.t, c.nodes[node].Address(), args...)
	if err != nil {
		c.t.Fatalf("redis-%d: %v: %v", node, args, err)
	}
	return answer
}

// everywhere wants the answer of every node to have these texts.
func (c *redisCluster) everywhere(command []any, texts ...string) (err error) {
	c.t.Helper()
	for _, n := range c.nodes {
		err = errors.Join(err, redisHas(c.t, n.Address(), command, texts...))
	}
	return err
}

// serves wants a node to be the primary of the key: another one answers MOVED or CLUSTERDOWN.
func (c *redisCluster) serves(node int) error {
	_, err := redisDo(c.t, c.nodes[node].Address(), "EXISTS", testbed.CountsKey)
	return err
}

// inFlightIs wants a server to have so many requests in flight by Redis.
func (f *fleet) inFlightIs(address string, want float64) error {
	e, err := f.Endpoint(address)
	if err != nil {
		return err
	}
	if in := e.Input("in_flight"); e.InFlightSource != "redis" || in.State != "fresh" || in.Value.Or(-1) != want {
		return fmt.Errorf("in flight: %v (%s, from %q), want %v from Redis", in.Value, in.State, e.InFlightSource, want)
	}
	return nil
}

// TestCountsComeBackWithinTwoSecondsOfARedisClustersNewPrimary: the Redis library by itself asks for the new layout
// once a minute, because a dead primary redirects no client.
func TestCountsComeBackWithinTwoSecondsOfARedisClustersNewPrimary(t *testing.T) {
	pool := testbed.Pool(t, 2)
	store := startRedisCluster(t, &testbed.Fleet{T: t})
	counted := pool[0].Address()
	count := func(node int, n float64) {
		testbed.SetCounts(t, store.nodes[node].Address(), map[string]float64{counted: n})
	}
	count(store.primary, 4)
	addresses := make([]string, len(store.nodes))
	for i, n := range store.nodes {
		addresses[i] = fmt.Sprintf("%q", n.Address())
	}
	f := start(t, testbed.Plan{
		Servers: pool, Cluster: testbed.CountsOnly, Bootstrap: testbed.Silent,
		Top: fmt.Sprintf("redis: {mode: cluster, addresses: [%s]}", strings.Join(addresses, ", ")),
	})
	f.Eventually("the counts are read", func() error { return f.inFlightIs(counted, 4) })

	if err := store.nodes[store.primary].Kill(); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	f.Eventually("Redis is not shown as ok", func() error {
		s, err := f.Source("redis")
		if err == nil && (s.State == api.SourceOK || s.LastError == "") {
			err = fmt.Errorf("it is %s", s.State)
		}
		return err
	})
	t.Logf("not ok %v after the death of the primary", time.Since(killed))
	replica := len(store.nodes) - 1
	f.Eventually("the replica is the primary", func() error { return store.serves(replica) })
	elected := time.Now()
	count(replica, 9)
	f.Eventually("the new counts are read", func() error {
		return errors.Join(f.inFlightIs(counted, 9), f.SourceIs("redis", api.SourceOK))
	})
	away := time.Since(elected)
	t.Logf("new primary after %v, counts %v later", elected.Sub(killed), away)
	if away > 2*time.Second {
		t.Errorf("the counts were back %v after there was a new primary, want at most 2 s", away)
	}
}

// TestAReplicaThatIsCutOffFromItsPrimaryIsNotOK: it answers, with the counts of before.
func TestAReplicaThatIsCutOffFromItsPrimaryIsNotOK(t *testing.T) {
	t.Parallel()
	pool := testbed.Pool(t, 2)
	primary := proctest.Redis(t, proc.RedisConfig{Name: "primary", Args: []string{
		"--repl-ping-replica-period", "1", "--repl-diskless-sync-delay", "0",
	}})
	counted := pool[0].Address()
	testbed.SetCounts(t, primary.Address(), map[string]float64{counted: 4})
	// A cut that closes no connection: the replica notices it after a timeout, which is a minute by default.
	replica := proctest.Redis(t, proc.RedisConfig{Name: "replica", Args: []string{
		"--replicaof", "127.0.0.1 " + portOf(primary.Address()), "--repl-timeout", "2",
	}})
	f := start(t, testbed.Plan{Servers: pool, Cluster: testbed.CountsOnly, Top: testbed.RedisSection(replica),
		Bootstrap: testbed.Silent})
	f.Eventually("the counts are read", func() error { return f.inFlightIs(counted, 4) })

	if err := primary.Pause(); err != nil {
		t.Fatal(err)
	}
	f.Eventually("Redis is down, and its source has the reason", func() error {
		s, err := f.Source("redis")
		if err == nil && (s.State != api.SourceDown ||
			!strings.Contains(s.LastError, "its primary "+primary.Address())) {
			err = fmt.Errorf("it is %s: %s", s.State, s.LastError)
		}
		return err
	})
	n, err := redisDo(t, replica.Address(), "ZSCORE", testbed.CountsKey, counted)
	if err != nil || fmt.Sprint(n) != "4" {
		t.Errorf("the replica answers %v, %v: it was to go on answering", n, err)
	}
	if err := primary.Resume(); err != nil {
		t.Fatal(err)
	}
	testbed.SetCounts(t, primary.Address(), map[string]float64{counted: 9})
	f.Eventually("the counts are read again", func() error {
		return errors.Join(f.inFlightIs(counted, 9), f.SourceIs("redis", api.SourceOK))
	})
}
