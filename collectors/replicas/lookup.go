package replicas

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"time"

	"steelyard/internal/loops"
)

const (
	lookUpEvery = 5 * time.Second
	lookUpLimit = 2 * time.Second // for one name
)

// LookUp passes on the addresses of peers, host:port, until ctx is done. A host that is a name stands for all its
// addresses, and is looked up every five seconds. One that cannot be looked up keeps those that it had.
func LookUp(ctx context.Context, peers []string, found func(addresses []string, err error)) {
	known := make(map[string][]string)
	look := func(time.Time) {
		var addresses []string
		var errs []error
		for _, peer := range peers {
			latest, err := resolve(ctx, peer)
			if ctx.Err() != nil {
				return
			}
			if err == nil {
				known[peer] = latest
			}
			errs = append(errs, err)
			addresses = append(addresses, known[peer]...)
		}
		found(addresses, errors.Join(errs...))
	}
	look(time.Time{})
	loops.Every(ctx, lookUpEvery, look)
}

// resolve returns the addresses of one peer.
func resolve(ctx context.Context, peer string) ([]string, error) {
	host, port, err := net.SplitHostPort(peer)
	if err != nil {
		return nil, err
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return []string{peer}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookUpLimit)
	defer cancel()
	// The C library's look-up cannot be cancelled; Go's ends with its context.
	hosts, err := (&net.Resolver{PreferGo: true}).LookupHost(ctx, host)
	if err != nil {
		return nil, err
	}
	addresses := make([]string, len(hosts))
	for i, h := range hosts {
		addresses[i] = net.JoinHostPort(h, port)
	}
	return addresses, nil
}
