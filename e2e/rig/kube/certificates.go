package kube

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"time"

	"steelyard/e2e/rig/certs"
)

// The files in a server's folder.
const (
	authorityFile  = "ca.crt"
	serverCertFile = "server.crt"
	serverKeyFile  = "server.key"
	accountKeyFile = "accounts.key" // signs the tokens of service accounts
	tokensFile     = "tokens.csv"
)

// lifetime is the lifetime of a certificate: longer than any test.
const lifetime = 24 * time.Hour

// writeCertificates makes an authority, the API server's certificate from it, and the key of the service accounts.
func writeCertificates(dir string) error {
	long := func(c *x509.Certificate) { c.NotAfter = time.Now().Add(lifetime) }
	authority := certs.New("kube-apiserver's authority", nil, long)
	server := certs.New("kube-apiserver", authority, long, func(c *x509.Certificate) {
		c.DNSNames = []string{"localhost", "kubernetes.default.svc"}
	})
	// The API server reads the public half of this key in no other form.
	account, err := x509.MarshalECPrivateKey(certs.New("accounts", nil).Key)
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(filepath.Join(dir, authorityFile), authority.CertPEM(), 0o600),
		server.Save(filepath.Join(dir, serverCertFile), filepath.Join(dir, serverKeyFile)),
		os.WriteFile(filepath.Join(dir, accountKeyFile),
			pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: account}), 0o600))
}
