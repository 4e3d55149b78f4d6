package credentials

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"steelyard/e2e/rig/certs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// An issuer signs certificates.
type issuer struct {
	own *certs.Pair
	pem []byte
}

func newIssuer(name string) *issuer {
	own := certs.New(name, nil)
	return &issuer{own, own.CertPEM()}
}

func (i *issuer) issue(name string, until time.Time) (cert, key []byte) {
	p := certs.New(name, i.own, func(c *x509.Certificate) {
		c.DNSNames, c.NotBefore, c.NotAfter = []string{name}, until.Add(-2*time.Hour), until
	})
	return p.CertPEM(), p.KeyPEM()
}

func write(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestAPanicWhileAFileIsReadIsTheGuards: the other files are kept up to date.
func TestAPanicWhileAFileIsReadIsTheGuards(t *testing.T) {
	s := New(slog.New(slog.DiscardHandler))
	broken, path := false, filepath.Join(t.TempDir(), "ca.pem")
	recovered := make(chan any, 1)
	s.Guard = func() {
		if r := recover(); r != nil {
			recovered <- r
		}
	}
	s.now = func() time.Time {
		if broken {
			broken = false
			panic("a defect")
		}
		return time.Now()
	}
	write(t, path, newIssuer("first").pem)
	s.Follow(map[File]bool{{Cert: path}: true})
	s.Refresh(t.Context())
	write(t, path, newIssuer("second").pem)
	s.Refresh(t.Context())
	broken = true
	s.Refresh(t.Context())
	if got := <-recovered; got != "a defect" {
		t.Errorf("recovered %v", got)
	}
	s.Refresh(t.Context())
	if name, _, problem := held(s, File{Cert: path}); name != "second" {
		t.Errorf("the file in use is that of %s, %s", name, problem)
	}
}

// held returns what the store has of a file: the name of its first certificate, how many there are, and the error.
func held(s *Store, f File) (name string, certificates int, problem string) {
	m, err := s.State(f)
	if err != nil {
		problem = err.Error()
	}
	if m == nil {
		return "", 0, problem
	}
	return m.Certificates[0].Subject.CommonName, len(m.Certificates), problem
}

func TestAPairIsReplacedWhenBothFilesBelongTogether(t *testing.T) {
	ca := newIssuer("authority")
	oldCert, oldKey := ca.issue("old", time.Now().Add(time.Hour))
	newCert, newKey := ca.issue("new", time.Now().Add(time.Hour))
	expiredCert, expiredKey := ca.issue("expired", time.Now().Add(-time.Minute))
	dir := t.TempDir()
	f := File{Cert: filepath.Join(dir, "cert"), Key: filepath.Join(dir, "key")}
	write(t, f.Cert, oldCert)
	write(t, f.Key, oldKey)
	var log bytes.Buffer
	s := New(slog.New(slog.NewTextHandler(&log, nil)))
	if m, err := s.Get(t.Context(), f); err != nil || m.Pair == nil || m.Pool != nil {
		t.Fatalf("%+v, %v", m, err)
	}
	for _, step := range []struct {
		what         string
		cert, key    []byte
		once, twice  string // the name that is in use after so many readings
		problemTwice string
	}{
		{"nothing changes", oldCert, oldKey, "old", "old", ""},
		{"the new certificate is there before its key", newCert, oldKey, "old", "old", "does not match"},
		{"the key follows", newCert, newKey, "old", "new", ""},
		{"half of a certificate", newCert[:len(newCert)/2], newKey, "new", "new", "ends within a PEM block"},
		{"an empty file", nil, newKey, "new", "new", "no PEM certificate"},
		{"half of a key", newCert, newKey[:len(newKey)/2], "new", "new", "failed to find any PEM data in key"},
		{"one that has expired", expiredCert, expiredKey, "new", "new", "has expired"},
		{"the previous one is put back", oldCert, oldKey, "new", "old", ""},
	} {
		write(t, f.Cert, step.cert)
		write(t, f.Key, step.key)
		s.Refresh(t.Context())
		if name, _, _ := held(s, f); name != step.once {
			t.Errorf("%s: after one reading %q, want %q", step.what, name, step.once)
		}
		s.Refresh(t.Context())
		name, _, problem := held(s, f)
		if name != step.twice || (problem == "") != (step.problemTwice == "") ||
			!strings.Contains(problem, step.problemTwice) {
			t.Errorf("%s: after two readings %q, %q; want %q, %q", step.what, name, problem, step.twice,
				step.problemTwice)
		}
	}
	if err := os.Remove(f.Key); err != nil {
		t.Fatal(err)
	}
	s.Refresh(t.Context())
	s.Refresh(t.Context())
	if name, _, problem := held(s, f); name != "old" || !strings.Contains(problem, "no such file") {
		t.Errorf("without the key: %q, %q", name, problem)
	}
	for line, want := range map[string]int{"certificate file renewed": 2, "cannot be used, its previous": 6} {
		if n := strings.Count(log.String(), line); n != want {
			t.Errorf("%d lines %q, want %d:\n%s", n, line, want, log.String())
		}
	}
}

func TestATruncatedBundleOfAuthoritiesDoesNotReplaceTheWhole(t *testing.T) {
	a, b, c := newIssuer("a"), newIssuer("b"), newIssuer("c")
	two, three := append(bytes.Clone(a.pem), b.pem...), append(append(bytes.Clone(a.pem), b.pem...), c.pem...)
	f := File{Cert: filepath.Join(t.TempDir(), "ca")}
	write(t, f.Cert, two)
	s := New(slog.New(slog.DiscardHandler))
	if m, err := s.Get(t.Context(), f); err != nil || m.Pool == nil || m.Pair != nil {
		t.Fatalf("%+v, %v", m, err)
	}
	for cut := range len(three) {
		if cut%7 != 0 && cut != len(a.pem) { // all of them take a second
			continue
		}
		write(t, f.Cert, three[:cut])
		s.Refresh(t.Context())
		if _, n, _ := held(s, f); n != 2 {
			t.Fatalf("%d of %d bytes replaced two authorities by %d", cut, len(three), n)
		}
		write(t, f.Cert, two)
		s.Refresh(t.Context())
	}
	write(t, f.Cert, three)
	s.Refresh(t.Context())
	s.Refresh(t.Context())
	if _, n, problem := held(s, f); n != 3 || problem != "" {
		t.Errorf("%d authorities, %q; want three", n, problem)
	}
}

func TestAFileThatIsMissingAtFirstIsReadOnceItIsThere(t *testing.T) {
	f := File{Cert: filepath.Join(t.TempDir(), "ca")}
	s := New(slog.New(slog.DiscardHandler))
	if _, err := s.Get(t.Context(), f); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("before: %v", err)
	}
	s.Refresh(t.Context())
	if _, _, problem := held(s, f); !strings.Contains(problem, "no such file") {
		t.Errorf("its state is %q", problem)
	}
	write(t, f.Cert, newIssuer("a").pem)
	s.Refresh(t.Context())
	if name, _, problem := held(s, f); name != "a" || problem != "" {
		t.Errorf("it is there: %q, %q", name, problem)
	}
	s.Follow(map[File]bool{{Cert: "other"}: true})
	if m, err := s.State(f); m != nil || err != nil {
		t.Errorf("forgotten: %v, %v", m, err)
	}
}

