package testbed

import (
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"steelyard/e2e/rig/proc"
)

// CountsKey is the sorted set with the counts of the tests' cluster.
const CountsKey = "inflight:" + Cluster

// CountsOnly is the part of a cluster's configuration that follows nothing but the counts in Redis.
const CountsOnly = "scrape: {disabled: true}\ninflight: {redis_key: \"inflight:{cluster}\"}\n"

// RedisSection is the section of the configuration that names a Redis.
func RedisSection(r *proc.Redis) string {
	return fmt.Sprintf("redis: {addresses: [%q]}", r.Address())
}

// SetCounts writes in-flight counts as a picker would.
func SetCounts(t *testing.T, address string, counts map[string]float64) {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: address})
	defer client.Close()
	for member, n := range counts {
		if err := client.ZAdd(t.Context(), "inflight:"+Cluster, redis.Z{Member: member, Score: n}).Err(); err != nil {
			t.Fatal(err)
		}
	}
}
