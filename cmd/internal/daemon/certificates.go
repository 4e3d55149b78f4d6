package daemon

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"

	"steelyard/collectors/inflight"
	"steelyard/collectors/scrape"
	"steelyard/controlplane/admin"
	"steelyard/controlplane/config"
	"steelyard/controlplane/view"
	"steelyard/internal/files"
	"steelyard/xds"
)

// serverTLS reads the certificate and key of the xDS listener; nil for plain text.
func serverTLS(c *config.ServerTLS) (*tls.Config, error) {
	if c == nil {
		return nil, nil
	}
	certificate, err := files.KeyPair(context.Background(), c.CertFile, c.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("xds.tls: %w", err)
	}
	out := &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
	if c.ClientCAFile == "" {
		return out, nil
	}
	pool, _, err := files.CertPool(context.Background(), c.ClientCAFile)
	if err != nil {
		return nil, fmt.Errorf("xds.tls.client_ca_file: %w", err)
	}
	out.ClientCAs, out.ClientAuth = pool, tls.RequireAndVerifyClientCert
	return out, nil
}

// transport returns the credentials of the xDS listener; nil for plain text.
func (d *Daemon) transport(c *tls.Config) credentials.TransportCredentials {
	if c == nil {
		return nil
	}
	d.handshakes = xds.NewHandshakes(d.options.Log)
	return d.handshakes.Credentials(c)
}

// refusedHandshakes returns the counts of TLS handshakes that the xDS listener refused.
func (d *Daemon) refusedHandshakes() []admin.RefusedHandshake {
	if d.handshakes == nil {
		return nil
	}
	var out []admin.RefusedHandshake
	for _, r := range d.handshakes.Refused() {
		out = append(out, admin.RefusedHandshake{Reason: r.Reason, Count: r.Count, LastAt: view.At(r.At),
			LastPeer: r.Peer, LastError: r.Error})
	}
	return out
}

// A credential is a key pair or a file of authorities that a configuration names.
type credential struct {
	use       string
	cert, key *string // fields of the configuration; key is nil with authorities
}

// credentialsOf returns the credentials that cfg names. Some may occur more than once.
func credentialsOf(cfg *config.Config) []credential {
	var all []credential
	if s := cfg.XDS.TLS; s != nil {
		all = append(all, credential{admin.UseXDS, &s.CertFile, &s.KeyFile},
			credential{admin.UseXDSClientCA, &s.ClientCAFile, nil})
	}
	client := func(c *config.ClientTLS, pair, authorities string) {
		all = append(all, credential{pair, &c.CertFile, &c.KeyFile}, credential{authorities, &c.CAFile, nil})
	}
	if r := cfg.Redis; r != nil && r.TLS != nil {
		client(r.TLS, admin.UseRedisClient, admin.UseRedisCA)
	}
	for i := range cfg.Clusters {
		if s := &cfg.Clusters[i].Scrape; s.TLS != nil && !s.Disabled {
			client(&s.TLS.ClientTLS, admin.UseScrapeClient, admin.UseScrapeCA)
		}
	}
	return slices.DeleteFunc(all, func(c credential) bool { return *c.cert == "" })
}

// read reads the credential in the way of its user, for example a scrape. Of a chain it returns the certificate that
// expires first.
func (c credential) read(ctx context.Context) ([]*x509.Certificate, error) {
	if c.key == nil {
		_, authorities, err := files.CertPool(ctx, *c.cert)
		return authorities, err
	}
	pair, err := files.KeyPair(ctx, *c.cert, *c.key)
	if err != nil {
		return nil, err
	}
	first := pair.Leaf
	for _, der := range pair.Certificate[1:] {
		if next, err := x509.ParseCertificate(der); err == nil && next.NotAfter.Before(first.NotAfter) {
			first = next
		}
	}
	return []*x509.Certificate{first}, nil
}

