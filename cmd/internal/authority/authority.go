// Package authority makes the certificates of an installation that has no issuer: an authority of its own, and what it
// signs. All are valid for ten years, because nothing renews them; who wants short lives has an issuer.
package authority

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"time"
)

const (
	lifetime = 10 * 365 * 24 * time.Hour
	// skew is how far the clocks of those who check a certificate may be behind.
	skew = 5 * time.Minute
)

// A Pair is a certificate with its key, PEM.
type Pair struct{ Cert, Key []byte }

// An Authority signs certificates.
type Authority struct {
	Pair
	certificate *x509.Certificate
	key         crypto.Signer
}

// New makes an authority.
func New(name string, now time.Time) (*Authority, error) {
	template := &x509.Certificate{Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign}
	pair, err := issue(template, nil, now)
	if err != nil {
		return nil, err
	}
	return Load(pair, now)
}

// Load returns the authority that a pair is.
func Load(p Pair, now time.Time) (*Authority, error) {
	pair, err := tls.X509KeyPair(p.Cert, p.Key)
	if err != nil {
		return nil, err
	}
	key, signs := pair.PrivateKey.(crypto.Signer)
	switch c := pair.Leaf; {
	case !signs || !c.IsCA:
		return nil, errors.New("it is not the certificate of an authority")
	case now.After(c.NotAfter):
		return nil, fmt.Errorf("it has expired, on %s", c.NotAfter.Format(time.DateOnly))
	default:
		return &Authority{Pair: p, certificate: c, key: key}, nil
	}
}

// Server makes what a listener with these names and addresses shows, also as the client of another replica.
func (a *Authority) Server(hosts []string, now time.Time) (Pair, error) {
	template := &x509.Certificate{KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	return issue(template, a, now)
}

// Client makes what a client with this name shows.
func (a *Authority) Client(name string, now time.Time) (Pair, error) {
	return issue(&x509.Certificate{DNSNames: []string{name}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, a, now)
}

// Signed reports whether a pair is a client's of this authority with this name, and in force.
func (a *Authority) Signed(p Pair, name string, now time.Time) bool {
	pair, err := tls.X509KeyPair(p.Cert, p.Key)
	if err != nil {
		return false
	}
	roots := x509.NewCertPool()
	roots.AddCert(a.certificate)
	_, err = pair.Leaf.Verify(x509.VerifyOptions{DNSName: name, Roots: roots, CurrentTime: now,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	return err == nil
}

// issue makes a certificate with a new key, signed by a; by itself if a is nil.
func issue(template *x509.Certificate, a *Authority, now time.Time) (p Pair, err error) {
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)); err != nil {
		return p, err
	}
	template.NotBefore, template.NotAfter = now.Add(-skew), now.Add(lifetime)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return p, err
	}
	parent, signer := template, crypto.Signer(key)
	if a != nil {
		parent, signer = a.certificate, a.key
		template.NotAfter = a.certificate.NotAfter
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return p, err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return p, err
	}
	return Pair{Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		Key: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})}, nil
}
