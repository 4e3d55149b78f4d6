package scrape

import (
	"context"
	"log/slog"
	"time"

	"steelyard/collectors/modelserver"
	"steelyard/weighting"
)

// A Target is one metrics page to fetch, and how. Targets are compared with ==.
type Target struct {
	Cluster string // the cluster the endpoint belongs to
	Address string // host:port of the endpoint, its identity within the cluster
	URL     string // where its metrics are: http or https

	Engine modelserver.Engine
	Custom modelserver.Custom // series names, with Engine custom

	Interval  time.Duration // between the starts of two fetches
	Timeout   time.Duration // of one fetch, not above Interval
	BodyLimit int64         // bytes; a longer body is an error

	TLS             TLS    // with https
	BearerTokenFile string // sent as "Authorization: Bearer …" when set, read again when it changes
}

// TLS says how to speak https to a target. The zero TLS trusts the system's CAs.
type TLS struct {
	CAFile             string // PEM; empty = the system's CAs
	CertFile, KeyFile  string // client certificate, PEM; both or none
	ServerName         string // expected in the certificate; empty = the URL's host
	InsecureSkipVerify bool   // accept any certificate
}

// A Result is the outcome of one fetch.
type Result struct {
	Cluster, Address string
	At               time.Time     // middle of the exchange: when the report was true
	Duration         time.Duration // of the whole exchange
	BodyBytes        int64
	Report           weighting.ServerReport // zero when Err is set
	Err              error                  // Kind(Err) is a label of small cardinality
}

// A Pool keeps one loop per target.
type Pool struct {
	sink func(Result)
	log  *slog.Logger
}

// New makes a pool that hands every result to sink.
func New(sink func(Result), log *slog.Logger) *Pool { return &Pool{sink: sink, log: log} }

// Run scrapes until ctx is done and every loop has ended.
func (p *Pool) Run(ctx context.Context) error { <-ctx.Done(); return nil }

// SetTargets replaces the set of targets.
func (p *Pool) SetTargets(targets []Target) {}
