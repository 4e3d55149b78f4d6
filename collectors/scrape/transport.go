package scrape

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
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
// that is not there yet) is tried again with the next call.
func (n *network) config(t TLS) (*tls.Config, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if config := n.byTLS[t]; config != nil {
		return config, nil
	}
	config, err := t.config()
	if err != nil {
		return nil, err
	}
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
		return failure(KindRedirect, "redirected to %s://%s: write the URL that has the metrics", next.URL.Scheme, next.URL.Host)
	}
	if len(via) > maxRedirects {
		return failure(KindRedirect, "redirected more than %d times", maxRedirects)
	}
	return nil
}

// config turns the files into a configuration of crypto/tls.
func (t TLS) config() (*tls.Config, error) {
	config := &tls.Config{
		MinVersion:         tls.VersionTLS12,
		ServerName:         t.ServerName,
		InsecureSkipVerify: t.InsecureSkipVerify,
	}
	if t.CAFile != "" {
		pem, err := os.ReadFile(t.CAFile)
		if err != nil {
			return nil, fmt.Errorf("reading CA file: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("CA file %s has no certificate in PEM form", t.CAFile)
		}
	}
	if t.CertFile == "" && t.KeyFile == "" {
		return config, nil
	}
	load := func() (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
		if err != nil {
			return nil, failure(KindConfig, "loading client certificate: %w", err)
		}
		return &pair, nil
	}
	if _, err := load(); err != nil {
		return nil, err
	}
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return load() }
	return config, nil
}
