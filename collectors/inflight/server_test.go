package inflight

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"steelyard/e2e/rig/certs"
	"steelyard/internal/credentials"
)

// The tests in this file are with real servers.

var llama = Key{Cluster: "llama", Key: "inflight:llama"}

func TestRedisKilledAndBack(t *testing.T) {
	port := freePort(t)
	s := startRedis(t, port, plain(port)...)
	do(t, &redis.Options{Addr: s.address}, "ZADD", llama.Key, 3, "10.0.0.1:8000", "inf", "10.0.0.2:8000")
	r := start(t, patient(s.address), llama)
	got := r.until("read", func(r Result) bool { return r.Requests != nil })
	if d := cmp.Diff(map[string]float64{"10.0.0.1:8000": 3}, got.Requests); d != "" {
		t.Errorf("Requests (-want +got):\n%s", d)
	}
	wantError(t, got.Err, llama.Key, "10.0.0.2:8000", "+Inf")

	s.kill()
	away := r.until("an error of the source",
		func(r Result) bool { return strings.Contains(fmt.Sprint(r.Err), "refused") })
	if away.Requests != nil {
		t.Errorf("while away: %s", describe(away))
	}
	wantError(t, away.Err, llama.Key, s.address)
	before := runtime.NumGoroutine()
	for range 100 {
		r.next()
	}
	if after := runtime.NumGoroutine(); after > before+10 {
		t.Errorf("%d goroutines before 100 failed polls, %d after", before, after)
	}

	s = startRedis(t, port, plain(port)...)
	r.until("empty again", func(r Result) bool { return r.Err == nil && r.Requests == nil })
	do(t, &redis.Options{Addr: s.address}, "ZADD", llama.Key, 5, "10.0.0.1:8000")
	got = r.until("read again", read)
	if d := cmp.Diff(map[string]float64{"10.0.0.1:8000": 5}, got.Requests); d != "" {
		t.Errorf("Requests after the restart (-want +got):\n%s", d)
	}
}

func TestRedisThatHangsCostsOnePollAtATime(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // takes connections and never answers
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	r := start(t, patient(l.Addr().String()), llama)
	wantError(t, r.next().Err, llama.Key, "no answer within 20ms")
	before := runtime.NumGoroutine()
	for range 50 {
		wantError(t, r.next().Err, llama.Key)
	}
	if after := runtime.NumGoroutine(); after > before+10 {
		t.Errorf("%d goroutines before 50 hanging polls, %d after", before, after)
	}
}

