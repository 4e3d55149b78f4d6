package replicas

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"steelyard/e2e/rig/leasetest"
	"steelyard/e2e/rig/proc"
	"steelyard/e2e/rig/proc/proctest"
	"steelyard/internal/lease"
)

// TestALeaseInRedisKeepsTheContract, with a real Redis.
func TestALeaseInRedisKeepsTheContract(t *testing.T) {
	address := proctest.Redis(t, proc.RedisConfig{}).Address()
	admin := redis.NewClient(&redis.Options{Addr: address})
	t.Cleanup(func() { _ = admin.Close() })
	leasetest.Contract(t, leasetest.Shelf{
		Store: func() lease.Store {
			l := NewLease(func() Client {
				c := redis.NewClient(&redis.Options{Addr: address, ContextTimeoutEnabled: true})
				return Client{UniversalClient: c, Stop: func() { _ = c.Close() }}
			}, "test")
			t.Cleanup(l.Close)
			return l
		},
		Lose: func() {
			if err := admin.FlushAll(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
		},
	})
}
