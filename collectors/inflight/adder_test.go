package inflight

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
)

// The tests in this file are with a real server, because the script is what they are about.

// An addition is one replica that adds its counts to a set, at times that the test chooses.
type addition struct {
	*writer
	own   map[string]int64
	lasts int // milliseconds
}

func (w *writer) adds() *addition {
	return &addition{writer: w, lasts: 60_000}
}

// exchange adds the counts, and returns those of others.
func (a *addition) exchange() set {
	a.t.Helper()
	adder := newAdder(a.m.replica, time.Second, nil)
	args := adder.args(a.own)
	args[1] = a.lasts
	z, err := adder.others(llama, adder.script.Run(a.t.Context(), a.client, adder.keys(llama), args...))
	if err != nil {
		a.t.Fatal(err)
	}
	out := set{}
	for _, m := range z {
		out[m.Member.(string)] = m.Score
	}
	return out
}

func (a *addition) wantOthers(what string, want set) {
	a.t.Helper()
	if d := cmp.Diff(want, a.exchange()); d != "" {
		a.t.Errorf("%s: what others count (-want +got):\n%s", what, d)
	}
}

func options(a *addition) *redis.Options { return a.client.(*redis.Client).Options() }

func twoAdditions(t *testing.T) (a, b *addition) {
	x, y := twoWriters(t)
	return x.adds(), y.adds()
}

func TestAScoreHasTheCountsOfAllAndOthersAreWhatIsBeyondThem(t *testing.T) {
	a, b := twoAdditions(t)
	a.sync("x", "y")
	a.pick("x", 2)
	a.own, b.own = map[string]int64{"x": 3, "gone": 9}, map[string]int64{"x": 4, "y": 1}
	a.wantOthers("the first", set{"x": 2, "y": 0})
	b.wantOthers("the second", set{"x": 2, "y": 0})
	a.want("with both", set{"x": 9, "y": 1})
	a.own = map[string]int64{"y": 5}
	a.pick("y", 1)
	a.wantOthers("after changes", set{"x": 2, "y": 1})
	a.want("after changes", set{"x": 6, "y": 7})
	a.own, b.own = nil, nil
	a.wantOthers("without any", set{"x": 2, "y": 1})
	b.wantOthers("without any", set{"x": 2, "y": 1})
	a.want("without any", set{"x": 2, "y": 1})
	if n := do(t, options(a), "EXISTS", newAdder("", time.Second, nil).keys(llama)[1]); n != int64(0) {
		t.Error("the hash is there without counts")
	}
}

func TestAMemberBeginsWithItsCountsAndLosesNoneToOthers(t *testing.T) {
	a, b := twoAdditions(t)
	a.own = map[string]int64{"x": 3}
	b.own = map[string]int64{"x": 1}
	a.wantOthers("without members", set{})
	b.wantOthers("without members", set{})
	a.sync("x")
	a.wantOthers("as a new member", set{"x": 0})
	a.want("as a new member", set{"x": 4})
	a.pick("x", -2) // of requests from before a flush
	b.wantOthers("after late ends", set{"x": 0})
	a.want("after late ends", set{"x": 4})
	do(t, options(a), "FLUSHALL")
	a.sync("x")
	a.wantOthers("after a flush", set{"x": 0})
	a.want("after a flush", set{"x": 3})
	b.wantOthers("after a flush", set{"x": 0})
	a.want("with both", set{"x": 4})
}

func TestTheCountsOfAReplicaThatDiedLeaveTheScores(t *testing.T) {
	a, b := twoAdditions(t)
	a.sync("x")
	a.pick("x", 1)
	b.own, b.lasts = map[string]int64{"x": 5}, 50
	b.exchange()
	a.own = map[string]int64{"x": 2}
	eventually(t, "the dead replica's counts have left", func() bool {
		a.wantOthers("all the time", set{"x": 1})
		return scores(t, a.client)["x"] == 3
	})
}

func TestWhateverIsInTheHashHarmsNothing(t *testing.T) {
	a, _ := twoAdditions(t)
	a.sync("x")
	hash := newAdder("", time.Second, nil).keys(llama)[1]
	for i, text := range []string{"", "nonsense", "99999999999999 ", "99999999999999 [1,2]", "99999999999999 7",
		`99999999999999 {"x":"many"}`, `99999999999999 {"x":{}}`,
		`99999999999999 {"x":nan}`, `99999999999999 {"x":1e999}`, `99999999999999 {"x":-5}`, `x {"x":1}`} {
		do(t, options(a), "HSET", hash, "stranger", text)
		a.own = map[string]int64{"x": int64(i)}
		a.wantOthers(text, set{"x": 0})
		a.want(text, set{"x": float64(i)})
	}
}

