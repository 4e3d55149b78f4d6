package discovery

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"slices"
	"strings"
	"unicode/utf8"

	"steelyard/internal/engines"
	"steelyard/internal/spelling"
)

// The bounds on what a source may name.
const (
	// MaxEndpoints is the number of endpoints of one cluster.
	MaxEndpoints = 10_000
	// MaxCapacity is the number of slots of one endpoint.
	MaxCapacity = 1_000_000

	maxZone = 253  // bytes
	maxPath = 1024 // bytes
	// maxFaults bounds the length of an error: the first ones are enough to
	// start with, and a thousand bad lines are often one mistake.
	maxFaults = 10
)

// ErrTooMany is what is wrong with an endpoint beyond MaxEndpoints.
var ErrTooMany = fmt.Errorf("more than %d endpoints in one cluster; split the cluster", MaxEndpoints)

// ByAddress is the order of the endpoints in a set.
func ByAddress(a, b Endpoint) int { return cmp.Compare(a.Address, b.Address) }

// Normalize checks a whole set and returns it as a Discoverer sends it: with
// addresses in canonical form, sorted by address, never nil. The error names
// each endpoint at fault by its index in set, at most the first ten.
func Normalize(set []Endpoint) ([]Endpoint, error) {
	var c collector
	for i, e := range set {
		c.add(fmt.Sprintf("endpoint %d", i), e)
	}
	return c.result()
}

func (e Endpoint) validateLabels() error {
	return errors.Join(
		validateZone(e.Zone),
		validateCapacity(e.Capacity),
		validateEngine(e.Engine),
		validatePort(e.MetricsPort),
		validatePath(e.MetricsPath),
	)
}

// ParseAddress returns the canonical spelling of an IP:port. Names are refused:
// what EDS hands to the proxies are IPs, and only the dns source looks names up.
func ParseAddress(s string) (string, error) {
	ap, err := netip.ParseAddrPort(s)
	if err != nil {
		return "", explainAddress(s)
	}
	switch a := ap.Addr(); {
	case ap.Port() == 0:
		return "", fmt.Errorf("address %q: port 0 cannot be connected to; write the port the server listens on", s)
	case a.Zone() != "":
		return "", fmt.Errorf("address %q: an IPv6 zone means nothing to another machine; "+
			"write an address without %%%s", s, a.Zone())
	case a.IsUnspecified() || a.IsMulticast():
		return "", fmt.Errorf("address %q: no single server has this IP; write the server's own", s)
	}
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port()).String(), nil
}

// explainAddress finds out what the writer of a bad address may have meant.
func explainAddress(s string) error {
	if a, err := netip.ParseAddr(strings.Trim(s, "[]")); err == nil {
		return fmt.Errorf("address %q has no port; write it as %q", s, net.JoinHostPort(a.String(), "8000"))
	}
	host, port, err := net.SplitHostPort(s)
	switch {
	case err != nil && strings.Contains(s, "://"):
		return fmt.Errorf("address %q is a URL; write IP:port only", s)
	case err != nil:
		return fmt.Errorf("address %q is not IP:port: %w", s, err)
	case host == "":
		return fmt.Errorf("address %q has no IP; write IP:port, such as 10.0.0.1:%s", s, port)
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return fmt.Errorf("address %q: port %q is not a number from 1 to 65535", s, port)
	}
	if strings.Trim(host, "0123456789.") == "" {
		return fmt.Errorf("address %q: %q is not an IP: each of its four numbers is 0 to 255, without leading zeros",
			s, host)
	}
	return fmt.Errorf("address %q: %q is not an IP, and EDS hands IPs to the proxies; "+
		"if it is a name, use dns: {name: %s, type: A, port: %s} instead", s, host, host, port)
}

func validateZone(zone string) error {
	switch {
	case len(zone) > maxZone:
		return fmt.Errorf("zone is %d bytes long; the limit is %d", len(zone), maxZone)
	case !utf8.ValidString(zone):
		return fmt.Errorf("zone %q is not valid UTF-8", zone)
	}
	return nil
}

func validateCapacity(c float64) error {
	if math.IsNaN(c) || c < 0 || c > MaxCapacity {
		return fmt.Errorf("capacity %v is not a number of slots from 0 (the cluster's) to %d", c, MaxCapacity)
	}
	return nil
}

func validateEngine(engine string) error {
	if engine == "" || slices.Contains(engines.Names(), engine) {
		return nil
	}
	return fmt.Errorf("engine %q is not known%s; write one of %s", engine, spelling.DidYouMean(engine, engines.Names()),
		strings.Join(engines.Names(), ", "))
}

func validatePort(port int) error {
	if port < 0 || port > 65535 {
		return fmt.Errorf("metrics_port %d is not a port from 1 to 65535, or 0 for the cluster's", port)
	}
	return nil
}

func validatePath(path string) error {
	switch {
	case path == "":
		return nil
	case len(path) > maxPath:
		return fmt.Errorf("metrics_path is %d bytes long; the limit is %d", len(path), maxPath)
	case path[0] != '/':
		return fmt.Errorf("metrics_path %q does not begin with a slash; write %q", path, "/"+path)
	case strings.ContainsFunc(path, unfitForPath):
		return fmt.Errorf("metrics_path %q has spaces or control characters; write them percent-encoded", path)
	}
	return nil
}

func unfitForPath(r rune) bool { return r <= ' ' || r == 0x7f || r == utf8.RuneError }

// A collector gathers endpoints into a set and what is wrong with them, each
// with the position its source gives it.
type collector struct {
	set     []Endpoint
	given   map[string]given // by canonical address
	repeats bool             // the same endpoint again is no fault
	faults  []error
	more    int    // faults beyond maxFaults
	next    string // position of the first of them
}

// given is an endpoint, and the position of its first mention.
type given struct {
	where    string
	endpoint Endpoint
}

func (c *collector) fault(where string, err error) {
	if len(c.faults) == maxFaults {
		if c.more++; c.more == 1 {
			c.next = where
		}
		return
	}
	// One line for each fault, which begins with its position.
	c.faults = append(c.faults, fmt.Errorf("%s: %s", where, strings.ReplaceAll(err.Error(), "\n", "; ")))
}

// add checks e and takes it in; where is its position for the reader of an error.
func (c *collector) add(where string, e Endpoint) {
	address, err := ParseAddress(e.Address)
	if err := errors.Join(err, e.validateLabels()); err != nil {
		c.fault(where, err)
		return
	}
	e.Address = address
	if first, ok := c.given[address]; ok {
		if !c.repeats || first.endpoint != e {
			c.fault(where, fmt.Errorf("address %s is already given at %s; leave one of them out", address, first.where))
		}
		return
	}
	if len(c.set) == MaxEndpoints {
		c.fault(where, ErrTooMany)
		return
	}
	if c.given == nil {
		c.given = map[string]given{}
	}
	c.given[address] = given{where, e}
	c.set = append(c.set, e)
}

// result is the set, or all that is wrong with it: a set with a fault is not
// used in part, because it is unclear which half of it was meant.
func (c *collector) result() ([]Endpoint, error) {
	if c.more > 0 {
		c.faults = append(c.faults, fmt.Errorf("%s: and %d more from here on", c.next, c.more))
	}
	if err := errors.Join(c.faults...); err != nil {
		return nil, err
	}
	slices.SortFunc(c.set, ByAddress)
	if c.set == nil {
		return []Endpoint{}, nil
	}
	return c.set, nil
}
