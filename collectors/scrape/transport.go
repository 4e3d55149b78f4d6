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
	"time"
)

const (
	// idleTimeout keeps the connection of a target that is scraped once a
	// minute, and drops that of a removed one soon.
	idleTimeout = 90 * time.Second
	// idlePerHost is more than one because several targets can share a host.
	idlePerHost = 4
	// maxHeader bounds the response header, in bytes.
	maxHeader = 64 << 10
	// maxRedirects bounds how often a target may send us on to another path.
	maxRedirects = 3
)

type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// clients hands out one client for each TLS configuration, so that thousands of
// targets share a few transports and each keeps its own connection.
type clients struct {
	dial dialFunc // nil = net.Dialer; tests put pipes here

	mu    sync.Mutex
	byTLS map[TLS]*http.Client
}

// get returns the client for t. A configuration that cannot be used (a CA file
// that is not there yet) is tried again with the next call.
func (c *clients) get(t TLS) (*http.Client, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if client := c.byTLS[t]; client != nil {
		return client, nil
	}
	client, err := newClient(t, c.dial)
	if err != nil {
		return nil, err
	}
	if c.byTLS == nil {
		c.byTLS = make(map[TLS]*http.Client)
	}
	c.byTLS[t] = client
	return client, nil
}

// closeIdle closes the connections that are kept.
func (c *clients) closeIdle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, client := range c.byTLS {
		client.CloseIdleConnections()
	}
}

func newClient(t TLS, dial dialFunc) (*http.Client, error) {
	config, err := t.config()
	if err != nil {
		return nil, err
	}
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	// HTTP/1.1 alone: over one HTTP/2 connection a hanging page would delay the
	// pings of the next fetch instead of being closed. No proxy: a scrape is
	// between two machines of one network. No compression: it would save bytes
	// of the network and cost the server, every 250 ms, time that its requests need.
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	return &http.Client{
		Transport: &http.Transport{
			DialContext:            dial,
			TLSClientConfig:        config,
			Protocols:              &protocols,
			DisableCompression:     true,
			MaxIdleConns:           0, // one for each target, however many there are
			MaxIdleConnsPerHost:    idlePerHost,
			IdleConnTimeout:        idleTimeout,
			MaxResponseHeaderBytes: maxHeader,
		},
		CheckRedirect: sameHostOnly,
	}, nil
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
