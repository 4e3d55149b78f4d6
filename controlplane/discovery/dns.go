package discovery

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"time"
)

// A Resolver looks names up; *net.Resolver is one.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
	LookupSRV(ctx context.Context, service, proto, name string) (string, []*net.SRV, error)
}

type DNSConfig struct {
	Name     string
	Type     string
	Port     int
	Interval time.Duration
	Resolver Resolver
}

type dns struct {
	c      DNSConfig
	report func(error)
	log    *slog.Logger
}

func NewDNS(c DNSConfig, report func(error), log *slog.Logger) Discoverer {
	return &dns{c: c, report: orIgnore(report), log: orDiscard(log)}
}

func (d *dns) Run(ctx context.Context, up chan<- []Endpoint) error {
	<-ctx.Done()
	return nil
}
