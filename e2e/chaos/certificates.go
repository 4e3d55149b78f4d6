package chaos

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"steelyard/e2e/rig/certs"
)

// Certificates are the identities of Steelyard and the Envoys, signed by one
// authority, in a folder that a link points to: they are replaced all at once by a
// new link, as Kubernetes does with a secret.
type certificates struct {
	dir       string
	authority *certs.Pair

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
	c := &certificates{dir: dir, authority: certs.New("authority", nil, forAYear)}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	if err := os.WriteFile(c.ca(), c.authority.CertPEM(), 0o600); err != nil {
		return nil, err
	}
	return c, c.replace()
}

func forAYear(c *x509.Certificate) { c.NotAfter = time.Now().AddDate(1, 0, 0) }

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
		numbered := func(own *x509.Certificate) { own.SerialNumber.SetInt64(c.serial) }
		pair := certs.New(name, c.authority, forAYear, numbered)
		path := filepath.Join(c.dir, folder, name)
		if err := pair.Save(path+".pem", path+".key"); err != nil {
			return err
		}
	}
	fresh := filepath.Join(c.dir, "fresh")
	if err := os.Symlink(folder, fresh); err != nil {
		return err
	}
	return os.Rename(fresh, filepath.Join(c.dir, currentLink))
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
	dialer := &net.Dialer{Timeout: 5 * time.Second}
	asEnvoy := &tls.Config{RootCAs: c.authority.Pool(), Certificates: []tls.Certificate{pair},
		NextProtos: []string{"h2"}}
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