// TestWhateverReplicasAndPickersDoNoCountIsLeft: pickers as they are known, which count their request by a script and
// never lower a score below zero, and replicas whose counts change, that die, and that come back.
func TestWhateverReplicasAndPickersDoNoCountIsLeft(t *testing.T) {
	a, b := twoAdditions(t)
	a.lasts, b.lasts = 20, 20
	r := rand.New(rand.NewPCG(1, 2))
	all := []string{"m0", "m1", "m2", "m3"}
	less := redis.NewScript(`local score = redis.call('ZSCORE', KEYS[1], ARGV[1])
		if score and tonumber(score) > 0 then redis.call('ZINCRBY', KEYS[1], -1, ARGV[1]) end`)
	open := set{}
	for i := range 500 {
		a.sync(all...)
		member := all[r.IntN(len(all))]
		switch n := r.IntN(3); {
		case n > 0 && open[member] > 0:
			err := less.Run(t.Context(), a.client, []string{llama.Key}, member).Err()
			if err != nil && !errors.Is(err, redis.Nil) {
				t.Fatal(err)
			}
			open[member]--
		case n == 0:
			a.pick(member, 1)
			open[member]++
		}
		one := []*addition{a, b}[r.IntN(2)]
		one.own = map[string]int64{all[r.IntN(len(all))]: r.Int64N(5)}
		got := one.exchange()
		for _, m := range all {
			if got[m] != open[m] {
				t.Fatalf("step %d: others count %v, want %v", i, got, open)
			}
		}
	}
	a.own = nil
	want := set{"m0": 0, "m1": 0, "m2": 0, "m3": 0}
	maps.Copy(want, open)
	eventually(t, "only the pickers' counts are left", func() bool {
		a.exchange()
		return cmp.Equal(want, scores(t, a.client))
	})
}

// ownCounts are what a process counts.
type ownCounts struct {
	mu sync.Mutex
	is map[string]int64
}

func (o *ownCounts) set(is map[string]int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.is = is
}

