package scrape

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"steelyard/e2e/rig/certs"
	"steelyard/internal/credentials"
)

// An authority signs certificates and keeps them as files.
type authority struct {
	dir  string
	own  *certs.Pair
	file string

	present atomic.Pointer[tls.Certificate] // what its servers present from now on; nil: their own
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{dir: t.TempDir(), own: certs.New("authority", nil)}
	a.file = filepath.Join(a.dir, "ca.pem")
	if err := os.WriteFile(a.file, a.own.CertPEM(), 0o600); err != nil {
		t.Fatal(err)
	}
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

// issue signs a certificate and saves it with its key.
func (a *authority) issue(t *testing.T, name string) (certFile, keyFile string) {
	t.Helper()
	p := certs.New(name, a.own, func(c *x509.Certificate) { c.DNSNames = []string{name} })
	certFile, keyFile = filepath.Join(a.dir, name+".pem"), filepath.Join(a.dir, name+".key")
	if err := p.Save(certFile, keyFile); err != nil {
		t.Fatal(err)
	}
	return certFile, keyFile
}

// serveTLS answers with the number of requests that the name of the client's
// certificate has letters; without a certificate no client is let in.
func (a *authority) serveTLS(t *testing.T) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, page(len(r.TLS.PeerCertificates[0].Subject.CommonName)))
	}))
	certFile, keyFile := a.issue(t, "server")
	s.TLS = &tls.Config{
		Certificates: []tls.Certificate{must(tls.LoadX509KeyPair(certFile, keyFile))(t)},
		ClientAuth:   tls.RequireAndVerifyClientCert,
		ClientCAs:    a.own.Pool(),
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
	good := credentials.Client{CAFile: a.file, CertFile: cert, KeyFile: key}
	with := func(change func(*credentials.Client)) credentials.Client {
		c := good
		change(&c)
		return c
	}
	for _, c := range []struct {
		name, url, kind, words string
		tls                    credentials.Client
	}{
		{"right", s.URL, KindOK, "", good},
		{"right name of the server", s.URL, KindOK, "", with(func(c *credentials.Client) { c.ServerName = "server" })},
		{"authority unknown, but not asked", s.URL, KindOK, "",
			with(func(c *credentials.Client) { c.CAFile, c.InsecureSkipVerify = "", true })},
		{"authority unknown", s.URL, KindTLS, "unknown authority", with(func(c *credentials.Client) { c.CAFile = "" })},
		{"wrong name of the server", s.URL, KindTLS, "not other",
			with(func(c *credentials.Client) { c.ServerName = "other" })},
		{"no certificate to show", s.URL, KindTLS, "certificate required",
			with(func(c *credentials.Client) { c.CertFile, c.KeyFile = "", "" })},
		{"a stranger's certificate", s.URL, KindTLS, "",
			with(func(c *credentials.Client) { c.CertFile, c.KeyFile = stranger, strangerKey })},
		{"the server speaks no TLS", "https" + plain.URL[len("http"):], KindTLS, "HTTP response to HTTPS client", good},
		{"no CA file", s.URL, KindConfig, "reading CA file",
			with(func(c *credentials.Client) { c.CAFile = "/nowhere" })},
		{"CA file without certificates", s.URL, KindConfig, "no PEM certificate",
			with(func(c *credentials.Client) { c.CAFile = key })},
		{"no client certificate file", s.URL, KindConfig, "loading client certificate",
			with(func(c *credentials.Client) { c.CertFile = "/nowhere" })},
		{"certificate without key", s.URL, KindConfig, "loading client certificate",
			with(func(c *credentials.Client) { c.KeyFile = "" })},
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
	tgt.TLS = credentials.Client{CAFile: a.file, CertFile: cert, KeyFile: key}
	l, n := loopAndNetwork(t, tgt)
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
		n.credentials.Refresh(t.Context())
	}
	if r := l.scrape(t.Context()); r.Err != nil || r.Report.Queue.Value != 5 {
		t.Errorf("queue %v, error %v; want the new certificate's 5", r.Report.Queue, r.Err)
	}
}
