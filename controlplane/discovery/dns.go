package discovery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"steelyard/internal/api"
)

// The record types of DNSConfig.Type.
const (
	TypeA    = "A"
	TypeAAAA = "AAAA"
	TypeSRV  = "SRV"
)

const (
	// maxLookup bounds one round of look-ups; the interval does too.
	maxLookup = 5 * time.Second
	// firstRetry bounds the wait as long as no look-up has ever succeeded: a
	// cluster without endpoints is worse than a few more questions.
	firstRetry = time.Second
	// jitter is the share of the interval by which each wait is longer or
	// shorter, so that replicas do not ask in step.
	jitter = 0.1
	// maxParallel bounds the look-ups of SRV targets under way at once.
	maxParallel = 8
)

// A Resolver looks names up; *net.Resolver is one, and the documentation of its
// methods is the contract.
type Resolver interface {
	// LookupNetIP looks up the addresses of host; network is "ip4", "ip6" or
	// "ip" for both.
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
	// LookupSRV looks up the SRV records of name, with service and proto empty.
	LookupSRV(ctx context.Context, service, proto, name string) (string, []*net.SRV, error)
}

// DNSConfig is what to look up, as a configuration has it that is checked.
type DNSConfig struct {
	// Name is looked up as the system would, with its search domains unless it
	// ends in a dot.
	Name string
	// Type is TypeA, TypeAAAA or TypeSRV.
	Type string
	// Port is the endpoints' port, 1 to 65535; 0 with TypeSRV, whose records
	// carry one.
	Port int
	// Interval is the time between two look-ups; the records' TTL plays no part. A round of look-ups takes at most
	// that long.
	Interval time.Duration
	// Resolver is nil for Go's own, with the system's configuration.
	Resolver Resolver
}

type dnsSource struct {
	DNSConfig
	report func(error)
	log    *slog.Logger

	// targets holds the last known addresses of the SRV records' targets.
	targets map[string][]netip.Addr
}

// NewDNS returns the source of a name's addresses. It calls report with the outcome of every look-up: nil, or why the
// previous set is kept. It is called on the goroutine of Run.
//
// Of SRV records those of the lowest priority are used, all alike: weighing is
// the control plane's own work. Their targets are looked up too. A target that
// cannot be keeps its last addresses as long as the records name it, and the
// others go on; one that has both IPv4 and IPv6 addresses counts with its IPv4
// addresses, because it is one server and not two.
func NewDNS(c DNSConfig, report func(error), log *slog.Logger) Discoverer {
	if c.Resolver == nil {
		// The C library's look-up cannot be cancelled; Go's ends with its context.
		c.Resolver = &net.Resolver{PreferGo: true}
	}
	return &dnsSource{
		DNSConfig: c,
		report:    report,
		log:       log.With("source", "dns", "name", c.Name, "type", c.Type),
	}
}

func (d *dnsSource) Run(ctx context.Context, sets chan<- []Endpoint) error {
	r := NewRefresher(sets, d.report, d.log)
	next := time.NewTimer(0)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case r.Out() <- r.Pending():
			r.Delivered()
		case <-next.C:
			set, err := d.lookUp(ctx)
			if ctx.Err() != nil {
				return nil // cut short: its result means nothing
			}
			r.Done(set, err)
			next.Reset(d.wait(r.known))
		}
	}
}

// wait is the time until the next look-up.
func (d *dnsSource) wait(known bool) time.Duration {
	interval := d.Interval
	if !known {
		interval = min(interval, firstRetry)
	}
	return time.Duration(float64(interval) * (1 - jitter + 2*jitter*rand.Float64()))
}

// lookUp asks once. It returns no set when the one known before is to be kept, and both a set and an error when
// something was left out of it, or an SRV target has its last addresses.
func (d *dnsSource) lookUp(ctx context.Context) ([]Endpoint, error) {
	ctx, cancel := context.WithTimeout(ctx, min(d.Interval, maxLookup))
	defer cancel()
	look := d.addresses
	if d.Type == TypeSRV {
		look = d.services
	}
	found, out, err := look(ctx)
	set, unfit := d.endpointsOf(found)
	omitted := Omit(append(out, unfit...))
	if len(set) > 0 {
		return set, Both(err, omitted)
	}
	if omitted != nil {
		err = Both(err, fmt.Errorf("nothing in the answer can be used: %w", omitted))
	}
	if err == nil {
		err = errors.New("the answer has no address")
	}
	return nil, fmt.Errorf("looking up %s %q: %w", d.Type, d.Name, err)
}

