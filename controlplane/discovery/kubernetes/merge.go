package kubernetes

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	core "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"steelyard/controlplane/discovery"
	"steelyard/internal/engines"
)

// The annotations, or else labels, of a Pod that describe its endpoint.
const (
	capacityHint = "steelyard.dev/capacity"
	engineHint   = "steelyard.dev/engine"
)

var hints = []string{capacityHint, engineHint}

// maxFaults bounds the length of an error.
const maxFaults = 5

// A candidate is an address that an object names.
type candidate struct {
	discovery.Endpoint
	address, family             string
	port                        int
	ready, serving, terminating bool
}

// counts reports whether the candidate is an endpoint, by its conditions.
func (c candidate) counts() bool { return c.ready || c.terminating }

// A merger makes a set of endpoints out of candidates.
type merger struct {
	family string // wanted; empty for any, IPv4 first
	what   string // the source, in messages

	objects    int // that were looked at
	candidates []candidate
	faults     []error
	more       int // faults beyond maxFaults
	// unusable: there are endpoints that would get requests, but for a fault.
	unusable bool
}

// left notes what could not be used, and why.
func (m *merger) left(format string, args ...any) {
	if len(m.faults) == maxFaults {
		m.more++
		return
	}
	m.faults = append(m.faults, fmt.Errorf(format, args...))
}

// missed notes that endpoints which would get requests cannot be used, and why.
func (m *merger) missed(format string, args ...any) {
	m.unusable = true
	m.left(format, args...)
}

func (m *merger) add(c candidate) { m.candidates = append(m.candidates, c) }

// hint applies a Pod's annotations and labels.
func (m *merger) hint(c *candidate, pod meta.ObjectMeta) {
	hintOf := func(name string) string {
		if v, ok := pod.Annotations[name]; ok {
			return strings.TrimSpace(v)
		}
		return pod.Labels[name]
	}
	if v := hintOf(capacityHint); v != "" {
		n, err := strconv.ParseFloat(v, 64)
		if err == nil && n > 0 && n <= discovery.MaxCapacity {
			c.Capacity = n
		} else {
			m.left("Pod %s: %s is %.40q: write a number of slots above 0, at most %d", pod.Name, capacityHint, v,
				discovery.MaxCapacity)
		}
	}
	if v := hintOf(engineHint); v != "" {
		if slices.Contains(engines.Names(), v) {
			c.Engine = v
		} else {
			m.left("Pod %s: %s is %.40q: write one of %s", pod.Name, engineHint, v,
				strings.Join(engines.Names(), ", "))
		}
	}
}

// result is the endpoints, sorted by address, and what was left out. A nil set replaces nothing: where the API has
// endpoints and none of them can be used, the fault is one of names and numbers, such as a port that was renamed, and
// those known still serve.
func (m *merger) result() ([]discovery.Endpoint, error) {
	byAddress := make(map[string]candidate, len(m.candidates))
	for _, c := range m.inFamily() {
		if !c.counts() {
			continue
		}
		address, err := discovery.ParseAddress(net.JoinHostPort(c.address, strconv.Itoa(c.port)))
		if err != nil {
			m.missed("%w", err)
			continue
		}
		c.Address = address
		if other, twice := byAddress[address]; !twice || preferred(c, other) {
			byAddress[address] = c
		}
	}
	if len(byAddress) > discovery.MaxEndpoints {
		return nil, fmt.Errorf("%s has %d endpoints: a cluster takes %d, so split it", m.what, len(byAddress),
			discovery.MaxEndpoints)
	}
	if len(byAddress) == 0 && m.unusable {
		return nil, m.fault()
	}
	usable := false
	for _, c := range byAddress {
		usable = usable || !c.terminating
	}
	set := make([]discovery.Endpoint, 0, len(byAddress))
	for _, c := range byAddress {
		// Where all terminate, requests can only succeed at one of them.
		c.Terminating = c.terminating && (usable || !c.serving)
		set = append(set, c.Endpoint)
	}
	slices.SortFunc(set, func(a, b discovery.Endpoint) int { return cmp.Compare(a.Address, b.Address) })
	return set, m.fault()
}

