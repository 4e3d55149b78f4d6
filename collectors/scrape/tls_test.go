package scrape

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"
)

// An authority signs certificates and keeps them as files.
type authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string

	present atomic.Pointer[tls.Certificate] // what its servers present from now on; nil: their own
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{dir: t.TempDir()}
	a.key = newKey(t)
	template := certificate("authority")
	template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
	der := a.sign(t, template, template, a.key)
	a.cert = must(x509.ParseCertificate(der))(t)
	a.file = a.save(t, "ca.pem", "CERTIFICATE", der)
	return a
}

func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	return must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
}

func certificate(name string) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject:      pkix.Name{CommonName: name},
		DNSNames:     []string{name},
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(time.Hour),
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
}

func (a *authority) sign(t *testing.T, template, parent *x509.Certificate, key *ecdsa.PrivateKey) []byte {
	return must(x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, a.key))(t)
}

// issue signs a certificate and saves it with its key.
func (a *authority) issue(t *testing.T, name string) (certFile, keyFile string) {
	t.Helper()
	key := newKey(t)
	certFile = a.save(t, name+".pem", "CERTIFICATE", a.sign(t, certificate(name), a.cert, key))
	keyFile = a.save(t, name+".key", "PRIVATE KEY", must(x509.MarshalPKCS8PrivateKey(key))(t))
	return certFile, keyFile
}

func (a *authority) save(t *testing.T, name, kind string, der []byte) string {
	t.Helper()
	path := filepath.Join(a.dir, name)
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// serveTLS answers with the number of requests that the name of the client's
// certificate has letters; without a certificate no client is let in.
func (a *authority) serveTLS(t *testing.T) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, page(len(r.TLS.PeerCertificates[0].Subject.CommonName)))
	}))
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	certFile, keyFile := a.issue(t, "server")
	s.TLS = &tls.Config{
		Certificates: []tls.Certificate{must(tls.LoadX509KeyPair(certFile, keyFile))(t)},
		ClientAuth:   tls.RequireAndVerifyClientCert,
		ClientCAs:    pool,
	}
	s.TLS.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		config := s.TLS.Clone()
		if c := a.present.Load(); c != nil {
			config.Certificates = []tls.Certificate{*c}
		}
		return config, nil
	}
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // refused handshakes are what is tested
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func TestClientCertificate(t *testing.T) {
	a := newAuthority(t)
	s := a.serveTLS(t)
	cert, key := a.issue(t, "client")
	stranger, strangerKey := newAuthority(t).issue(t, "stranger")
	plain := serve(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, page(1)) })
	good := TLS{CAFile: a.file, CertFile: cert, KeyFile: key}
	with := func(change func(*TLS)) TLS {
		c := good
		change(&c)
		return c
	}
	for _, c := range []struct {
		name, url, kind, words string
		tls                    TLS
	}{
		{"right", s.URL, KindOK, "", good},
		{"right name of the server", s.URL, KindOK, "", with(func(c *TLS) { c.ServerName = "server" })},
		{"authority unknown, but not asked", s.URL, KindOK, "",
			with(func(c *TLS) { c.CAFile, c.InsecureSkipVerify = "", true })},
		{"authority unknown", s.URL, KindTLS, "unknown authority", with(func(c *TLS) { c.CAFile = "" })},
		{"wrong name of the server", s.URL, KindTLS, "not other", with(func(c *TLS) { c.ServerName = "other" })},
		{"no certificate to show", s.URL, KindTLS, "certificate required",
			with(func(c *TLS) { c.CertFile, c.KeyFile = "", "" })},
		{"a stranger's certificate", s.URL, KindTLS, "",
			with(func(c *TLS) { c.CertFile, c.KeyFile = stranger, strangerKey })},
		{"the server speaks no TLS", "https" + plain.URL[len("http"):], KindTLS, "HTTP response to HTTPS client", good},
		{"no CA file", s.URL, KindConfig, "reading CA file", with(func(c *TLS) { c.CAFile = "/nowhere" })},
		{"CA file without certificates", s.URL, KindConfig, "no PEM certificate",
			with(func(c *TLS) { c.CAFile = key })},
		{"no client certificate file", s.URL, KindConfig, "loading client certificate",
			with(func(c *TLS) { c.CertFile = "/nowhere" })},
		{"certificate without key", s.URL, KindConfig, "loading client certificate",
			with(func(c *TLS) { c.KeyFile = "" })},
	} {
		t.Run(c.name, func(t *testing.T) {
			tgt := patient(c.url)
			tgt.TLS = c.tls
			r := once(t, tgt)
			if c.kind != KindOK {
				wantFailure(t, r, c.kind, c.words)
				return
			}
			if r.Err != nil || r.Report.Queue.Value != float64(len("client")) {
				t.Errorf("queue %v, error %v", r.Report.Queue, r.Err)
			}
		})
	}
}

// The token is for the host and for no one on the way to it.
func TestARedirectFromTLSToPlainTextIsRefused(t *testing.T) {
	var connections atomic.Int32
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://"+r.Host+"/metrics", http.StatusFound)
	}))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	s.StartTLS()
	t.Cleanup(s.Close)
	tgt := patient(s.URL)
	tgt.TLS.InsecureSkipVerify = true
	tgt.BearerTokenFile = write(t, "very-secret")
	wantFailure(t, once(t, tgt), KindRedirect, "redirected to http://"+s.Listener.Addr().String())
	if n := connections.Load(); n != 1 {
		t.Errorf("%d connections, want only the first: the token would go over another in plain text", n)
	}
}

// TestANewConnectionHasTheCurrentCertificateAndAuthorities: the server changes its authority, and the client both
// files.
func TestANewConnectionHasTheCurrentCertificateAndAuthorities(t *testing.T) {
	a, next := newAuthority(t), newAuthority(t)
	s := a.serveTLS(t)
	cert, key := a.issue(t, "old")
	tgt := patient(s.URL)
	tgt.TLS = TLS{CAFile: a.file, CertFile: cert, KeyFile: key}
	l := looped(t, tgt)
	if r := l.scrape(t.Context()); r.Err != nil || r.Report.Queue.Value != 3 {
		t.Fatalf("queue %v, error %v", r.Report.Queue, r.Err)
	}
	serverCert, serverKey := next.issue(t, "server")
	renewed := must(tls.LoadX509KeyPair(serverCert, serverKey))(t)
	a.present.Store(&renewed)
	s.CloseClientConnections()
	wantFailure(t, l.scrape(t.Context()), KindTLS, "unknown authority")

	newCert, newKey := a.issue(t, "newer")
	for from, to := range map[string]string{newCert: cert, newKey: key, next.file: a.file} {
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		l.fetcher.connection.network.credentials.Refresh(t.Context())
	}
	if r := l.scrape(t.Context()); r.Err != nil || r.Report.Queue.Value != 5 {
		t.Errorf("queue %v, error %v; want the new certificate's 5", r.Report.Queue, r.Err)
	}
}