// CheckFiles is a check of config.Load. It reads the keys, certificates, passwords and tokens that cfg names in the way
// of a Daemon, and reports those that a Daemon could not use.
func CheckFiles(cfg *config.Config, c *config.Checker) {
	ctx := context.Background()
	for _, cr := range credentialsOf(cfg) {
		list, err := cr.read(ctx)
		switch ended := slices.MaxFunc(append(list, &x509.Certificate{}), byEnd).NotAfter; {
		case errors.As(err, new(files.KeyError)):
			c.Fail(cr.key, "%v: write the path of the private key (PEM) that belongs to cert_file", err)
		case err != nil:
			c.Fail(cr.cert, "%v: write the path of a file with certificates (PEM)", err)
		case !ended.After(time.Now()):
			c.Fail(cr.cert, "%s has expired, on %s: write the path of one that is renewed", *cr.cert,
				ended.Format(time.DateOnly))
		}
	}
	if r := cfg.Redis; r != nil && r.PasswordFile != "" {
		if _, err := inflight.Password(ctx, r.PasswordFile); err != nil {
			c.Fail(&r.PasswordFile, "%v: write the path of a file with only the password", err)
		}
	}
	for i := range cfg.Clusters {
		if s := &cfg.Clusters[i].Scrape; s.BearerTokenFile != "" && !s.Disabled {
			if _, err := scrape.Token(ctx, s.BearerTokenFile); err != nil {
				c.Fail(&s.BearerTokenFile, "%v: write the path of a file with only the token", err)
			}
		}
	}
}

func byEnd(a, b *x509.Certificate) int { return a.NotAfter.Compare(b.NotAfter) }

// certificates holds the certificates in use, for their expiry.
type certificates struct {
	mu        sync.Mutex
	known     map[certificateFile][]admin.Certificate
	forgotten int // times
}

type certificateFile struct{ use, cert, key string }

// certificatesRead is the time between two readings of certificates that may have been renewed.
const certificatesRead = time.Minute

// rereads reports whether its user reads the file again for each connection.
func (f certificateFile) rereads() bool {
	return f.use == admin.UseScrapeClient || f.use == admin.UseRedisClient
}

// refresh reads the certificates that cfg names. One that its user reads only once is kept as it was first read.
func (c *certificates) refresh(ctx context.Context, cfg *config.Config) {
	next := make(map[certificateFile][]admin.Certificate)
	c.mu.Lock()
	forgotten := c.forgotten
	c.mu.Unlock()
	for _, cr := range credentialsOf(cfg) {
		f := certificateFile{use: cr.use, cert: *cr.cert}
		if cr.key != nil {
			f.key = *cr.key
		}
		if _, done := next[f]; done {
			continue
		}
		before := c.of(f)
		if len(before) > 0 && before[0].Error == "" && !f.rereads() {
			next[f] = before
			continue
		}
		list, err := cr.read(ctx)
		if ctx.Err() != nil {
			return
		}
		next[f] = shown(f, list, before, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.forgotten == forgotten { // else next may contain forgotten certificates, and a refresh is due
		c.known = next
	}
}

// shown returns the certificates of a file as the admin API has them.
func shown(f certificateFile, list []*x509.Certificate, before []admin.Certificate, err error) []admin.Certificate {
	if err != nil {
		out := append([]admin.Certificate(nil), before...)
		if len(out) == 0 {
			out = []admin.Certificate{{Use: f.use, File: f.cert}}
		}
		for i := range out {
			out[i].Error = err.Error()
		}
		return out
	}
	out := make([]admin.Certificate, len(list))
	for i, certificate := range list {
		out[i] = admin.Certificate{Use: f.use, File: f.cert, Subject: subject(certificate),
			NotAfter: view.At(certificate.NotAfter)}
	}
	return out
}

// subject returns the subject of a certificate, cut to the length of a label.
func subject(c *x509.Certificate) string {
	const longest = 200 // bytes
	name := c.Subject.String()
	if name == "" {
		name = strings.Join(c.DNSNames, ", ")
	}
	return strings.ToValidUTF8(name[:min(len(name), longest)], "")
}

func (c *certificates) of(f certificateFile) []admin.Certificate {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.known[f]
}

// forget removes the certificates of a use, so that the next refresh reads them again.
func (c *certificates) forget(use string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forgotten++
	maps.DeleteFunc(c.known, func(f certificateFile, _ []admin.Certificate) bool { return f.use == use })
}

func (c *certificates) all() []admin.Certificate {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []admin.Certificate
	for _, list := range c.known {
		out = append(out, list...)
	}
	return out
}

// followCertificates reads the certificates again when they may have changed, until ctx is done.
func (d *Daemon) followCertificates(ctx context.Context) error {
	tick := time.NewTicker(certificatesRead)
	defer tick.Stop()
	for {
		d.mu.Lock()
		cfg := d.config
		d.mu.Unlock()
		d.certificates.refresh(ctx, cfg)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-d.recheck:
		}
	}
}
