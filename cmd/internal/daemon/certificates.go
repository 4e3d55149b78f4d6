package daemon

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"steelyard/internal/api"

	grpccredentials "google.golang.org/grpc/credentials"

	"steelyard/collectors/inflight"
	"steelyard/collectors/scrape"
	"steelyard/controlplane/admin"
	"steelyard/controlplane/admin/conditions"
	"steelyard/controlplane/config"
	"steelyard/internal/credentials"
	"steelyard/internal/files"
	"steelyard/internal/loops"
	"steelyard/xds"
)

// serverTLS returns the configuration of a listener, which follows the files; nil for plain text.
func (d *Daemon) serverTLS(c *config.ServerTLS, section string) (*tls.Config, error) {
	if c == nil {
		return nil, nil
	}
	out, err := d.credentials.Server(context.Background(), credentials.Server(*c))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", section, err)
	}
	return out, nil
}

// transport returns the credentials of the xDS listener; nil for plain text.
func (d *Daemon) transport(c *tls.Config) grpccredentials.TransportCredentials {
	if c == nil {
		return nil
	}
	d.handshakes = xds.NewHandshakes(d.options.Log)
	return d.handshakes.Credentials(c)
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
		all = append(all, credential{api.UseXDS, &s.CertFile, &s.KeyFile},
			credential{api.UseXDSClientCA, &s.ClientCAFile, nil})
	}
	if s := cfg.Admin.TLS; s != nil {
		all = append(all, credential{api.UseAdmin, &s.CertFile, &s.KeyFile},
			credential{api.UseAdminClientCA, &s.ClientCAFile, nil})
	}
	if g := cfg.EnvoyGateway; g != nil && g.TLS != nil {
		all = append(all, credential{api.UseGateway, &g.TLS.CertFile, &g.TLS.KeyFile},
			credential{api.UseGatewayClientCA, &g.TLS.ClientCAFile, nil})
	}
	client := func(c *config.ClientTLS, pair, authorities string) {
		all = append(all, credential{pair, &c.CertFile, &c.KeyFile}, credential{authorities, &c.CAFile, nil})
	}
	if r := cfg.Redis; r != nil && r.TLS != nil {
		client(r.TLS, api.UseRedisClient, api.UseRedisCA)
	}
	for i := range cfg.Clusters {
		if s := &cfg.Clusters[i].Scrape; s.TLS != nil && !s.Disabled {
			client(&s.TLS.ClientTLS, api.UseScrapeClient, api.UseScrapeCA)
		}
	}
	return slices.DeleteFunc(all, func(c credential) bool { return *c.cert == "" })
}

func (c credential) file() credentials.File {
	if c.key == nil {
		return credentials.File{Cert: *c.cert}
	}
	return credentials.File{Cert: *c.cert, Key: *c.key}
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
		case time.Until(ended) <= conditions.ExpirySoon:
			c.Warn(cr.cert, "%s expires in %s: renew it", *cr.cert,
				conditions.FormatSeconds(time.Until(ended).Seconds()))
		}
	}
	if path := &cfg.Admin.TokensFile; *path != "" {
		if _, err := readTokens(ctx, *path); err != nil {
			c.Fail(path, "%v", err)
		}
	}
	if r := cfg.Redis; r != nil {
		for _, path := range []*string{&r.PasswordFile, &r.SentinelPasswordFile} {
			if *path == "" {
				continue
			}
			if _, err := inflight.Password(ctx, *path); err != nil {
				c.Fail(path, "%v: write the path of a file with only the password", err)
			}
		}
	}
	checkReplicas(ctx, cfg, c)
	checkKubeconfig(ctx, cfg, c)
	for i := range cfg.Clusters {
		if list := &cfg.Clusters[i].Endpoints.File; *list != "" && !Exists(*list) {
			c.Warn(list, "%s is not there: the cluster has no endpoints until it is", *list)
		}
		if s := &cfg.Clusters[i].Scrape; s.BearerTokenFile != "" && !s.Disabled {
			if _, err := scrape.Token(ctx, s.BearerTokenFile); err != nil {
				c.Fail(&s.BearerTokenFile, "%v: write the path of a file with only the token", err)
			}
		}
	}
}

// Exists reports whether there is a file at a path, as far as that can be found out in time.
func Exists(path string) bool {
	_, err := files.Stat(context.Background(), path)
	return !errors.Is(err, fs.ErrNotExist)
}

func byEnd(a, b *x509.Certificate) int { return a.NotAfter.Compare(b.NotAfter) }

// certificates returns those in use, and those that the configuration names and that cannot be used.
func (d *Daemon) certificates() []api.Certificate {
	type shown struct {
		use  string
		file credentials.File
	}
	done := make(map[shown]bool)
	var out []api.Certificate
	for _, c := range credentialsOf(d.configuration()) {
		if key := (shown{c.use, c.file()}); !done[key] {
			done[key] = true
			out = append(out, d.show(c)...)
		}
	}
	return out
}

// show returns the certificates of a file as the admin API has them. Of a chain it is the one that expires first.
func (d *Daemon) show(c credential) []api.Certificate {
	material, err := d.credentials.State(c.file())
	shown := api.Certificate{Use: c.use, File: *c.cert}
	if err != nil {
		shown.Error = err.Error()
	}
	if material == nil && err == nil {
		return nil // not read yet
	}
	if material == nil {
		return []api.Certificate{shown}
	}
	list := material.Certificates
	if material.Pair != nil {
		list = []*x509.Certificate{slices.MinFunc(list, byEnd)}
	}
	out := make([]api.Certificate, len(list))
	for i, certificate := range list {
		out[i] = shown
		out[i].Subject, out[i].NotAfter = subject(certificate), api.At(certificate.NotAfter)
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

// followCredentials makes the files of cfg, and no others, those that are kept up to date.
func (d *Daemon) followCredentials(cfg *config.Config) {
	used := make(map[credentials.File]bool)
	for _, c := range credentialsOf(cfg) {
		used[c.file()] = true
	}
	d.credentials.Follow(used)
}

// maxTokensFile bounds the file of admin tokens, in bytes.
const maxTokensFile = 1 << 20

func readTokens(ctx context.Context, path string) ([]admin.Token, error) {
	content, err := files.ReadAll(ctx, path, maxTokensFile)
	if err != nil {
		return nil, err
	}
	tokens, err := admin.ParseTokens(content)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return tokens, nil
}

// followTokens reads the file of admin tokens again and again until ctx is done.
func (d *Daemon) followTokens(ctx context.Context) error {
	if d.access.TokensFile == "" {
		return nil
	}
	loops.Every(ctx, credentials.Interval, func(time.Time) {
		tokens, err := readTokens(ctx, d.access.TokensFile)
		if ctx.Err() == nil {
			d.access.SetTokens(tokens, err)
		}
	})
	return nil
}
