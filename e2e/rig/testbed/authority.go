package testbed

import (
	"crypto/ecdsa"
	"crypto/x509"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"steelyard/e2e/rig/certs"
)

// An Authority issues certificates for 127.0.0.1.
type Authority struct {
	t    *testing.T
	dir  string
	Cert *x509.Certificate
	key  *ecdsa.PrivateKey
	File string
}

// NewAuthority makes one whose files are in a folder of its own.
func NewAuthority(t *testing.T) *Authority {
	t.Helper()
	a := &Authority{t: t, dir: t.TempDir()}
	a.Cert, a.key, a.File, _ = a.Issue("authority", time.Now().Add(time.Hour))
	return a
}

// Issue makes a certificate until end; the first is the authority's own.
func (a *Authority) Issue(name string, end time.Time) (
	cert *x509.Certificate, key *ecdsa.PrivateKey, certFile, keyFile string) {
	a.t.Helper()
	var authority *certs.Pair
	if a.Cert != nil {
		authority = &certs.Pair{Cert: a.Cert, Key: a.key}
	}
	p := certs.New(name, authority, func(c *x509.Certificate) {
		c.NotBefore, c.NotAfter = end.Add(-1000*time.Hour), end
		if strings.Contains(name, ".") {
			c.DNSNames = []string{name}
		}
	})
	certFile, keyFile = filepath.Join(a.dir, name+".pem"), filepath.Join(a.dir, name+".key")
	if err := p.Save(certFile, keyFile); err != nil {
		a.t.Fatal(err)
	}
	return p.Cert, p.Key, certFile, keyFile
}