// endpointsOf makes a set out of addresses, which may repeat: two names can lead to one server.
func (d *dnsSource) endpointsOf(found []netip.AddrPort) (set []Endpoint, out []api.Omission) {
	slices.SortFunc(found, netip.AddrPort.Compare)
	for _, a := range slices.Compact(found) {
		address, err := ParseAddress(a.String())
		if err == nil && len(set) == MaxEndpoints {
			err = ErrTooMany
		}
		if err != nil {
			out = append(out, api.Omission{Address: a.String(), Object: d.what(), Reason: err.Error()})
			continue
		}
		set = append(set, Endpoint{Address: address})
	}
	slices.SortFunc(set, ByAddress)
	return set, out
}

func (d *dnsSource) what() string { return fmt.Sprintf("%s record of %s", d.Type, d.Name) }

// addresses looks up A or AAAA records.
func (d *dnsSource) addresses(ctx context.Context) (found []netip.AddrPort, out []api.Omission, err error) {
	network := map[string]string{TypeA: "ip4", TypeAAAA: "ip6"}[d.Type]
	addrs, err := d.Resolver.LookupNetIP(ctx, network, d.Name)
	return withPort(addrs, uint16(d.Port)), nil, err
}

func withPort(addrs []netip.Addr, port uint16) []netip.AddrPort {
	found := make([]netip.AddrPort, len(addrs))
	for i, a := range addrs {
		found[i] = netip.AddrPortFrom(a.Unmap(), port)
	}
	return found
}

// services looks up SRV records and their targets. A target that could not be looked up is left out, or has the
// addresses that it had, with an error.
func (d *dnsSource) services(ctx context.Context) (found []netip.AddrPort, out []api.Omission, err error) {
	_, records, err := d.Resolver.LookupSRV(ctx, "", "", d.Name)
	if err != nil {
		return nil, nil, err
	}
	records = preferred(records)
	switch {
	case len(records) == 0:
		return nil, nil, errors.New("the answer has no target")
	case len(records) > MaxEndpoints:
		return nil, nil, fmt.Errorf("the answer has more than %d targets", MaxEndpoints)
	}
	d.targets, out, err = d.lookUpTargets(ctx, records)
	for _, r := range records {
		found = append(found, withPort(d.targets[r.Target], r.Port)...)
	}
	return found, out, err
}

// preferred are the records of the lowest priority number. The target "." says
// that the service is not there.
func preferred(records []*net.SRV) []*net.SRV {
	var best []*net.SRV
	for _, r := range records {
		if r.Target == "." || r.Target == "" {
			continue
		}
		if len(best) > 0 && r.Priority < best[0].Priority {
			best = nil
		}
		if len(best) == 0 || r.Priority == best[0].Priority {
			best = append(best, r)
		}
	}
	return best
}

// lookUpTargets returns the addresses of the records' targets, those that are left out, and why others have old ones.
func (d *dnsSource) lookUpTargets(ctx context.Context, records []*net.SRV) (map[string][]netip.Addr, []api.Omission,
	error) {
	names := make([]string, len(records))
	for i, r := range records {
		names[i] = r.Target
	}
	slices.Sort(names)
	names = slices.Compact(names)

	answers := make([][]netip.Addr, len(names))
	failures := make([]error, len(names))
	var g errgroup.Group
	g.SetLimit(maxParallel)
	for i, name := range names {
		g.Go(func() error {
			answers[i], failures[i] = d.target(ctx, name)
			return nil
		})
	}
	_ = g.Wait() // failures are kept one by one

	known := make(map[string][]netip.Addr, len(names))
	var out []api.Omission
	var old []error
	for i, name := range names {
		switch last := d.targets[name]; {
		case failures[i] == nil:
			known[name] = answers[i]
		case len(last) > 0:
			known[name], old = last, append(old, failures[i])
		default:
			out = append(out, api.Omission{Object: "target of " + d.what(), Reason: failures[i].Error()})
		}
	}
	return known, out, d.explain(old)
}

// target looks up the addresses of one SRV target.
func (d *dnsSource) target(ctx context.Context, name string) ([]netip.Addr, error) {
	addrs, err := d.Resolver.LookupNetIP(ctx, "ip", name)
	if err == nil && len(addrs) == 0 {
		err = errors.New("the answer has no address")
	}
	if err != nil {
		return nil, fmt.Errorf("looking up target %q: %w", name, err)
	}
	four := slices.Clone(addrs)
	four = slices.DeleteFunc(four, func(a netip.Addr) bool { return !a.Unmap().Is4() })
	if len(four) > 0 {
		return four, nil
	}
	return addrs, nil
}

// explain sums up why targets have their last addresses, the first ones word for word.
func (d *dnsSource) explain(failures []error) error {
	n := len(failures)
	if n == 0 {
		return nil
	}
	return fmt.Errorf("SRV %q: %d of its targets could not be looked up, their last addresses are kept: %w",
		d.Name, n, errors.Join(failures[:min(n, maxFaults)]...))
}
