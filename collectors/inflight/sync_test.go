package inflight

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"steelyard/e2e/rig/long"
)

// The tests in this file are with a real server, because the script is what they are about.

// A writer synchronises a set as one replica does, at times that the test chooses.
type writer struct {
	t      *testing.T
	m      *members
	client redis.UniversalClient
	// in milliseconds
	lasts, grace, kept int
}

func newWriter(t *testing.T, address, replica string) *writer {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: address})
	t.Cleanup(func() { _ = client.Close() })
	return &writer{t: t, m: newMembers(replica), client: client, lasts: 60_000, grace: 60_000, kept: 60_000}
}

// sync writes the list, and returns how many members came and went.
func (w *writer) sync(list ...string) [2]int64 {
	w.t.Helper()
	args := []any{w.m.replica, w.lasts, w.grace, w.kept}
	for _, member := range list {
		args = append(args, member)
	}
	n, err := w.m.script.Run(w.t.Context(), w.client, []string{llama.Key, companion(llama.Key)}, args...).Int64Slice()
	if err != nil {
		w.t.Fatal(err)
	}
	return [2]int64(n)
}

// scores returns the set, as the pickers see it.
func scores(t testing.TB, client redis.UniversalClient) map[string]float64 {
	t.Helper()
	all, err := client.ZRangeWithScores(context.Background(), llama.Key, 0, -1).Result()
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[string]float64)
	for _, z := range all {
		out[z.Member.(string)] = z.Score
	}
	return out
}

func (w *writer) want(what string, want map[string]float64) {
	w.t.Helper()
	if d := cmp.Diff(want, scores(w.t, w.client)); d != "" {
		w.t.Errorf("%s: the set (-want +got):\n%s", what, d)
	}
}

// pick counts requests as a picker does.
func (w *writer) pick(member string, n float64) {
	w.t.Helper()
	if err := w.client.ZIncrBy(w.t.Context(), llama.Key, n, member).Err(); err != nil {
		w.t.Fatal(err)
	}
}

func twoWriters(t *testing.T) (a, b *writer) {
	port := freePort(t)
	s := startRedis(t, port, plain(port)...)
	return newWriter(t, s.address, "a"), newWriter(t, s.address, "b")
}

type set = map[string]float64

func TestNewMembersGetZeroAndScoresAreLeftAlone(t *testing.T) {
	a, _ := twoWriters(t)
	a.pick("x", 7)
	if n := a.sync("x", "y"); n != [2]int64{1, 0} {
		t.Errorf("%v members came and went, want 1 and 0", n)
	}
	a.want("after the first list", set{"x": 7, "y": 0})
	a.pick("y", 2)
	if n := a.sync("x", "y"); n != [2]int64{0, 0} {
		t.Errorf("%v members came and went, want none", n)
	}
	a.want("after the same list", set{"x": 7, "y": 2})
	if n := a.sync("y"); n != [2]int64{0, 1} {
		t.Errorf("%v members came and went, want 0 and 1", n)
	}
	a.want("without x", set{"y": 2})
}

func TestAReplicaWithAnOlderListDeletesNoScore(t *testing.T) {
	a, b := twoWriters(t)
	a.sync("x", "y")
	b.sync("x", "y")
	a.sync("x", "y", "new")
	a.pick("new", 5)
	b.sync("x", "y") // it has not heard of the new one yet
	a.want("after an older list", set{"x": 0, "y": 0, "new": 5})

	a.sync("x", "new") // y is gone, b has it still
	a.want("while one has it still", set{"x": 0, "y": 0, "new": 5})
	b.sync("x", "new")
	a.want("when both agree", set{"x": 0, "new": 5})
}

func TestTheListOfAReplicaThatDiedCountsNoMore(t *testing.T) {
	a, b := twoWriters(t)
	b.lasts = 50
	b.sync("x", "y")
	eventually(t, "the dead replica's list has expired", func() bool {
		a.sync("x")
		return len(scores(t, a.client)) == 1
	})
	a.want("after that", set{"x": 0})
}

