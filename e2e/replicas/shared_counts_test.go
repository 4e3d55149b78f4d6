package replicas

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"steelyard/e2e/rig/proc"
	"steelyard/e2e/rig/proc/proctest"
	"steelyard/e2e/rig/testbed"
)

// A foreignPicker is a picker of others: it chooses the member with the lowest score and counts by scripts, as pickers
// that keep the requests in flight in a sorted set are known to.
type foreignPicker struct {
	t      *testing.T
	client *redis.Client
}

var (
	pickLowest = redis.NewScript(`local member = redis.call('ZRANGE', KEYS[1], 0, 0)[1]
		if member then redis.call('ZINCRBY', KEYS[1], 1, member) end
		return member`)
	countLess = redis.NewScript(`local score = redis.call('ZSCORE', KEYS[1], ARGV[1])
		if score and tonumber(score) > 0 then redis.call('ZINCRBY', KEYS[1], -1, ARGV[1]) end
		return 1`)
)

func (p *foreignPicker) pick() string {
	p.t.Helper()
	member, err := pickLowest.Run(context.Background(), p.client, []string{testbed.CountsKey}).Text()
	if err != nil {
		p.t.Fatal(err)
	}
	return member
}

func (p *foreignPicker) done(member string) {
	p.t.Helper()
	if err := countLess.Run(context.Background(), p.client, []string{testbed.CountsKey}, member).Err(); err != nil {
		p.t.Fatal(err)
	}
}

// scoresAre wants the scores in Redis.
func (p *foreignPicker) scoresAre(want map[string]float64) error {
	z, err := p.client.ZRangeWithScores(context.Background(), testbed.CountsKey, 0, -1).Result()
	got := make(map[string]float64)
	for _, m := range z {
		got[m.Member.(string)] = m.Score
	}
	if d := cmp.Diff(want, got); d != "" || err != nil {
		return errors.Join(err, fmt.Errorf("scores (-want +got):\n%s", d))
	}
	return nil
}

// TestAPickerOfOthersAndSteelyardSeeEachOthersRequests: where a part of the proxies still has a picker of its own. The
// scores survive the death of Steelyard, and are of the others only when its Envoys have nothing in flight.
func TestAPickerOfOthersAndSteelyardSeeEachOthersRequests(t *testing.T) {
	t.Parallel()
	pool := testbed.Pool(t, 3)
	store := proctest.Redis(t, proc.RedisConfig{})
	f := start(t, testbed.Plan{Servers: pool, Top: testbed.RedisSection(store), Bootstrap: testbed.Exactly,
		Cluster: "scrape: {disabled: true}\ninflight: {redis_key: \"" + testbed.CountsKey +
			"\", sync_members: true, add_counts: true}"})
	others := &foreignPicker{t: t, client: redis.NewClient(&redis.Options{Addr: store.Address()})}
	defer others.client.Close()

	held, release := context.WithCancel(t.Context())
	defer release()
	holdUntil(held, t, f, 30)
	f.Eventually("Envoy's requests are counted", func() error { return f.InFlightBetween(30, 30) })
	own := make(map[string]float64)
	v, err := f.View()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range v.Endpoints {
		own[e.Address] = e.Input("in_flight").Value.Or(math.NaN())
	}
	f.Eventually("the scores have Envoy's requests", func() error { return others.scoresAre(own) })

	total, picked := make(map[string]float64), make(map[string]float64)
	for a, n := range own {
		total[a] = n
	}
	for range 60 { // it fills up to the same level
		member := others.pick()
		picked[member]++
		total[member]++
	}
	for a, n := range total {
		if math.Abs(n-30) > 1 {
			t.Errorf("the other picker left %s with %v of 90 requests, of which %v are Envoy's", a, n, own[a])
		}
	}
	// It is done at one server, and Envoy's requests go there.
	idle := pool[0].Address()
	for range int(picked[idle]) {
		others.done(idle)
	}
	total[idle], picked[idle] = own[idle], 0
	f.Eventually("the picker's requests count", func() error { return f.countedBeside(own, picked) })
	f.Eventually("the server without the picker's requests gets all", func() error {
		if share := f.Shares(0)[idle]; share < 0.9 {
			return fmt.Errorf("share %.3f", share)
		}
		return nil
	})

	if err := f.Control.Kill(); err != nil {
		t.Fatal(err)
	}
	f.Control = f.StartControl("again")
	f.Eventually("the next process counts the same", func() error { return f.countedBeside(own, picked) })
	f.Eventually("the scores have Envoy's requests once", func() error { return others.scoresAre(total) })

	release()
	f.Eventually("the scores are the other picker's", func() error { return others.scoresAre(picked) })
	for member, n := range picked {
		for range int(n) {
			others.done(member)
		}
		picked[member] = 0
	}
	f.Eventually("the scores are zero", func() error { return others.scoresAre(picked) })
}

// countedBeside wants each server to have the requests of Envoys and of others.
func (f *fleet) countedBeside(own, others map[string]float64) error {
	v, err := f.View()
	for _, e := range v.Endpoints {
		a := e.Address
		if n := e.Input("in_flight").Value.Or(-1); n != own[a]+others[a] || e.InFlightOthers.Or(-1) != others[a] {
			err = errors.Join(err, fmt.Errorf("%s has %v in flight, %v of others; want %v, %v of others", a, n,
				e.InFlightOthers.Or(-1), own[a]+others[a], others[a]))
		}
	}
	return err
}
