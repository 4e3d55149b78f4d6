package inflight

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// startReplica runs a replica of primary that has its data.
func startReplica(t *testing.T, primary *process) *process {
	t.Helper()
	host, primaryPort, _ := net.SplitHostPort(primary.address)
	port := freePort(t)
	s := startRedis(t, port, plain(port, "--replicaof", host+" "+primaryPort)...)
	eventually(t, "the replica has its primary's data", func() bool {
		info := do(t, &redis.Options{Addr: s.address}, "INFO").(string)
		return strings.Contains(info, "master_link_status:up") && strings.Contains(info, "keys=1")
	})
	return s
}

func TestAReplicaThatLostItsPrimaryIsAnErrorThoughItAnswers(t *testing.T) {
	port := freePort(t)
	primary := startRedis(t, port, plain(port)...)
	do(t, &redis.Options{Addr: primary.address}, "ZADD", llama.Key, 3, "10.0.0.1:8000", "-1", "10.0.0.2:8000")
	replica := startReplica(t, primary)
	r := start(t, patient(replica.address), llama)
	r.until("read, but for the bad member", func(r Result) bool { return r.Requests["10.0.0.1:8000"] == 3 })

	primary.kill()
	got := r.until("an error of the source", func(r Result) bool { return errors.As(r.Err, new(sourceError)) })
	if got.Requests != nil {
		t.Errorf("without its primary: %s", describe(got))
	}
	wantError(t, got.Err, llama.Key, replica.address,
		"it is a replica without a connection to its primary "+primary.address)
	if n := do(t, &redis.Options{Addr: replica.address}, "ZCARD", llama.Key); n != int64(2) {
		t.Errorf("the replica has %v members: it was to go on answering", n)
	}

	startRedis(t, port, plain(port)...)
	r.until("answered again", func(r Result) bool { return r.Err == nil })
}

// A primary that hangs, or that is behind a cut without a sign, leaves the connection open.
func TestAReplicaThatHearsNothingFromItsPrimaryIsAnError(t *testing.T) {
	port := freePort(t)
	primary := startRedis(t, port, plain(port, "--repl-ping-replica-period", "1")...)
	do(t, &redis.Options{Addr: primary.address}, "ZADD", llama.Key, 3, "10.0.0.1:8000")
	replica := startReplica(t, primary)
	p, err := New(patient(replica.address), nil, quiet)
	if err != nil {
		t.Fatal(err)
	}
	p.replication.maxSilence = 2500 * time.Millisecond // and not as long as the default period asks for
	r := startPoller(t, p, llama)
	r.until("read", read)

	if err := primary.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	got := r.until("the loss", func(r Result) bool { return errors.As(r.Err, new(lostPrimary)) })
	if got.Requests != nil {
		t.Errorf("without its primary: %s", describe(got))
	}
	wantError(t, got.Err, llama.Key, "received nothing from its primary "+primary.address, "counts are old")
	if err := primary.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	r.until("read again", read)
}

func TestAPrimaryThatSentinelsNameAndThatIsAReplicaNowIsAnError(t *testing.T) {
	port, watch := freePort(t), freePort(t)
	s := startRedis(t, port, plain(port)...)
	do(t, &redis.Options{Addr: s.address}, "ZADD", llama.Key, 4, "10.0.0.1:8000")
	sentinel := startRedis(t, watch, writeFile(t, "sentinel.conf", fmt.Sprintf(
		"port %d\nbind 127.0.0.1\nsentinel monitor main 127.0.0.1 %d 1\n", watch, port)), "--sentinel")
	o := patient(sentinel.address)
	o.MasterName = "main"
	r := start(t, o, llama)
	r.until("read", read)

	unused := fmt.Sprint(freePort(t))
	do(t, &redis.Options{Addr: s.address}, "REPLICAOF", "127.0.0.1", unused)
	wantError(t, r.until("an error", failed).Err, llama.Key, "primary 127.0.0.1:"+unused)
	do(t, &redis.Options{Addr: s.address}, "REPLICAOF", "NO", "ONE")
	r.until("read again", read)
}

func TestWhereTheRoleMayNotBeAskedForTheCountsStandWithAnError(t *testing.T) {
	port := freePort(t)
	s := startRedis(t, port, plain(port)...)
	admin := &redis.Options{Addr: s.address}
	do(t, admin, "ZADD", llama.Key, 1, "10.0.0.1:8000")
	do(t, admin, "ACL", "SETUSER", "steelyard", "on", ">pw", "~inflight:*", "+zrange")
	o := patient(s.address)
	o.Username, o.PasswordFile = "steelyard", writeFile(t, "password", "pw")
	r := start(t, o, llama)
	got := r.until("read", func(r Result) bool { return r.Requests["10.0.0.1:8000"] == 1 })
	wantError(t, got.Err, llama.Key, "grant +role")
	do(t, admin, "ACL", "SETUSER", "steelyard", "+role")
	r.until("read without an error", read)
}

func TestRoleWithoutAReplicaDoubtsNothing(t *testing.T) {
	replica := func(state string, offset int64) []any { return []any{"slave", "10.0.0.9", int64(6379), state, offset} }
	for name, answer := range map[string]any{
		"a primary":                 []any{"master", int64(12), []any{}},
		"a sentinel":                []any{"sentinel", []any{"main"}},
		"no answer":                 nil,
		"a replica in order":        replica("connected", 12),
		"an answer that is cut":     replica("connect", 0)[:3],
		"something that is no list": "slave",
	} {
		r := replication{maxSilence: maxSilence}
		if err := r.check(answer, nil, time.Unix(100, 0)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	r := replication{maxSilence: maxSilence}
	if err := r.check(nil, errors.New("ERR unknown command 'role'"), time.Unix(100, 0)); err != nil {
		t.Errorf("a proxy that does not know the command: %v", err)
	}
	for i, step := range []struct {
		offset int64
		at     int64 // seconds
		old    bool
	}{
		{12, 100, false}, {12, 115, false}, {12, 116, true}, {13, 117, false}, {13, 132, false}, {7, 140, false},
		{7, 156, true},
	} {
		if err := r.check(replica("connected", step.offset), nil, time.Unix(step.at, 0)); (err != nil) != step.old {
			t.Errorf("step %d: %v, want an error: %v", i, err, step.old)
		}
	}
}
