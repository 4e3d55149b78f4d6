package scrape

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"sync"

	"steelyard/internal/files"
)

// maxRedirects bounds how often a target may send us on to another path.
const maxRedirects = 3

type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// A network is how targets are reached: what all connections have in common.
type network struct {
	dial dialFunc // nil = net.Dialer; tests put pipes here

	mu    sync.Mutex
	byTLS map[TLS]*tls.Config
}

// config returns the configuration for t. One that cannot be made (a CA file
// that is not there yet) is tried again with the next call. Files are read without the
// lock: those of one cluster may hang.
func (n *network) config(ctx context.Context, t TLS) (*tls.Config, error) {
	n.mu.Lock()
	config := n.byTLS[t]
	n.mu.Unlock()
	if config != nil {
		return config, nil
	}
	config, err := t.config(ctx)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.byTLS == nil {
		n.byTLS = make(map[TLS]*tls.Config)
	}
	n.byTLS[t] = config
	return config, nil
}

func (n *network) connect(ctx context.Context, address string) (net.Conn, error) {
	if n.dial != nil {
		return n.dial(ctx, "tcp", address)
	}
	return (&net.Dialer{}).DialContext(ctx, "tcp", address)
}

// sameHostOnly refuses to be sent elsewhere: another host's numbers are not
// those of this endpoint, and the bearer token is not for it.
func sameHostOnly(next *http.Request, via []*http.Request) error {
	if first := via[0].URL; next.URL.Host != first.Host || next.URL.Scheme != first.Scheme {
		return failure(KindRedirect, "redirected to %s://%s: write the URL that has the metrics", next.URL.Scheme,
			next.URL.Host)
	}
	if len(via) > maxRedirects {
		return failure(KindRedirect, "redirected more than %d times", maxRedirects)
	}
	return nil
}

// config turns the files into a configuration of crypto/tls.
func (t TLS) config(ctx context.Context) (*tls.Config, error) {
	config := &tls.Config{
		MinVersion:         tls.VersionTLS12,
		ServerName:         t.ServerName,
		InsecureSkipVerify: t.InsecureSkipVerify,
	}
	if t.CAFile != "" {
		pool, _, err := files.CertPool(ctx, t.CAFile)
		if err != nil {
			return nil, fmt.Errorf("reading CA file: %w", err)
		}
		config.RootCAs = pool
	}
	if t.CertFile == "" && t.KeyFile == "" {
		return config, nil
	}
	load := func(ctx context.Context) (*tls.Certificate, error) {
		pair, err := files.KeyPair(ctx, t.CertFile, t.KeyFile)
		if err != nil {
			return nil, failure(KindConfig, "loading client certificate: %w", err)
		}
		return &pair, nil
	}
	if _, err := load(ctx); err != nil {
		return nil, err
	}
	config.GetClientCertificate = func(r *tls.CertificateRequestInfo) (*tls.Certificate, error) {
		return load(r.Context())
	}
	return config, nil
}