func TestAMemberThatComesBackBeginsWithZero(t *testing.T) {
	a, _ := twoWriters(t)
	a.sync("x", "y")
	a.pick("x", 5)
	a.sync("y")
	a.want("without it", set{"y": 0})
	a.pick("x", -1) // one of its requests ended
	a.sync("y")
	a.want("after a late decrement", set{"y": 0})
	a.pick("x", -1) // another one, not swept yet
	if n := a.sync("x", "y"); n != [2]int64{0, 0} {
		t.Errorf("%v members came and went, want none", n)
	}
	a.want("when it is back", set{"x": 0, "y": 0})
	a.pick("x", -1) // one more, of before
	a.sync("x", "y")
	a.want("after an end of before", set{"x": 0, "y": 0})
	a.pick("x", 2)
	a.sync("x", "y")
	a.want("with requests", set{"x": 2, "y": 0})
}

func TestAFlushDeletesNothingThatOthersHave(t *testing.T) {
	a, b := twoWriters(t)
	a.sync("x", "y")
	b.sync("x", "y", "z")
	a.pick("z", 4)
	if err := a.client.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	a.pick("z", 1)  // a picker goes on
	a.pick("x", -1) // the end of a request from before
	a.sync("x", "y")
	a.want("after the first list", set{"x": 0, "y": 0, "z": 1})
	b.sync("x", "y", "z")
	a.sync("x", "y")
	a.want("after both", set{"x": 0, "y": 0, "z": 1})
}

func TestAMemberThatNoReplicaKnowsGoesAfterAWhile(t *testing.T) {
	a, b := twoWriters(t)
	a.pick("alien", 3)
	a.sync("x")
	b.sync("x")
	a.want("at first", set{"x": 0, "alien": 3})
	a.grace = 1
	eventually(t, "it is gone", func() bool { a.sync("x"); return len(scores(t, a.client)) == 1 })
	b.sync("x", "alien")
	a.want("when it is discovered after all", set{"x": 0, "alien": 0})
}

