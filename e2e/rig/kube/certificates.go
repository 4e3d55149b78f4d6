package kube

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// The files in a server's folder.
const (
	authorityFile  = "ca.crt"
	serverCertFile = "server.crt"
	serverKeyFile  = "server.key"
	accountKeyFile = "accounts.key" // signs the tokens of service accounts
	tokensFile     = "tokens.csv"
)

// lifetime is that of a certificate: longer than any test.
const lifetime = 24 * time.Hour

// writeCertificates makes an authority, the API server's certificate from it, and the key of the service accounts.
func writeCertificates(dir string) error {
	authority := &x509.Certificate{
		Subject: pkix.Name{CommonName: "kube-apiserver's authority"}, SerialNumber: big.NewInt(1),
		NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(lifetime),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	server := &x509.Certificate{
		Subject: pkix.Name{CommonName: "kube-apiserver"}, SerialNumber: big.NewInt(2),
		NotBefore: authority.NotBefore, NotAfter: authority.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost", "kubernetes.default.svc"},
	}
	authorityKey, err := newKey()
	if err != nil {
		return err
	}
	serverKey, err := newKey()
	if err != nil {
		return err
	}
	accountKey, err := newKey()
	if err != nil {
		return err
	}
	for _, c := range []struct {
		file     string
		template *x509.Certificate
		public   crypto.PublicKey
	}{{authorityFile, authority, authorityKey.Public()}, {serverCertFile, server, serverKey.Public()}} {
		der, err := x509.CreateCertificate(rand.Reader, c.template, authority, c.public, authorityKey)
		if err != nil {
			return err
		}
		if err := writePEM(filepath.Join(dir, c.file), "CERTIFICATE", der); err != nil {
			return err
		}
	}
	if err := writeKey(filepath.Join(dir, serverKeyFile), serverKey); err != nil {
		return err
	}
	return writeKey(filepath.Join(dir, accountKeyFile), accountKey)
}

func newKey() (*ecdsa.PrivateKey, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }

func writeKey(path string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return writePEM(path, "EC PRIVATE KEY", der)
}

func writePEM(path, kind string, der []byte) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}
