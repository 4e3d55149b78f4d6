package modelsim

import (
	"context"
	"log/slog"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// counting runs a counter on an embedded Redis, and ends it with the returned
// function.
func counting(t *testing.T) (*miniredis.Miniredis, *Counter, func()) {
	t.Helper()
	server := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1})
	c := NewCounter(client, "inflight:llama", slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- c.Run(ctx) }()
	stopped := false
	stop := func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
		_ = client.Close()
	}
	t.Cleanup(stop)
	return server, c, stop
}

// score returns the count of a member; -1 when it is not there. It asks Redis as
// anybody would: what miniredis hands out directly is not safe while others write.
func score(s *miniredis.Miniredis, member string) float64 {
	client := redis.NewClient(&redis.Options{Addr: s.Addr()})
	defer client.Close()
	v, err := client.ZScore(context.Background(), "inflight:llama", member).Result()
	if err != nil {
		return -1
	}
	return v
}

func TestCounterWritesWhatIsInFlight(t *testing.T) {
	server, c, _ := counting(t)
	c.Track("a:1", "b:1")
	eventually(t, "tracked members are there at zero",
		func() bool { return score(server, "a:1") == 0 && score(server, "b:1") == 0 })
	for range 3 {
		c.Begin("a:1")
	}
	c.Begin("b:1")
	c.End("a:1")
	eventually(t, "the counts are 2 and 1",
		func() bool { return score(server, "a:1") == 2 && score(server, "b:1") == 1 })
	if got := score(server, "c:1"); got != -1 {
		t.Errorf("a member that never had a request has the count %v", got)
	}
}

func TestCounterDoesNotGoBelowZero(t *testing.T) {
	server, c, _ := counting(t)
	c.Begin("a:1")
	eventually(t, "the request is counted", func() bool { return score(server, "a:1") == 1 })
	server.Del("inflight:llama")
	c.End("a:1")
	eventually(t, "the end of a lost begin is no debt", func() bool { return score(server, "a:1") == 0 })
	c.Begin("a:1")
	eventually(t, "the next request counts as one", func() bool { return score(server, "a:1") == 1 })
}

func TestCounterCatchesUpWhenRedisComesBack(t *testing.T) {
	server, c, _ := counting(t)
	server.SetError("LOADING")
	c.Begin("a:1")
	c.Begin("a:1")
	server.SetError("")
	eventually(t, "both requests are counted", func() bool { return score(server, "a:1") == 2 })
}

func TestCounterWritesTheRestWhenItEnds(t *testing.T) {
	server, c, stop := counting(t)
	for range 100 {
		c.Begin("a:1")
		c.End("a:1")
	}
	c.Begin("a:1")
	stop()
	if got := score(server, "a:1"); got != 1 {
		t.Errorf("count %v after the end, want 1", got)
	}
}
