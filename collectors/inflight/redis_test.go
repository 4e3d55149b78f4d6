package inflight

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// redisServer finds the real redis-server, which these tests do not do without.
func redisServer(t testing.TB) string {
	t.Helper()
	if path := os.Getenv("REDIS_SERVER"); path != "" {
		return path
	}
	if path, err := filepath.Abs("../../.tools/bin/redis-server"); err == nil {
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	path, err := exec.LookPath("redis-server")
	if err != nil {
		t.Fatal("no redis-server in $REDIS_SERVER, .tools/bin or $PATH: run `make tools`")
	}
	return path
}

// A process is a running redis-server.
type process struct {
	address string
	cmd     *exec.Cmd
	output  *bytes.Buffer
}

// startRedis runs a redis-server on port with further arguments and waits until
// it listens.
func startRedis(t testing.TB, port int, args ...string) *process {
	t.Helper()
	p := &process{address: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), output: &bytes.Buffer{}}
	p.cmd = exec.Command(redisServer(t), args...)
	p.cmd.Dir = t.TempDir()
	p.cmd.Stdout, p.cmd.Stderr = p.output, p.output
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("starting redis-server: %v", err)
	}
	t.Cleanup(p.kill)
	eventually(t, "redis-server listens", func() bool {
		c, err := net.DialTimeout("tcp", p.address, time.Second)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
	return p
}

// kill is SIGKILL; killing twice is fine.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// plain returns the arguments of a server that keeps nothing on disk, and lets a replica have its data at once.
func plain(port int, more ...string) []string {
	return append([]string{"--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no",
		"--repl-diskless-sync-delay", "0"}, more...)
}

// freePort returns a TCP port without a listener right now.
func freePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// do runs one command on a client of the tests' own.
func do(t testing.TB, o *redis.Options, args ...any) any {
	t.Helper()
	c := redis.NewClient(o)
	defer c.Close()
	v, err := c.Do(context.Background(), args...).Result()
	if err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	return v
}

// eventually waits for a condition; the deadline only bounds a failing test.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited without success until %s", what)
		}
	}
}

// A run is a Poller at work and its results.
type run struct {
	t       testing.TB
	results chan []Result
	stop    func() // ends the poller and waits for it
}

// start runs a Poller until the test ends. Results that no test waits for are
// dropped, the oldest first.
func start(t testing.TB, o Options, keys ...Key) *run {
	t.Helper()
	p, err := New(o, nil, quiet)
	if err != nil {
		t.Fatal(err)
	}
	return startPoller(t, p, keys...)
}

func startPoller(t testing.TB, p *Poller, keys ...Key) *run {
	t.Helper()
	r := &run{t: t, results: make(chan []Result, 1)}
	p.sink = r.sink
	p.SetKeys(keys)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run returned %v", err)
		}
	})
	t.Cleanup(r.stop)
	return r
}

func (r *run) sink(results []Result) {
	select {
	case <-r.results:
	default:
	}
	r.results <- results
}

// next returns the first result of the next poll.
func (r *run) next() Result {
	r.t.Helper()
	select {
	case results := <-r.results:
		return results[0]
	case <-time.After(20 * time.Second):
		r.t.Fatal("no poll within 20 s")
		return Result{}
	}
}

// until waits for a first result that fits.
func (r *run) until(what string, ok func(Result) bool) Result {
	r.t.Helper()
	var last Result
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); {
		if last = r.next(); ok(last) {
			return last
		}
	}
	r.t.Fatalf("no result that is %s; the last one: %s", what, describe(last))
	return last
}

func read(r Result) bool   { return r.Err == nil && r.Requests != nil }
func failed(r Result) bool { return r.Err != nil }

func describe(r Result) string {
	return fmt.Sprintf("requests %v, error %v", r.Requests, r.Err)
}

// options for a server on loopback: the tests share a busy machine, so they
// wait longer than the product does.
func patient(address string) Options {
	return Options{Addresses: []string{address}, Interval: 20 * time.Millisecond, Timeout: 20 * time.Millisecond}
}