func TestUserOfLeastRightsAndRotatedPassword(t *testing.T) {
	port := freePort(t)
	s := startRedis(t, port, plain(port)...)
	admin := &redis.Options{Addr: s.address}
	do(t, admin, "ZADD", llama.Key, 1, "10.0.0.1:8000")
	do(t, admin, "ZADD", "secret", 1, "x")
	do(t, admin, "ACL", "SETUSER", "steelyard", "on", ">first", "~inflight:*", "+zrange", "+role")

	o := patient(s.address)
	o.Username, o.PasswordFile = "steelyard", writeFile(t, "password", "first\n")
	r := start(t, o, llama)
	r.until("read", read)

	do(t, admin, "ACL", "SETUSER", "steelyard", "resetpass", ">second")
	do(t, admin, "CLIENT", "KILL", "USER", "steelyard")
	refused := r.until("refused", func(r Result) bool { return strings.Contains(fmt.Sprint(r.Err), "WRONGPASS") })
	if strings.Contains(refused.Err.Error(), "first") {
		t.Errorf("the password is in the error: %v", refused.Err)
	}
	if err := os.WriteFile(o.PasswordFile, []byte("second"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.until("read with the new password", read)

	forbidden := start(t, o, Key{"llama", "secret"})
	wantError(t, forbidden.until("forbidden",
		func(r Result) bool { return strings.Contains(fmt.Sprint(r.Err), "NOPERM") }).Err,
		`"secret"`, "the ACL user may not read it")
}

func TestDatabaseOtherThanZero(t *testing.T) {
	port := freePort(t)
	s := startRedis(t, port, plain(port)...)
	do(t, &redis.Options{Addr: s.address, DB: 3}, "ZADD", llama.Key, 1, "10.0.0.1:8000")
	o := patient(s.address)
	o.DB = 3
	start(t, o, llama).until("read", read)
}

func TestTLSWithClientCertificate(t *testing.T) {
	dir := t.TempDir()
	makeCertificates(t, dir)
	port := freePort(t)
	file := func(name string) string { return filepath.Join(dir, name) }
	s := startRedis(t, port, "--port", "0", "--tls-port", strconv.Itoa(port), "--bind", "127.0.0.1", "--save", "",
		"--tls-ca-cert-file", file("ca.crt"), "--tls-cert-file", file("server.crt"), "--tls-key-file",
		file("server.key"))

	o := patient(s.address)
	o.Interval, o.Timeout = time.Second, time.Second // handshakes cost
	o.Credentials = credentials.New(quiet)
	o.TLS = &credentials.Client{CAFile: file("ca.crt"), CertFile: file("client.crt"), KeyFile: file("client.key"),
		ServerName: "redis.test"}
	start(t, o, llama).until("answered", func(r Result) bool { return r.Err == nil })

	unnamed := *o.TLS
	unnamed.ServerName = ""
	o.TLS = &unnamed
	got := start(t, o, llama).until("refused", failed)
	wantError(t, got.Err, llama.Key, "TLS with Redis at "+s.address, "127.0.0.1")
	o.TLS = nil
	got = start(t, o, llama).until("refused", failed)
	wantError(t, got.Err, llama.Key, "Redis at "+s.address, "hangs up before it answers: configure redis.tls")
}

func TestRedisClusterOfOneNode(t *testing.T) {
	port, bus := freePort(t), freePort(t)
	s := startRedis(t, port, plain(port, "--cluster-enabled", "yes", "--cluster-port", strconv.Itoa(bus))...)
	admin := &redis.Options{Addr: s.address}
	do(t, admin, "CLUSTER", "ADDSLOTSRANGE", 0, 16383)
	eventually(t, "the cluster is ok", func() bool {
		return strings.Contains(do(t, admin, "CLUSTER", "INFO").(string), "cluster_state:ok")
	})
	do(t, admin, "ZADD", "inflight:a", 1, "10.0.0.1:8000")
	do(t, admin, "ZADD", "inflight:b", 2, "10.0.0.1:8000")
	do(t, admin, "ACL", "SETUSER", "steelyard", "on", ">pw", "~inflight:*", "+zrange", "+cluster|slots")

	o := patient(s.address)
	o.Cluster, o.Username, o.PasswordFile = true, "steelyard", writeFile(t, "password", "pw")
	r := start(t, o, Key{"a", "inflight:a"}, Key{"b", "inflight:b"})
	for {
		r.until("read", read)
		results := <-r.results
		if results[0].Err == nil && results[1].Err == nil {
			if results[0].Requests["10.0.0.1:8000"] != 1 || results[1].Requests["10.0.0.1:8000"] != 2 {
				t.Errorf("read %s and %s", describe(results[0]), describe(results[1]))
			}
			break
		}
	}
	s.kill()
	r.until("failed", failed)
	startRedis(t, port, plain(port, "--cluster-enabled", "yes", "--cluster-port", strconv.Itoa(bus))...)
	do(t, admin, "CLUSTER", "ADDSLOTSRANGE", 0, 16383)
	do(t, admin, "ACL", "SETUSER", "steelyard", "on", ">pw", "~inflight:*", "+zrange", "+cluster|slots")
	r.until("reached again", func(r Result) bool { return r.Err == nil })
}

func TestSentinelNamesTheMaster(t *testing.T) {
	port := freePort(t)
	s := startRedis(t, port, plain(port)...)
	do(t, &redis.Options{Addr: s.address}, "ZADD", llama.Key, 4, "10.0.0.1:8000")
	watch := freePort(t)
	config := writeFile(t, "sentinel.conf", fmt.Sprintf(
		"port %d\nbind 127.0.0.1\nsentinel monitor main 127.0.0.1 %d 1\n"+
			"sentinel down-after-milliseconds main 1000\n", watch, port))
	sentinel := startRedis(t, watch, config, "--sentinel")

	o := patient(sentinel.address)
	o.MasterName = "main"
	r := start(t, o, llama)
	if got := r.until("read", read); got.Requests["10.0.0.1:8000"] != 4 {
		t.Errorf("read %s", describe(got))
	}
	s.kill()
	r.until("failed", failed)
	s = startRedis(t, port, plain(port)...)
	do(t, &redis.Options{Addr: s.address}, "ZADD", llama.Key, 6, "10.0.0.1:8000")
	if got := r.until("read again", read); got.Requests["10.0.0.1:8000"] != 6 {
		t.Errorf("read %s", describe(got))
	}
}

// The passwords of Sentinels and of Redis are two.
func TestSentinelsWithAPasswordOfTheirOwn(t *testing.T) {
	port := freePort(t)
	s := startRedis(t, port, plain(port)...)
	do(t, &redis.Options{Addr: s.address}, "ZADD", llama.Key, 4, "10.0.0.1:8000")
	watch := freePort(t)
	config := writeFile(t, "sentinel.conf", fmt.Sprintf("port %d\nbind 127.0.0.1\nrequirepass old\n"+
		"sentinel monitor main 127.0.0.1 %d 1\n", watch, port))
	sentinel := startRedis(t, watch, config, "--sentinel")

	o := patient(sentinel.address)
	o.MasterName = "main"
	start(t, o, llama).until("refused", func(r Result) bool { return strings.Contains(fmt.Sprint(r.Err), "NOAUTH") })
	o.SentinelPasswordFile = writeFile(t, "sentinels", "old\n")
	start(t, o, llama).until("read", read)

	do(t, &redis.Options{Addr: sentinel.address, Password: "old"}, "ACL", "SETUSER", "steelyard", "on", ">new",
		"+@all", "allchannels")
	o.SentinelUsername = "steelyard"
	if err := os.WriteFile(o.SentinelPasswordFile, []byte("new"), 0o600); err != nil {
		t.Fatal(err)
	}
	start(t, o, llama).until("read as a user, with the other password", read)
}

// A certificate that is renewed serves the connections that begin after that: the one that there is goes on.
func TestARenewedClientCertificateIsThatOfNewConnections(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	makeCertificates(t, dir)
	makeCertificates(t, other) // of another authority, which signs the renewed certificate
	port := freePort(t)
	file := func(name string) string { return filepath.Join(dir, name) }
	s := startRedis(t, port, "--port", "0", "--tls-port", strconv.Itoa(port), "--bind", "127.0.0.1", "--save", "",
		"--tls-ca-cert-file", file("ca.crt"), "--tls-cert-file", file("server.crt"), "--tls-key-file",
		file("server.key"))
	admin := adminOf(t, s.address, dir)
	admin("ZADD", llama.Key, 4, "10.0.0.1:8000")

	o := patient(s.address)
	o.Interval, o.Timeout = time.Second, time.Second // handshakes cost
	o.Credentials = credentials.New(quiet)
	o.TLS = &credentials.Client{CAFile: file("ca.crt"), CertFile: file("client.crt"), KeyFile: file("client.key"),
		ServerName: "redis.test"}
	r := start(t, o, llama)
	r.until("read", read)
	admin("CONFIG", "SET", "tls-ca-cert-file", filepath.Join(other, "ca.crt"))
	admin("CLIENT", "KILL", "TYPE", "normal")
	r.until("refused with the old certificate", failed)

	for _, name := range []string{"client.crt", "client.key"} {
		text, err := os.ReadFile(filepath.Join(other, name))
		if err == nil {
			err = os.WriteFile(file(name), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // a new content counts once it has been read twice
		o.Credentials.Refresh(t.Context())
	}
	r.until("read with the new certificate", read)
}

// adminOf returns what runs commands on one connection with the certificates of a folder.
func adminOf(t *testing.T, address, dir string) func(args ...any) {
	t.Helper()
	cert, err := tls.LoadX509KeyPair(filepath.Join(dir, "client.crt"), filepath.Join(dir, "client.key"))
	if err != nil {
		t.Fatal(err)
	}
	ca, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	client := redis.NewClient(&redis.Options{Addr: address, PoolSize: 1, MinIdleConns: 1,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}, RootCAs: roots, ServerName: "redis.test"}})
	conn := client.Conn()
	t.Cleanup(func() { _ = errors.Join(conn.Close(), client.Close()) })
	return func(args ...any) {
		t.Helper()
		if _, err := conn.Do(context.Background(), args...).Result(); err != nil {
			t.Fatalf("%v: %v", args, err)
		}
	}
}

// makeCertificates writes a CA and a server's and a client's certificate of it,
// the server's for redis.test only.
func makeCertificates(t *testing.T, dir string) {
	t.Helper()
	ca := certs.New("CA", nil)
	pairs := map[string]*certs.Pair{"ca": ca}
	for _, name := range []string{"server", "client"} {
		pairs[name] = certs.New(name, ca, func(c *x509.Certificate) {
			c.DNSNames, c.IPAddresses = []string{"redis.test"}, nil
		})
	}
	for name, p := range pairs {
		path := filepath.Join(dir, name)
		if err := p.Save(path+".crt", path+".key"); err != nil {
			t.Fatal(err)
		}
	}
}

// One poll of ten clusters with a hundred endpoints each, from a real server on
// loopback:
//
//	go test -run '^$' -bench Poll -benchmem ./collectors/inflight
func BenchmarkPoll(b *testing.B) {
	port := freePort(b)
	s := startRedis(b, port, plain(port)...)
	var keys []Key
	for c := range 10 {
		key := Key{fmt.Sprint(c), fmt.Sprint("inflight:", c)}
		args := []any{"ZADD", key.Key}
		for m := range 100 {
			args = append(args, m%7, fmt.Sprintf("10.0.%d.%d:8000", c, m))
		}
		do(b, &redis.Options{Addr: s.address}, args...)
		keys = append(keys, key)
	}
	p, err := New(Options{Addresses: []string{s.address}, Interval: 10 * time.Second, Timeout: 10 * time.Second}, nil,
		quiet)
	if err != nil {
		b.Fatal(err)
	}
	client := redis.NewUniversalClient(p.o.universal(p.dialer))
	defer p.dialer.close()
	defer client.Close()
	b.ReportAllocs()
	for b.Loop() {
		for _, r := range p.read(context.Background(), client, keys) {
			if r.Err != nil || len(r.Requests) != 100 {
				b.Fatalf("%d members, %v", len(r.Requests), r.Err)
			}
		}
	}
}
