package inflight

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
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
	o.TLS = &TLS{CAFile: file("ca.crt"), CertFile: file("client.crt"), KeyFile: file("client.key"),
		ServerName: "redis.test"}
	start(t, o, llama).until("answered", func(r Result) bool { return r.Err == nil })

	unnamed := *o.TLS
	unnamed.ServerName = ""
	o.TLS = &unnamed
	got := start(t, o, llama).until("refused", failed)
	wantError(t, got.Err, llama.Key, "TLS with Redis at "+s.address, "127.0.0.1")
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
	o.Mode, o.Username, o.PasswordFile = ModeCluster, "steelyard", writeFile(t, "password", "pw")
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
	o.Mode, o.MasterName = ModeSentinel, "main"
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

// makeCertificates writes a CA and a server's and a client's certificate of it,
// the server's for redis.test only.
func makeCertificates(t *testing.T, dir string) {
	t.Helper()
	ca := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "CA"}, IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	caKey := makeCertificate(t, dir, "ca", ca, ca, nil)
	for i, name := range []string{"server", "client"} {
		c := &x509.Certificate{SerialNumber: big.NewInt(int64(2 + i)), Subject: pkix.Name{CommonName: name},
			DNSNames: []string{"redis.test"}, NotBefore: ca.NotBefore, NotAfter: ca.NotAfter,
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
		makeCertificate(t, dir, name, c, ca, caKey)
	}
}

func makeCertificate(t *testing.T, dir, name string, c, parent *x509.Certificate,
	parentKey *ecdsa.PrivateKey) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if parentKey == nil {
		parentKey = key
	}
	cert, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, parentKey)
	if err != nil {
		t.Fatal(err)
	}
	keyBytes, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for suffix, block := range map[string]*pem.Block{
		".crt": {Type: "CERTIFICATE", Bytes: cert},
		".key": {Type: "EC PRIVATE KEY", Bytes: keyBytes},
	} {
		if err := os.WriteFile(filepath.Join(dir, name+suffix), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return key
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
		nil)
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
