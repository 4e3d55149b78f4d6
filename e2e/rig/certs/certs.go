// Package certs makes certificates and keys for tests, and for the programs that they start.
package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"time"
)

// A Pair is a certificate and its key.
type Pair struct {
	Cert *x509.Certificate
	Key  *ecdsa.PrivateKey
}

// New makes a certificate that an authority signs; without one it is an authority itself. It is for servers and clients
// at 127.0.0.1, for an hour, unless change makes it another one.
func New(name string, authority *Pair, change ...func(*x509.Certificate)) *Pair {
	now := time.Now()
	own := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	p := &Pair{Cert: own, Key: must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))}
	if authority == nil {
		own.IsCA, own.KeyUsage = true, own.KeyUsage|x509.KeyUsageCertSign
		authority = p
	}
	for _, f := range change {
		f(own)
	}
	der := must(x509.CreateCertificate(rand.Reader, own, authority.Cert, p.Key.Public(), authority.Key))
	p.Cert = must(x509.ParseCertificate(der))
	return p
}

// must is for what fails only with an impossible certificate, which is a mistake in the test.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// CertPEM returns the certificate as the text of a file.
func (p *Pair) CertPEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.Cert.Raw})
}

// KeyPEM returns the key as the text of a file.
func (p *Pair) KeyPEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: must(x509.MarshalPKCS8PrivateKey(p.Key))})
}

// TLS returns the pair for a tls.Config.
func (p *Pair) TLS() tls.Certificate {
	return tls.Certificate{Certificate: [][]byte{p.Cert.Raw}, PrivateKey: p.Key}
}

// Pool trusts the certificate only.
func (p *Pair) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(p.Cert)
	return pool
}

// Save writes both files.
func (p *Pair) Save(certFile, keyFile string) error {
	return errors.Join(os.WriteFile(certFile, p.CertPEM(), 0o600), os.WriteFile(keyFile, p.KeyPEM(), 0o600))
}
