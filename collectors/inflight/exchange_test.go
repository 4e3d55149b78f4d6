package inflight

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
)

// A slowRedis stands in for the network: it answers every pipeline after latency, with err.
type slowRedis struct {
	latency time.Duration
	err     error
	asked   [][]any // the commands, word by word
}

func (s *slowRedis) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(_ context.Context, cmds []redis.Cmder) error {
		time.Sleep(s.latency) // of the bubble's clock
		for _, c := range cmds {
			s.asked = append(s.asked, c.Args())
			c.SetErr(s.err)
		}
		return s.err
	}
}

func (s *slowRedis) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (s *slowRedis) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func TestCountsWereTrueInTheMiddleOfTheExchange(t *testing.T) {
	for name, failure := range map[string]error{"answered": nil, "failed": errors.New("reset")} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				slow := &slowRedis{latency: 60 * time.Millisecond, err: failure}
				start := time.Now()
				for _, r := range pollThrough(t, slow, Key{"a", "k"}, Key{"b", "l"}) {
					if got := r.At.Sub(start); got != 30*time.Millisecond || r.Took != slow.latency {
						t.Errorf("key %s: at %v, took %v; want 30ms of 60ms", r.Key, got, r.Took)
					}
					if !errors.Is(r.Err, failure) {
						t.Errorf("key %s: error %v, want %v", r.Key, r.Err, failure)
					}
				}
			})
		})
	}
}

// One member more than is allowed shows that there are too many; what else there is stays in Redis.
func TestNoMoreMembersAreAskedForThanAreUsed(t *testing.T) {
	slow := &slowRedis{}
	pollThrough(t, slow, Key{"a", "k"}, Key{"b", "l"})
	want := [][]any{
		{"zrange", "k", int64(0), int64(MaxMembers), "withscores"},
		{"zrange", "l", int64(0), int64(MaxMembers), "withscores"},
		{"role"},
	}
	if d := cmp.Diff(want, slow.asked); d != "" {
		t.Errorf("commands (-want +got):\n%s", d)
	}
}

// pollThrough reads keys once, from the stand-in.
func pollThrough(t *testing.T, s *slowRedis, keys ...Key) []Result {
	t.Helper()
	p := loopOf(t, nil)
	client := redis.NewUniversalClient(p.o.universal(p.dialer))
	defer p.dialer.close()
	defer client.Close()
	client.AddHook(s)
	return p.read(t.Context(), client, keys)
}
