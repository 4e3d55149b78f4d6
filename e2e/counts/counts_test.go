//go:build long

// Package counts tests that no request is counted for ever, whatever is killed while it is in flight.
package counts

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"steelyard/e2e/rig/modelsim"
	"steelyard/e2e/rig/proc"
	"steelyard/e2e/rig/proc/proctest"
	"steelyard/e2e/rig/testbed"
)

var countedRequests = flag.Int("requests", 100_000, "how many requests are sent while parts are killed at random")

const (
	countedEnvoys  = 2
	countedClients = 16
	killEvery      = 2_000 // requests
	deadFor        = 100   // requests
)

func TestMain(m *testing.M) { testbed.Main(m) }

// A counted is a fleet whose requests are counted by the Envoys' logs, which Steelyard adds to the scores in Redis, and
// by the servers, in the same scores, as a picker counts them.
type counted struct {
	*testbed.Fleet
	random *rand.Rand
	redis  *proc.Redis
	counts *modelsim.Counter
	client *redis.Client
	listen []string // of the Envoys
	alive  [countedEnvoys]atomic.Bool

	began, answered, failed, aborted atomic.Int64
}

// TestAfterManyRequestsAndKillsAllCountsAreZero: the sorted set in Redis and the ledger, whatever was killed while it
// had requests: Envoys, Steelyard, Redis, servers, and clients. No score is ever below zero. `make counts` sends a
// million requests.
func TestAfterManyRequestsAndKillsAllCountsAreZero(t *testing.T) {
	testbed.WithModule(t)
	logging.Disable() // of the Redis client: a Redis that is away is meant to be
	c := startCounted(t)
	began := time.Now()
	kills := c.kill(*countedRequests)
	t.Logf("%d requests in %v: %d answered, %d failed, %d given up by their clients; killed: %v", c.began.Load(),
		time.Since(began).Round(time.Second), c.answered.Load(), c.failed.Load(), c.aborted.Load(), kills)
	if c.answered.Load() < c.began.Load()/2 || c.aborted.Load() == 0 {
		t.Error("too few were answered, or none was given up: this shows nothing")
	}
	c.Eventually("all counts are zero", c.zero)
}

// startCounted runs four servers, Redis, Steelyard and two Envoys with the module.
func startCounted(t *testing.T) *counted {
	t.Helper()
	c := &counted{random: rand.New(rand.NewPCG(1, 0)), redis: proctest.Redis(t, proc.RedisConfig{})}
	c.client = redis.NewClient(&redis.Options{Addr: c.redis.Address(), MaxRetries: -1, DialerRetries: 1})
	t.Cleanup(func() { c.client.Close() })
	c.counts = modelsim.NewCounter(c.client, testbed.CountsKey, slog.New(slog.DiscardHandler))
	c.background(t, func(ctx context.Context) { _ = c.counts.Run(ctx) })
	pool := testbed.Servers(t, testbed.Same(4, modelsim.Options{Slots: testbed.Wide.Slots, Observer: c.counts})...)
	c.Fleet = testbed.WithoutEnvoys(t, testbed.Plan{Servers: pool, Top: testbed.RedisSection(c.redis),
		// No scrapes: the servers' own counts would correct those of the Envoys.
		Cluster: "scrape: {disabled: true}\ninflight: {redis_key: \"" + testbed.CountsKey + "\", sync_members: true, " +
			"add_counts: true}"})
	var err error
	if c.listen, err = proc.FreeAddresses(countedEnvoys); err != nil {
		t.Fatal(err)
	}
	c.Envoys = make([]*proc.Envoy, countedEnvoys)
	for i, address := range c.listen {
		c.URLs = append(c.URLs, "http://"+address+"/")
		c.launch(i)
		c.Chooses(t, i)
	}
	c.background(t, c.watch)
	return c
}

// background runs f until the test ends.
func (c *counted) background(t *testing.T, f func(context.Context)) {
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { f(ctx) })
	t.Cleanup(func() { stop(); running.Wait() })
}

// watch wants no score to be below zero at any time.
func (c *counted) watch(ctx context.Context) {
	for tick := time.Tick(20 * time.Millisecond); ctx.Err() == nil; {
		negative := &redis.ZRangeBy{Min: "-inf", Max: "(0"}
		below, err := c.client.ZRangeByScoreWithScores(ctx, testbed.CountsKey, negative).Result()
		if err == nil && len(below) > 0 {
			c.T.Errorf("scores below zero: %v", below)
			return
		}
		select {
		case <-ctx.Done():
		case <-tick:
		}
	}
}

// kill sends so many requests while parts are killed, and returns how often each was. In the second half Steelyard
// lives on, so that one ledger sees the other deaths.
func (c *counted) kill(requests int) map[string]int {
	kills := make(map[string]int)
	ctx, stop := context.WithCancel(c.T.Context())
	var clients sync.WaitGroup
	defer clients.Wait()
	defer stop() // where the test has failed; the clients end by themselves
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: countedClients}}
	defer client.CloseIdleConnections()
	for i := range countedClients {
		random := rand.New(rand.NewPCG(1, uint64(i+1)))
		clients.Go(func() {
			for ctx.Err() == nil && c.began.Load() < int64(requests) {
				c.one(ctx, client, random)
			}
		})
	}
	all := []string{"redis", "server", "envoy", "steelyard"}
	parts := all
	for at := killEvery; at+killEvery <= requests; at += killEvery {
		if at > requests/2 {
			parts = parts[:3]
		}
		c.sent(at)
		part := parts[c.random.IntN(len(parts))]
		kills[part]++
		c.again(part, c.random.IntN(countedEnvoys), kills[part])
	}
	clients.Wait()
	for _, part := range all {
		if kills[part] == 0 {
			c.T.Errorf("%s was never killed", part)
		}
	}
	return kills
}

