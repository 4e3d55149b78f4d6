package files

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
)

// maxPEM bounds a file of certificates or a key, in bytes. The CA bundle of a whole system takes a quarter of it.
const maxPEM = 1 << 20

// A KeyError is an error of a key file, as opposed to one of its certificate.
type KeyError struct{ error }

func (e KeyError) Unwrap() error { return e.error }

// KeyPair reads a certificate chain and its private key, both PEM. The leaf is parsed. The error is a KeyError where
// the key cannot be read or does not match the certificate.
func KeyPair(ctx context.Context, certFile, keyFile string) (tls.Certificate, error) {
	chain, cert, err := readCertificates(ctx, certFile)
	if err != nil {
		return tls.Certificate{}, err
	}
	key, err := ReadAll(ctx, keyFile, maxPEM)
	if err != nil {
		return tls.Certificate{}, KeyError{err}
	}
	if bytes.Contains(key, []byte("ENCRYPTED")) { // "BEGIN ENCRYPTED PRIVATE KEY", or "Proc-Type: 4,ENCRYPTED"
		return tls.Certificate{}, KeyError{fmt.Errorf("%s is encrypted, and nothing asks for its passphrase: openssl "+
			"pkey -in %[1]s writes it without", keyFile)}
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		err = fmt.Errorf("%s as the key of %s (%s): %w", keyFile, certFile, chain[0].Subject, err)
		return tls.Certificate{}, KeyError{err}
	}
	return pair, nil
}

// CertPool reads the certificates of authorities (PEM), at least one, and returns them as a pool and as a list.
func CertPool(ctx context.Context, path string) (*x509.CertPool, []*x509.Certificate, error) {
	list, _, err := readCertificates(ctx, path)
	if err != nil {
		return nil, nil, err
	}
	pool := x509.NewCertPool()
	for _, c := range list {
		pool.AddCert(c)
	}
	return pool, list, nil
}

// readCertificates reads a file with at least one certificate. It also returns the content of the file.
func readCertificates(ctx context.Context, path string) ([]*x509.Certificate, []byte, error) {
	content, err := ReadAll(ctx, path, maxPEM)
	if err != nil {
		return nil, nil, err
	}
	list, rest := parseCertificates(content)
	if bytes.Contains(rest, []byte("-----BEGIN")) {
		return nil, nil, fmt.Errorf("%s ends within a PEM block: is it being written?", path)
	}
	if len(list) == 0 {
		return nil, nil, fmt.Errorf("%s holds no PEM certificate (-----BEGIN CERTIFICATE-----)", path)
	}
	return list, content, nil
}

// parseCertificates skips certificates that it cannot parse, as crypto/x509 does: some CA bundles contain such. rest is
// what follows the last PEM block.
func parseCertificates(content []byte) (list []*x509.Certificate, rest []byte) {
	for {
		var block *pem.Block
		if block, content = pem.Decode(content); block == nil {
			return list, content
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		if c, err := x509.ParseCertificate(block.Bytes); err == nil {
			list = append(list, c)
		}
	}
}
