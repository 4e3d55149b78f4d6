package chaos

import (
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
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"
)

// Certificates are the identities of Steelyard and the Envoys, signed by one
// authority, in a folder that a link points to: they are replaced all at once by a
// new link, as Kubernetes does with a secret.
type certificates struct {
	dir       string
	authority *x509.Certificate
	key       *ecdsa.PrivateKey

	// files is held to start a process that reads the files, and to replace them: a process that reads one file before
	// and one after a replacement has a key that does not match.
	files  sync.RWMutex
	serial int64 // of the certificates that are there
}

// The files in the folder.
const (
	authorityFile = "ca.pem"
	currentLink   = "current"
	steelyardCert = "steelyard"
	envoyCert     = "envoy"
)

func newCertificates(dir string) (*certificates, error) {
	c := &certificates{dir: dir}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	c.key = key
	c.authority = template(1, "authority")
	c.authority.IsCA, c.authority.KeyUsage = true, x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, c.authority, c.authority, key.Public(), key)
	if err != nil {
		return nil, err
	}
	if err := writePEM(filepath.Join(dir, authorityFile), "CERTIFICATE", der); err != nil {
		return nil, err
	}
	return c, c.replace()
}

func template(serial int64, name string) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(1, 0, 0),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
}

func writePEM(path, kind string, der []byte) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}

// replace replaces the certificates and keys by new ones.
func (c *certificates) replace() error {
	c.files.Lock()
	defer c.files.Unlock()
	c.serial++
	folder := strconv.FormatInt(c.serial, 10)
	if err := os.Mkdir(filepath.Join(c.dir, folder), 0o700); err != nil {
		return err
	}
	for _, name := range []string{steelyardCert, envoyCert} {
		if err := c.issue(filepath.Join(c.dir, folder, name), name); err != nil {
			return err
		}
	}
	fresh := filepath.Join(c.dir, "fresh")
	if err := os.Symlink(folder, fresh); err != nil {
		return err
	}
	return os.Rename(fresh, filepath.Join(c.dir, currentLink))
}

// issue writes a key and its certificate, as path.key and path.pem.
func (c *certificates) issue(path, name string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.CreateCertificate(rand.Reader, template(c.serial, name), c.authority, key.Public(), c.key)
	if err != nil {
		return err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return errors.Join(writePEM(path+".pem", "CERTIFICATE", der), writePEM(path+".key", "PRIVATE KEY", keyDER))
}

// cert and key are the paths of an identity's files, ca that of the authority's.
func (c *certificates) cert(name string) string {
	return filepath.Join(c.dir, currentLink, name+".pem")
}
func (c *certificates) keyOf(name string) string {
	return filepath.Join(c.dir, currentLink, name+".key")
}
func (c *certificates) ca() string { return filepath.Join(c.dir, authorityFile) }

// shows wants the xDS port to have the current certificate.
func (c *certificates) shows(address string) error {
	c.files.RLock()
	defer c.files.RUnlock()
	pair, err := tls.LoadX509KeyPair(c.cert(envoyCert), c.keyOf(envoyCert))
	if err != nil {
		return err
	}
	roots, err := os.ReadFile(c.ca())
	if err != nil {
		return err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(roots)
	dialer := &net.Dialer{Timeout: 5 * time.Second}
	asEnvoy := &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2"}}
	conn, err := tls.DialWithDialer(dialer, "tcp", address, asEnvoy)
	if err != nil {
		return fmt.Errorf("connecting to the xDS port: %w", err)
	}
	defer conn.Close()
	if got := conn.ConnectionState().PeerCertificates[0].SerialNumber.Int64(); got != c.serial {
		return fmt.Errorf("the xDS port shows certificate %d, and the files hold %d", got, c.serial)
	}
	return nil
}