// sent waits until so many requests have begun.
func (c *counted) sent(n int) {
	c.T.Helper()
	c.Eventually("the requests go on", func() error {
		if got := c.began.Load(); got < int64(n) {
			return fmt.Errorf("%d of %d", got, n)
		}
		return nil
	})
}

// again kills a part, and starts it after some requests.
func (c *counted) again(part string, i, n int) {
	c.T.Helper()
	down := func(err error) {
		c.T.Helper()
		if err != nil {
			c.T.Fatal(err)
		}
		c.sent(min(int(c.began.Load())+deadFor, *countedRequests))
	}
	switch part {
	case "redis":
		down(c.redis.Kill())
		c.redis = proctest.Redis(c.T, proc.RedisConfig{Address: c.redis.Address(), Dir: c.Dir,
			Name: fmt.Sprint("redis-", n)})
	case "steelyard":
		down(c.Control.Kill())
		c.Control = c.StartControl(fmt.Sprint("steelyard-", n))
	case "server":
		i = c.random.IntN(len(c.Plan.Servers))
		address := c.Plan.Servers[i].Address()
		down(c.Plan.Servers[i].Close())
		s, err := modelsim.Start(modelsim.Options{Slots: testbed.Wide.Slots, Observer: c.counts, Address: address})
		if err != nil {
			c.T.Fatal(err)
		}
		c.T.Cleanup(func() { s.Close() })
		c.Plan.Servers[i] = s
	case "envoy":
		c.alive[i].Store(false)
		down(c.Envoys[i].Kill())
		c.launch(i)
	}
}

// launch runs an Envoy at its address. The last one reports its requests by the log only, so that nothing else corrects
// their count.
func (c *counted) launch(i int) {
	c.T.Helper()
	name := fmt.Sprint("envoy-", i)
	args := []string{"bootstrap", "--cluster", testbed.Cluster, "--xds", c.XDS, "--node-id", name,
		"--listen", c.listen[i],
		"--admin", "127.0.0.1:0", "--module"}
	if i == countedEnvoys-1 {
		args = append(args, "--load-reports=false")
	}
	c.Envoys[i] = proctest.Envoy(c.T, proc.EnvoyConfig{Dir: c.Dir, Name: name, Bootstrap: testbed.Run(c.T, args...)})
	c.alive[i].Store(true)
}

// one sends one request to an Envoy that lives. One in fifty takes its time, and half of those are given up meanwhile.
func (c *counted) one(ctx context.Context, client *http.Client, random *rand.Rand) {
	i := random.IntN(countedEnvoys)
	if !c.alive[i].Load() {
		i = (i + 1) % countedEnvoys
	}
	const long = time.Minute
	service, patience := "0.000001", long
	switch random.IntN(100) {
	case 0:
		service = "0.05"
	case 1:
		service, patience = "0.05", 10*time.Millisecond
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.URLs[i], strings.NewReader("{}"))
	if err != nil {
		c.T.Error(err)
		return
	}
	req.Header.Set(modelsim.HeaderService, service)
	c.began.Add(1)
	resp, err := client.Do(req)
	if err == nil {
		_, err = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded) && patience == long:
		c.T.Errorf("a request had no answer within %v", long)
	case errors.Is(err, context.DeadlineExceeded):
		c.aborted.Add(1)
	case err != nil || resp.StatusCode != http.StatusOK:
		c.failed.Add(1)
	default:
		c.answered.Add(1)
	}
}

// zero wants all counts to be zero: of the ledger, in Redis, where every endpoint has one, and of the servers.
func (c *counted) zero() error {
	v, err := c.View()
	if err != nil {
		return err
	}
	for _, e := range v.Endpoints {
		if in := e.Input("in_flight"); in.Value.Or(-1) != 0 || e.InFlightSource != "access_log" {
			return fmt.Errorf("%s has %v in flight, from %q", e.Address, in.Value.Or(-1), e.InFlightSource)
		}
	}
	scores, err := c.client.ZRangeWithScores(c.T.Context(), testbed.CountsKey, 0, -1).Result()
	if err != nil {
		return err
	}
	for _, s := range scores {
		if s.Score != 0 {
			return fmt.Errorf("the scores are %v", scores)
		}
	}
	if n := len(c.Plan.Servers); len(scores) != n || len(v.Endpoints) != n {
		return fmt.Errorf("%d scores and %d endpoints, want %d of each", len(scores), len(v.Endpoints), n)
	}
	for _, s := range c.Plan.Servers {
		if n := s.InFlight(); n != 0 {
			return fmt.Errorf("%s has %d requests", s.Address(), n)
		}
	}
	return nil
}