// Two replicas whose lists change in turn, pickers that count all the time, and a flush.
func TestWhateverTwoReplicasAndPickersDoTheSetComesToTheEndpoints(t *testing.T) {
	a, b := twoWriters(t)
	a.grace, b.grace = 1, 1
	r := rand.New(rand.NewPCG(1, 2))
	all := []string{"m0", "m1", "m2", "m3", "m4", "m5"}
	some := func() (out []string) {
		for _, m := range all {
			if r.IntN(3) > 0 {
				out = append(out, m)
			}
		}
		return out
	}
	for i := range 200 {
		list := some()
		older := list
		if len(list) > 1 {
			older = list[1:]
		}
		a.sync(list...)
		b.sync(older...)
		for _, m := range list {
			if _, there := scores(t, a.client)[m]; !there {
				t.Fatalf("step %d: %s is missing after both lists", i, m)
			}
		}
		a.pick(all[r.IntN(len(all))], float64(r.IntN(5)-2))
		if i == 100 {
			if err := a.client.FlushAll(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	final := all[:3]
	eventually(t, "the set is the endpoints", func() bool {
		a.sync(final...)
		b.sync(final...)
		got := scores(t, a.client)
		for _, m := range final {
			if s, there := got[m]; !there || s < 0 {
				t.Fatalf("%s has %v, %v", m, s, there)
			}
		}
		return len(got) == len(final)
	})
}

func TestScriptsOfManyReplicasAtOnceAgree(t *testing.T) {
	port := freePort(t)
	s := startRedis(t, port, plain(port)...)
	list := make([]string, 200)
	for i := range list {
		list[i] = fmt.Sprintf("10.0.0.%d:8000", i)
	}
	var all sync.WaitGroup
	for i := range 4 {
		w := newWriter(t, s.address, strconv.Itoa(i))
		all.Go(func() {
			for range 20 {
				w.sync(list...)
			}
		})
	}
	all.Wait()
	if got := scores(t, newWriter(t, s.address, "x").client); len(got) != len(list) {
		t.Errorf("%d members, want %d", len(got), len(list))
	}
}

func TestCompanionIsInTheSlotOfItsSet(t *testing.T) {
	port, bus := freePort(t), freePort(t)
	s := startRedis(t, port, plain(port, "--cluster-enabled", "yes", "--cluster-port", strconv.Itoa(bus))...)
	admin := &redis.Options{Addr: s.address}
	do(t, admin, "CLUSTER", "ADDSLOTSRANGE", 0, 16383)
	eventually(t, "the cluster is ok", func() bool {
		return strings.Contains(do(t, admin, "CLUSTER", "INFO").(string), "cluster_state:ok")
	})
	for _, key := range []string{"inflight:llama", "{pool}:llama", "a{b}c{d}"} {
		want, got := do(t, admin, "CLUSTER", "KEYSLOT", key), do(t, admin, "CLUSTER", "KEYSLOT", companion(key))
		if want != got {
			t.Errorf("%s is in slot %v, and %s in %v", key, want, companion(key), got)
		}
	}
	o := patient(s.address)
	o.Cluster, o.Replica = true, "a"
	p, err := New(o, nil, quiet)
	if err != nil {
		t.Fatal(err)
	}
	p.SetMembers(map[Key][]string{llama: {"10.0.0.1:8000"}, {"b", "{tag}:b"}: {"10.0.0.2:8000"}})
	startPoller(t, p, llama).until("the new member is read", func(r Result) bool {
		n, there := r.Requests["10.0.0.1:8000"]
		return there && n == 0
	})
	eventually(t, "the other set is there, too", func() bool {
		return do(t, admin, "ZCARD", "{tag}:b") == int64(1)
	})
}

func TestAPollerKeepsItsMembersInStep(t *testing.T) {
	port := freePort(t)
	s := startRedis(t, port, plain(port)...)
	o := patient(s.address)
	o.Replica = "a"
	p, err := New(o, nil, quiet)
	if err != nil {
		t.Fatal(err)
	}
	p.SetMembers(map[Key][]string{llama: nil}) // before the first discovery
	r := startPoller(t, p, llama)
	members := func(n int) func(Result) bool {
		return func(r Result) bool { return r.Err == nil && len(r.Requests) == n }
	}
	r.until("nothing is written without endpoints", members(0))
	p.SetMembers(map[Key][]string{llama: {"x", "y"}})
	r.until("both are there", members(2))
	p.SetMembers(map[Key][]string{llama: {"y"}})
	r.until("one is left", members(1))
	do(t, &redis.Options{Addr: s.address}, "FLUSHALL")
	began := time.Now()
	r.until("it is back after a flush", members(1))
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it was back after %v", took)
	}
	p.SetMembers(map[Key][]string{llama: {}})
	r.until("none is left", members(0))
}

func TestWithoutTheRightToWriteTheCountsStandWithAnError(t *testing.T) {
	port := freePort(t)
	s := startRedis(t, port, plain(port)...)
	admin := &redis.Options{Addr: s.address}
	do(t, admin, "ZADD", llama.Key, 1, "x")
	do(t, admin, "ACL", "SETUSER", "steelyard", "on", ">pw", "~inflight:*", "~{inflight:*}:steelyard", "+zrange",
		"+role")
	o := patient(s.address)
	o.Username, o.PasswordFile, o.Replica = "steelyard", writeFile(t, "password", "pw"), "a"
	p, err := New(o, nil, quiet)
	if err != nil {
		t.Fatal(err)
	}
	p.SetMembers(map[Key][]string{llama: {"x", "y"}})
	r := startPoller(t, p, llama)
	got := r.until("an error", func(r Result) bool { return r.Err != nil && r.Requests["x"] == 1 })
	wantError(t, got.Err, llama.Key, "cannot be synchronised", "+evalsha", companion(llama.Key))
	do(t, admin, append([]any{"ACL", "SETUSER", "steelyard"}, fields(syncRights)...)...)
	r.until("synchronised", func(r Result) bool { return r.Err == nil && len(r.Requests) == 2 })
}

func fields(text string) (out []any) {
	for word := range strings.FieldsSeq(text) {
		out = append(out, word)
	}
	return out
}

// TestNoCountIsLeftWhenAllRequestsHaveEnded: pickers count by the scripts that they are known for, which never lower a
// count below zero. Replicas are killed all the time. A flush has a case of its own: the ends of requests from before
// it would hide what else is left.
func TestNoCountIsLeftWhenAllRequestsHaveEnded(t *testing.T) {
	list := []string{"x", "y", "z"}
	for name, fault := range map[string]func(a, b *writer){
		"an endpoint comes and goes": func(a, b *writer) { a.sync(list[1:]...); b.sync(list[1:]...) },
		"Redis loses everything": func(a, _ *writer) {
			if err := a.client.FlushAll(t.Context()).Err(); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := twoWriters(t)
			a.lasts, b.lasts = 20, 20 // so that those of killed replicas keep nothing
			a.sync(list...)
			const pickers = 4
			requests := 20_000
			if long.Is {
				requests = 500_000
			}
			var working sync.WaitGroup
			for i := range pickers {
				working.Go(func() {
					if err := pickMany(a.client, requests/pickers, rand.New(rand.NewPCG(uint64(i), 7))); err != nil {
						t.Error(err)
					}
				})
			}
			done := make(chan struct{})
			go func() { working.Wait(); close(done) }()
			random := rand.New(rand.NewPCG(1, 2))
			for ended := false; !ended; {
				select {
				case <-done:
					ended = true
				default:
				}
				switch w := []*writer{a, b}[random.IntN(2)]; random.IntN(50) {
				case 0:
					fault(a, b)
				case 1:
					w.m = newMembers(fmt.Sprint(w.m.replica, "'")) // it was killed, and another took its place
				default:
					w.sync(list...)
				}
				for member, score := range scores(t, a.client) {
					if score < 0 {
						t.Fatalf("%s has %v requests in flight", member, score)
					}
				}
			}
			a.sync(list...)
			a.want("when all requests have ended", set{"x": 0, "y": 0, "z": 0})
		})
	}
}

// The scripts of a picker: a request goes to the member with the lowest count, and ends there.
const (
	beginScript = `local m = redis.call('ZRANGE', KEYS[1], 0, 0)[1]
		if m then redis.call('ZINCRBY', KEYS[1], 1, m) end
		return m`
	endScript = `local n = redis.call('ZSCORE', KEYS[1], ARGV[1])
		if n and tonumber(n) > 0 then redis.call('ZINCRBY', KEYS[1], -1, ARGV[1]) end
		return n`
)

// pickMany begins so many requests, in pipelines, and ends each after a while.
func pickMany(client redis.UniversalClient, left int, random *rand.Rand) error {
	const most = 64 // in a pipeline, of each kind
	ctx := context.Background()
	var open []string
	for left > 0 || len(open) > 0 {
		pipe := client.Pipeline()
		var begun []*redis.Cmd
		for range min(left, random.IntN(most)) {
			begun = append(begun, pipe.Eval(ctx, beginScript, []string{llama.Key}))
		}
		left -= len(begun)
		for range min(len(open), random.IntN(most)) {
			i := random.IntN(len(open))
			pipe.Eval(ctx, endScript, []string{llama.Key}, open[i])
			open[i] = open[len(open)-1]
			open = open[:len(open)-1]
		}
		if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
			return err
		}
		for _, b := range begun {
			if member, err := b.Text(); err == nil { // else the set was empty
				open = append(open, member)
			}
		}
	}
	return nil
}
