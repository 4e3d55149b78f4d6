package inflight

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// A redisCluster is a Redis Cluster of three primaries and three replicas: nodes[i] is
// the primary of a third of the slots, nodes[i+3] its replica.
type redisCluster struct {
	t     testing.TB
	nodes []*process
}

// startCluster runs a Redis Cluster that gives a node up after a second of silence.
func startCluster(t testing.TB) *redisCluster {
	t.Helper()
	const primaries = 3
	c := &redisCluster{t: t}
	var buses []int
	for range 2 * primaries {
		port, bus := freePort(t), freePort(t)
		c.nodes = append(c.nodes, startRedis(t, port, plain(port, "--cluster-enabled", "yes",
			"--cluster-port", strconv.Itoa(bus), "--cluster-node-timeout", "1000")...))
		buses = append(buses, bus)
	}
	for i := range primaries {
		c.do(i, "CLUSTER", "ADDSLOTSRANGE", i*16384/primaries, (i+1)*16384/primaries-1)
	}
	for i, n := range c.nodes[1:] {
		host, port, _ := net.SplitHostPort(n.address)
		c.do(0, "CLUSTER", "MEET", host, port, buses[i+1])
	}
	eventually(t, "all nodes know one another", func() bool {
		for i := range c.nodes {
			if !strings.Contains(c.do(i, "CLUSTER", "INFO").(string),
				fmt.Sprintf("cluster_known_nodes:%d", len(c.nodes))) {
				return false
			}
		}
		return true
	})
	for i := range primaries {
		c.do(primaries+i, "CLUSTER", "REPLICATE", c.do(i, "CLUSTER", "MYID"))
	}
	eventually(t, "every node has the cluster in order and every replica its primary", func() bool {
		for i := range c.nodes {
			if !strings.Contains(c.do(i, "CLUSTER", "INFO").(string), "cluster_state:ok") {
				return false
			}
		}
		for i := range primaries {
			if !strings.Contains(c.do(primaries+i, "INFO", "replication").(string), "master_link_status:up") {
				return false
			}
		}
		return true
	})
	return c
}

func (c *redisCluster) do(node int, args ...any) any {
	c.t.Helper()
	return do(c.t, &redis.Options{Addr: c.nodes[node].address}, args...)
}

// primaryOf returns the index of the node that serves key by its own answer.
func (c *redisCluster) primaryOf(key string) (int, bool) {
	for i, n := range c.nodes {
		client := redis.NewClient(&redis.Options{Addr: n.address, MaxRetries: -1, DialerRetries: 1,
			ReadTimeout: 50 * time.Millisecond}) // of one that is stopped
		err := client.Exists(c.t.Context(), key).Err()
		_ = client.Close()
		if err == nil { // every other one answers MOVED or CLUSTERDOWN, or hangs, or is dead
			return i, true
		}
	}
	return 0, false
}

// The library asks for the cluster's layout again when a node answers MOVED, which a dead one never does, and one that
// is stopped does not even refuse connections.
func TestCountsComeBackWithTheNewPrimaryOfARedisCluster(t *testing.T) {
	for name, end := range map[string]func(*process){
		"killed":  (*process).kill,
		"stopped": func(p *process) { _ = p.cmd.Process.Signal(syscall.SIGSTOP) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := startCluster(t)
			old, ok := c.primaryOf(llama.Key)
			if !ok {
				t.Fatal("no node serves the key")
			}
			c.do(old, "ZADD", llama.Key, 4, "10.0.0.1:8000")
			eventually(t, "the replica has the counts", func() bool {
				return strings.Contains(c.do(old+3, "INFO", "keyspace").(string), "keys=1")
			})
			o := Options{Addresses: []string{c.nodes[0].address, c.nodes[1].address, c.nodes[2].address},
				Cluster: true, Interval: 50 * time.Millisecond, Timeout: 40 * time.Millisecond}
			r := start(t, o, llama)
			r.until("read", read)

			end(c.nodes[old])
			ended := time.Now()
			r.until("failed", failed)
			eventually(t, "another node serves the key", func() bool {
				at, ok := c.primaryOf(llama.Key)
				return ok && at != old
			})
			elected := time.Now()
			r.until("read from the new primary", read)
			away := time.Since(elected)
			t.Logf("new primary after %v, counts %v later", elected.Sub(ended).Round(time.Millisecond),
				away.Round(time.Millisecond))
			if away > time.Second {
				t.Errorf("counts were back %v after there was a new primary, want at most 1 s",
					away.Round(time.Millisecond))
			}
		})
	}
}
