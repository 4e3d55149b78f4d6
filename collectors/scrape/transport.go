package scrape

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"

	"steelyard/internal/credentials"
)

// maxRedirects bounds how often a target may redirect us.
const maxRedirects = 3

type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// A network has what all connections to targets have in common.
type network struct {
	dial dialFunc // nil = net.Dialer; tests put pipes here

	credentials *credentials.Store
}

// config returns the configuration for one connection.
func (n *network) config(ctx context.Context, t credentials.Client) (*tls.Config, error) {
	config, err := n.credentials.Client(ctx, t)
	if err != nil {
		return nil, failure(KindConfig, "%w", err)
	}
	return config, nil
}

func (n *network) connect(ctx context.Context, address string) (net.Conn, error) {
	if n.dial != nil {
		return n.dial(ctx, "tcp", address)
	}
	return (&net.Dialer{}).DialContext(ctx, "tcp", address)
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