// TestAnOpenConnectionOutlivesARotation: new handshakes have the new certificate and authorities, on both sides.
func TestAnOpenConnectionOutlivesARotation(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	rotate := func() {
		ca := newIssuer("authority")
		for _, name := range []string{"server", "client"} {
			cert, key := ca.issue(name, time.Now().Add(time.Hour))
			write(t, path(name), cert)
			write(t, path(name+".key"), key)
		}
		write(t, path("ca"), ca.pem)
	}
	rotate()
	s := New(slog.New(slog.DiscardHandler))
	server, err := s.Server(t.Context(), Server{CertFile: path("server"), KeyFile: path("server.key"),
		ClientCAFile: path("ca")})
	if err != nil {
		t.Fatal(err)
	}
	connect := func() (near, far *tls.Conn) {
		t.Helper()
		config, err := s.Client(t.Context(), Client{CAFile: path("ca"), CertFile: path("client"),
			KeyFile: path("client.key"), ServerName: "server"})
		if err != nil {
			t.Fatal(err)
		}
		a, b := net.Pipe()
		near, far = tls.Client(a, config), tls.Server(b, server)
		done := make(chan error, 1)
		go func() { done <- far.Handshake() }()
		if err := errors.Join(near.Handshake(), <-done); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { a.Close(); b.Close() })
		return near, far
	}
	near, far := connect()
	before := far.ConnectionState().PeerCertificates[0]
	rotate()
	s.Refresh(t.Context())
	s.Refresh(t.Context())
	_, renewed := connect()
	if renewed.ConnectionState().PeerCertificates[0].Equal(before) {
		t.Error("a new connection has the old certificate")
	}
	go func() { _, _ = near.Write([]byte("still here")) }()
	got := make([]byte, len("still here"))
	if _, err := io.ReadFull(far, got); err != nil || string(got) != "still here" {
		t.Errorf("the open connection: %q, %v", got, err)
	}
}

func TestFilesAreReadBeforeAnyoneAsksForThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := newIssuer("authority")
		f := File{Cert: filepath.Join(t.TempDir(), "ca.pem")}
		write(t, f.Cert, i.pem)
		s := New(slog.New(slog.DiscardHandler))
		s.Follow(map[File]bool{f: true})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		begun := time.Now()
		go func() { defer close(done); _ = s.Run(ctx) }()
		synctest.Wait()
		if name, n, problem := held(s, f); name != "authority" || n != 1 || problem != "" {
			t.Errorf("at the start the store has %q, %d certificates, %q", name, n, problem)
		}
		if waited := time.Since(begun); waited != 0 {
			t.Errorf("that took %v", waited)
		}
		cancel()
		<-done
	})
}