func (m *merger) fault() error {
	if len(m.faults) == 0 {
		return nil
	}
	// In an order of their own: a store has none, and the same faults should read the same.
	slices.SortFunc(m.faults, func(a, b error) int { return cmp.Compare(a.Error(), b.Error()) })
	if m.more > 0 {
		m.faults = append(m.faults, fmt.Errorf("and %d more", m.more))
	}
	var all []string
	for _, f := range m.faults {
		all = append(all, f.Error())
	}
	return fmt.Errorf("%s: %w", m.what, errors.New(strings.Join(all, "; ")))
}

// preferred reports whether a rather than b says what is at their address.
func preferred(a, b candidate) bool {
	if a.ID == b.ID {
		// Slices are written one after the other, and a Pod that terminates never returns.
		return a.terminating && !b.terminating
	}
	// The IP has gone to another Pod, whose entry is the usable one.
	if a.terminating != b.terminating {
		return b.terminating
	}
	return a.ID > b.ID // any, but always the same
}

// inFamily are the candidates without those that are an endpoint of the other address family.
func (m *merger) inFamily() []candidate {
	if m.family != "" {
		return m.onlyFamily()
	}
	// By Pod; candidates without one are a group of their own.
	four := make(map[string]bool)
	for _, c := range m.candidates {
		if c.family == IPv4 {
			four[c.ID] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(m.candidates), func(c candidate) bool {
		return c.family == IPv6 && four[c.ID]
	})
}

func (m *merger) onlyFamily() []candidate {
	has, lacks := make(map[string]bool), make(map[string]bool)
	for _, c := range m.candidates {
		if c.family == m.family {
			has[c.ID] = true
		}
	}
	out := slices.DeleteFunc(slices.Clone(m.candidates), func(c candidate) bool {
		if c.family != m.family && !has[c.ID] && c.counts() {
			lacks[cmp.Or(c.Pod, c.address)] = true
		}
		return c.family != m.family
	})
	if len(lacks) > 0 {
		first := slices.Min(slices.Collect(maps.Keys(lacks)))
		m.missed("%d Pods have no %s address, which ip_family asks for, the first %s", len(lacks), m.family, first)
	}
	return out
}

// ports are the serving port and the metrics port, 0 for the serving port, of a slice.
func (s *ServiceConfig) ports(slice *discoveryv1.EndpointSlice) (serving, metrics int, err error) {
	serving, err = pick(slice.Ports, s.Port, "port")
	if err != nil || s.MetricsPort == "" {
		return serving, 0, err
	}
	if n, err := strconv.Atoi(s.MetricsPort); err == nil {
		return serving, n, nil // which the configuration has checked
	}
	metrics, err = pick(slice.Ports, s.MetricsPort, "metrics_port")
	return serving, metrics, err
}

// pick finds the port that is wanted by name or number, or the only one.
func pick(all []discoveryv1.EndpointPort, wanted, key string) (int, error) {
	var found []int
	var names []string
	for _, p := range all {
		if p.Port == nil || p.Protocol != nil && *p.Protocol != core.ProtocolTCP {
			continue
		}
		number, name := int(*p.Port), deref(p.Name)
		names = append(names, strings.TrimSpace(fmt.Sprintf("%s %d", name, number)))
		if wanted == "" || wanted == name || wanted == strconv.Itoa(number) {
			found = append(found, number)
		}
	}
	slices.Sort(found)
	found = slices.Compact(found)
	number, err := strconv.Atoi(wanted)
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(names) == 0 && err == nil:
		return number, nil // a headless Service without ports
	case len(names) == 0:
		return 0, fmt.Errorf("it has no TCP port: write a number as the value of %s", key)
	case wanted == "":
		return 0, fmt.Errorf("it has the ports %s: write the one to use as the value of %s",
			strings.Join(names, ", "), key)
	}
	return 0, fmt.Errorf("it has no %s %s: its ports, which are those of the Pods, are %s", key, wanted,
		strings.Join(names, ", "))
}
