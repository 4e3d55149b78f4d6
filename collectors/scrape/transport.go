package scrape

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"

	"steelyard/internal/credentials"
)

const (
	// maxRedirects bounds how often a target may redirect us.
	maxRedirects = 3
	// maxHeader bounds a response's header, with the answers (such as 103) that may precede it, in bytes.
	maxHeader = 64 << 10
)

type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// A network has what all connections to targets have in common.
type network struct {
	dial dialFunc // nil = net.Dialer; tests put pipes here

	credentials *credentials.Store
}

// transport returns the transport of one target.
//
// HTTP/1.1 only: over one HTTP/2 connection a hanging page would delay the pings of the next fetch instead of being
// closed. No proxy: a scrape is between two machines of one network. No compression: it would save network bytes and
// cost the server, every 250 ms, time that its requests need.
func (n *network) transport(t *Target) *http.Transport {
	// The transport lets a dial go on after its request has ended, so each dial has its own end.
	bounded := func(dial dialFunc) dialFunc {
		return func(ctx context.Context, network, address string) (net.Conn, error) {
			ctx, cancel := context.WithTimeout(ctx, t.Timeout)
			defer cancel()
			return dial(ctx, network, address)
		}
	}
	return &http.Transport{
		DialContext: bounded(n.connect),
		DialTLSContext: bounded(func(ctx context.Context, network, address string) (net.Conn, error) {
			return n.connectTLS(ctx, network, address, t.TLS)
		}),
		DisableCompression:     true,
		MaxIdleConnsPerHost:    1,
		MaxResponseHeaderBytes: maxHeader,
	}
}

func (n *network) connect(ctx context.Context, network, address string) (net.Conn, error) {
	if n.dial != nil {
		return n.dial(ctx, network, address)
	}
	return (&net.Dialer{}).DialContext(ctx, network, address)
}

// connectTLS opens a connection with the current certificates.
func (n *network) connectTLS(ctx context.Context, network, address string, files credentials.Client) (net.Conn, error) {
	config, err := n.credentials.Client(ctx, files)
	if err != nil {
		return nil, failure(KindConfig, "%w", err)
	}
	if config.ServerName == "" {
		config.ServerName, _, _ = net.SplitHostPort(address) // the transport has joined them
	}
	conn, err := n.connect(ctx, network, address)
	if err != nil {
		return nil, err
	}
	secure := tls.Client(conn, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, err // unwrapped: net/http recognizes the answer of a server without TLS
	}
	return secure, nil
}

// sameHostOnly refuses redirects to another host: its numbers are not this endpoint's, and the bearer token is not for
// it.
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