func (o *ownCounts) get(cluster string) map[string]int64 {
	if cluster != llama.Cluster {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return maps.Clone(o.is)
}

// TestAPollerAddsItsCountsUntilItNeedNot: over a restart of Redis, which has the script no more, until the key is no
// longer to be added to, and until the poller ends.
func TestAPollerAddsItsCountsUntilItNeedNot(t *testing.T) {
	port := freePort(t)
	s := startRedis(t, port, plain(port)...)
	own := ownCounts{is: map[string]int64{"x": 3}}
	o := patient(s.address)
	o.Replica, o.Own = "a", own.get
	p, err := New(o, nil, quiet)
	if err != nil {
		t.Fatal(err)
	}
	p.SetMembers(map[Key][]string{llama: {"x", "y"}})
	p.SetAdding(map[Key]bool{llama: true})
	r := startPoller(t, p, llama)
	client := redis.NewClient(&redis.Options{Addr: s.address})
	defer client.Close()
	has := func(what string, want set) {
		t.Helper()
		eventually(t, what, func() bool { return cmp.Equal(want, scores(t, client)) })
	}
	r.until("others count nothing", func(r Result) bool { return cmp.Equal(set{"x": 0, "y": 0}, r.Requests) })
	has("the counts are added", set{"x": 3, "y": 0})
	do(t, client.Options(), "ZINCRBY", llama.Key, 2, "y")
	r.until("others count two", func(r Result) bool { return cmp.Equal(set{"x": 0, "y": 2}, r.Requests) })

	s.kill()
	r.until("an error of the source", func(r Result) bool { return r.Err != nil && r.Requests == nil })
	startRedis(t, port, plain(port)...)
	r.until("known again", func(r Result) bool { return r.Err == nil && cmp.Equal(set{"x": 0, "y": 0}, r.Requests) })
	has("the counts are added again", set{"x": 3, "y": 0})

	p.SetAdding(nil)
	has("they are taken out", set{"x": 0, "y": 0})
	r.until("all is of others", func(r Result) bool {
		return r.Err == nil && cmp.Equal(set{"x": 0, "y": 0}, r.Requests)
	})
	p.SetAdding(map[Key]bool{llama: true})
	own.set(map[string]int64{"y": 1})
	has("they are added once more", set{"x": 0, "y": 1})
	r.stop()
	has("they go with the poller", set{"x": 0, "y": 0})
}

// TestAPollThatIsUnderWayLeavesNoCounts: it began before its key was no longer to be added to, and adds after the
// counts were to be taken out.
func TestAPollThatIsUnderWayLeavesNoCounts(t *testing.T) {
	port := freePort(t)
	s := startRedis(t, port, plain(port)...)
	asked, answer := make(chan struct{}), make(chan struct{})
	o := patient(s.address)
	o.Timeout = 20 * time.Second
	o.Own = func(string) map[string]int64 {
		select {
		case asked <- struct{}{}:
			<-answer
		case <-answer:
		}
		return map[string]int64{"x": 3}
	}
	p, err := New(o, nil, quiet)
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(&redis.Options{Addr: s.address})
	defer client.Close()
	do(t, client.Options(), "ZADD", llama.Key, 0, "x")
	p.SetAdding(map[Key]bool{llama: true})
	r := startPoller(t, p, llama)
	<-asked
	p.SetAdding(nil)
	p.adder.withdraw(t.Context(), client, false)
	close(answer)
	r.until("all is of others", func(r Result) bool { return r.Err == nil && r.Requests["x"] == 3 })
	eventually(t, "the counts are taken out", func() bool { return scores(t, client)["x"] == 0 })
}

func TestCountsLastFromOnePollToTheNext(t *testing.T) {
	for _, interval := range []time.Duration{time.Millisecond, time.Second, time.Minute} {
		lasts := time.Duration(newAdder("", interval, nil).args(nil)[1].(int64)) * time.Millisecond
		if lasts < interval*2 || lasts < countsLast {
			t.Errorf("with an interval of %v they last %v", interval, lasts)
		}
	}
}

func TestSomethingElseInThePlaceOfTheHashIsNamed(t *testing.T) {
	port := freePort(t)
	s := startRedis(t, port, plain(port)...)
	own := ownCounts{is: map[string]int64{"x": 3}}
	o := patient(s.address)
	o.Own = own.get
	p, err := New(o, nil, quiet)
	if err != nil {
		t.Fatal(err)
	}
	hash, admin := p.adder.keys(llama)[1], &redis.Options{Addr: s.address}
	do(t, admin, "ZADD", llama.Key, 2, "x")
	do(t, admin, "SET", hash, "text")
	p.SetAdding(map[Key]bool{llama: true})
	r := startPoller(t, p, llama)
	wantError(t, r.until("an error", func(r Result) bool { return r.Err != nil }).Err, llama.Key, hash, "not a hash")
	do(t, admin, "DEL", hash)
	r.until("added", func(r Result) bool { return r.Err == nil && r.Requests["x"] == 2 })
}

func TestWithoutTheRightToAddTheErrorNamesIt(t *testing.T) {
	port := freePort(t)
	s := startRedis(t, port, plain(port)...)
	admin := &redis.Options{Addr: s.address}
	do(t, admin, "ZADD", llama.Key, 1, "x")
	do(t, admin, "ACL", "SETUSER", "steelyard", "on", ">pw", "~inflight:*", "+zrange", "+role")
	own := ownCounts{is: map[string]int64{"x": 3}}
	o := patient(s.address)
	o.Username, o.PasswordFile, o.Replica, o.Own = "steelyard", writeFile(t, "password", "pw"), "a", own.get
	p, err := New(o, nil, quiet)
	if err != nil {
		t.Fatal(err)
	}
	p.SetAdding(map[Key]bool{llama: true})
	r := startPoller(t, p, llama)
	got := r.until("an error", func(r Result) bool { return r.Err != nil })
	hash := p.adder.keys(llama)[1]
	wantError(t, got.Err, llama.Key, "cannot be added", "+zcard", hash)
	grant := append([]any{"ACL", "SETUSER", "steelyard", "~{inflight:*}:steelyard:counts"}, fields(addRights)...)
	do(t, admin, append(grant, "-zcard")...) // as with the rights for members only
	eventually(t, "the script begins", func() bool { return strings.Contains(r.next().Err.Error(), "script:") })
	wantError(t, r.next().Err, llama.Key, "cannot be added", "+zcard", hash)
	do(t, admin, grant...)
	r.until("added", func(r Result) bool { return r.Err == nil && r.Requests["x"] == 1 })
}

func TestASetWithTooManyMembersGetsNoCounts(t *testing.T) {
	port := freePort(t)
	s := startRedis(t, port, plain(port)...)
	members := make([]redis.Z, MaxMembers+1)
	for i := range members {
		members[i].Member = i
	}
	client := redis.NewClient(&redis.Options{Addr: s.address})
	defer client.Close()
	if err := client.ZAdd(context.Background(), llama.Key, members...).Err(); err != nil {
		t.Fatal(err)
	}
	own := ownCounts{is: map[string]int64{"7": 3}}
	o := patient(s.address)
	o.Interval, o.Timeout, o.Own = time.Second, time.Second, own.get
	p, err := New(o, nil, quiet)
	if err != nil {
		t.Fatal(err)
	}
	p.SetAdding(map[Key]bool{llama: true})
	got := startPoller(t, p, llama).until("an error", func(r Result) bool { return r.Err != nil })
	wantError(t, got.Err, llama.Key, "more than 10000 members")
	if got.Requests != nil || client.ZScore(context.Background(), llama.Key, "7").Val() != 0 {
		t.Errorf("counts were used: %s", describe(got))
	}
}

func TestTheHashOfCountsIsInTheSlotOfItsSet(t *testing.T) {
	for _, key := range []string{"inflight:llama", "{pool}:llama", "a{b}c{d}"} {
		keys := newAdder("", time.Second, nil).keys(Key{"llama", key})
		if !strings.HasPrefix(keys[1], companion(key)) {
			t.Errorf("%s has %s, which need not be in its slot", key, keys[1])
		}
	}
}

// BenchmarkAdd compares an exchange that adds counts with one that reads them only, of 1,000 endpoints.
func BenchmarkAdd(b *testing.B) {
	port := freePort(b)
	s := startRedis(b, port, plain(port)...)
	own := make(map[string]int64)
	client := redis.NewClient(&redis.Options{Addr: s.address})
	defer client.Close()
	for i := range 1000 {
		member := fmt.Sprintf("10.0.%d.%d:8000", i/250, i%250)
		own[member] = int64(i % 7)
		client.ZAdd(context.Background(), llama.Key, redis.Z{Member: member})
	}
	counts := ownCounts{is: own}
	for _, add := range []bool{false, true} {
		name := map[bool]string{false: "read", true: "add"}[add]
		b.Run(name, func(b *testing.B) {
			o := patient(s.address)
			o.Timeout, o.Replica, o.Own = time.Second, name, counts.get
			p, err := New(o, nil, quiet)
			if err != nil {
				b.Fatal(err)
			}
			p.SetAdding(map[Key]bool{llama: add})
			own := redis.NewUniversalClient(p.o.universal(p.dialer))
			defer own.Close()
			for b.Loop() {
				if r := p.read(context.Background(), own, []Key{llama}); r[0].Err != nil {
					b.Fatal(r[0].Err)
				}
			}
		})
	}
}

func TestAServerWithoutTheScriptGetsItInOneRoundTripForAllKeys(t *testing.T) {
	const sets = 200
	port := freePort(t)
	s := startRedis(t, port, plain(port)...)
	client := redis.NewClient(&redis.Options{Addr: s.address})
	defer client.Close()
	keys, adding := make([]Key, sets), make(map[Key]bool)
	for i := range keys {
		keys[i] = Key{llama.Cluster, fmt.Sprint("inflight:", i)}
		adding[keys[i]] = true
		client.ZAdd(t.Context(), keys[i].Key, redis.Z{Member: "x", Score: 2})
	}
	client.ZAdd(t.Context(), "other", redis.Z{Member: "x", Score: 7})
	client.Set(t.Context(), "text", "", 0)
	own := ownCounts{is: map[string]int64{"x": 3}}
	o := patient(s.address)
	o.Timeout, o.Own = 10*time.Second, own.get
	p, err := New(o, nil, quiet)
	if err != nil {
		t.Fatal(err)
	}
	defer p.dialer.close()
	p.SetAdding(adding)
	poller := redis.NewUniversalClient(p.o.universal(p.dialer))
	defer poller.Close()
	trips := &counter{}
	poller.AddHook(trips)
	results := p.read(t.Context(), poller, append([]Key{{llama.Cluster, "text"}, {llama.Cluster, "other"}}, keys...))
	wantError(t, results[0].Err, "text", "not a sorted set")
	if d := cmp.Diff(set{"x": 7}, results[1].Requests); d != "" || results[1].Err != nil {
		t.Errorf("of a set that is only read (-want +got), %v:\n%s", results[1].Err, d)
	}
	for _, r := range results[2:] {
		if d := cmp.Diff(set{"x": 2}, r.Requests); d != "" || r.Err != nil {
			t.Fatalf("%s (-want +got), %v:\n%s", r.Key, r.Err, d)
		}
	}
	if trips.commands != 0 || trips.pipelines != 2 {
		t.Errorf("%d commands and %d pipelines, want 0 and 2", trips.commands, trips.pipelines)
	}
}

// A counter counts what is sent to Redis.
type counter struct{ commands, pipelines int }

func (c *counter) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *counter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if strings.HasPrefix(cmd.Name(), "eval") { // besides those of a new connection
			c.commands++
		}
		return next(ctx, cmd)
	}
}

func (c *counter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		c.pipelines++
		return next(ctx, cmds)
	}
}
