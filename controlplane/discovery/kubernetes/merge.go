package kubernetes

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"steelyard/internal/api"

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

// Labels that llm-d and AIBrix give a Pod.
const (
	roleLabel         = "llm-d.ai/role"
	llmdEngineLabel   = "llm-d.ai/engine-type"
	llmdModelLabel    = "llm-d.ai/model"
	aibrixEngineLabel = "model.aibrix.ai/engine"
	aibrixModelLabel  = "model.aibrix.ai/name"
)

// known are the annotations and labels that are read.
var known = []string{capacityHint, engineHint, roleLabel, llmdEngineLabel, llmdModelLabel, aibrixEngineLabel,
	aibrixModelLabel}

// otherEngines are names of engines as llm-d has them, where it calls one otherwise.
var otherEngines = map[string]string{
	"trtllm-serve": engines.TensorRTLLM, "triton-tensorrt-llm": engines.TensorRTLLM,
}

// A candidate is an address that an object names.
type candidate struct {
	discovery.Endpoint
	// owner identifies the server: a Pod has several addresses, and a server without a Pod is one of its own.
	owner string
	// object names what the address comes from, in messages.
	object string
	// fault is why the address cannot be used; empty for none.
	fault                       string
	address, family             string
	port                        int
	ready, serving, terminating bool
}

// counts reports whether the candidate is an endpoint, by its conditions.
func (c candidate) counts() bool { return c.ready || c.terminating }

// where is the candidate's address as the API has it, with a port where that is known.
func (c candidate) where() string {
	if c.port == 0 {
		return c.address
	}
	return net.JoinHostPort(c.address, strconv.Itoa(c.port))
}

// A merger makes a set of endpoints out of candidates.
type merger struct {
	family string // wanted; empty for any, IPv4 first
	what   string // the source, in messages

	candidates []candidate
	omitted    []api.Omission
	// unusable: there are endpoints that would get requests, but for a fault.
	unusable bool
}

func (m *merger) add(c candidate) { m.candidates = append(m.candidates, c) }

// omit leaves out a candidate that would get requests.
func (m *merger) omit(c candidate, format string, args ...any) {
	m.unusable = true
	m.leaveOut(c.where(), c.object, format, args...)
}

// leaveOut names something that is not used. The address may be empty.
func (m *merger) leaveOut(address, object, format string, args ...any) {
	m.omitted = append(m.omitted, api.Omission{Address: address, Object: object,
		Reason: fmt.Sprintf(format, args...)})
}

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
			m.leaveOut(c.address, capacityHint+" of Pod "+pod.Name,
				"it is %.40q: write a number of slots above 0, at most "+
					"%d; until then the Pod has the capacity of the cluster's configuration", v, discovery.MaxCapacity)
		}
	}
	c.Role = pod.Labels[roleLabel]
	c.Model = cmp.Or(pod.Labels[llmdModelLabel], pod.Labels[aibrixModelLabel])
	c.Engine = labelledEngine(pod.Labels)
	if v := hintOf(engineHint); v != "" {
		if slices.Contains(engines.Names(), v) {
			c.Engine = v
		} else {
			m.leaveOut(c.address, engineHint+" of Pod "+pod.Name,
				"it is %.40q: write one of %s; until then the Pod has the "+
					"engine of the cluster's configuration", v, strings.Join(engines.Names(), ", "))
		}
	}
}

// labelledEngine is the engine that the labels of others name; empty for none that is known here, which is no fault of
// the Pod.
func labelledEngine(labels map[string]string) string {
	name := cmp.Or(labels[llmdEngineLabel], labels[aibrixEngineLabel])
	if name = cmp.Or(otherEngines[name], name); !slices.Contains(engines.Names(), name) {
		return ""
	}
	return name
}

// result is the endpoints, sorted by address, and what was left out. A nil set replaces nothing: where the API has
// endpoints and none of them can be used, the fault is one of names and numbers, such as a port that was renamed, and
// those known still serve.
func (m *merger) result() ([]discovery.Endpoint, error) {
	byAddress := make(map[string]candidate, len(m.candidates))
	for _, c := range m.inFamily(m.usable()) {
		switch other, twice := byAddress[c.Address]; {
		case !twice:
			byAddress[c.Address] = c
		case preferred(c, other):
			m.conflict(other, c)
			byAddress[c.Address] = c
		default:
			m.conflict(c, other)
		}
	}
	set := inUse(byAddress)
	for _, e := range set[min(len(set), discovery.MaxEndpoints):] {
		m.omit(byAddress[e.Address], "%v", discovery.ErrTooMany)
	}
	omitted := discovery.Omit(m.omitted)
	if len(set) == 0 && m.unusable {
		return nil, fmt.Errorf("%s: nothing can be used: %w", m.what, omitted)
	}
	return set[:min(len(set), discovery.MaxEndpoints)], omitted
}

// usable are the candidates that are endpoints, with their addresses.
func (m *merger) usable() []candidate {
	var out []candidate
	for _, c := range m.candidates {
		if !c.counts() {
			continue
		}
		var err error
		if c.fault == "" {
			c.Address, err = discovery.ParseAddress(c.where())
		}
		switch {
		case c.fault != "":
			m.omit(c, "%s", c.fault)
		case err != nil:
			m.omit(c, "%v", err)
		default:
			out = append(out, c)
		}
	}
	return out
}

// conflict names a Pod whose address is another's, too. One that terminates has left it to the other.
func (m *merger) conflict(out, in candidate) {
	if out.owner != in.owner && out.ID != "" && !out.terminating {
		m.leaveOut(out.Address, out.object, "%s is ready at the same address, and has it", in.object)
	}
}

// inUse is the set of endpoints.
func inUse(byAddress map[string]candidate) []discovery.Endpoint {
	others := false
	for _, c := range byAddress {
		others = others || !c.terminating
	}
	set := make([]discovery.Endpoint, 0, len(byAddress))
	for _, c := range byAddress {
		// Where all terminate, requests can only succeed at one of them.
		c.Terminating = c.terminating && (others || !c.serving)
		set = append(set, c.Endpoint)
	}
	slices.SortFunc(set, discovery.ByAddress)
	return set
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

// inFamily are the candidates without those of servers that are an endpoint of the other address family.
func (m *merger) inFamily(all []candidate) []candidate {
	wanted := cmp.Or(m.family, IPv4)
	has := make(map[string]bool)
	for _, c := range m.candidates { // ready or not: slices of the two families change one after the other
		has[c.owner] = has[c.owner] || c.family == wanted && c.fault == ""
	}
	return slices.DeleteFunc(all, func(c candidate) bool {
		if c.family == wanted || !has[c.owner] && m.family == "" {
			return false
		}
		if !has[c.owner] {
			m.omit(c, "it has no %s address, which ip_family asks for", wanted)
		}
		return true
	})
}

// ports are the serving port and the metrics port, 0 for the serving port, of a slice. ported says that some slice of
// its Service has ports.
func (s *ServiceConfig) ports(slice *discoveryv1.EndpointSlice, ported bool) (serving, metrics int, err error) {
	serving, err = pick(slice.Ports, s.Port, "port", ported)
	if err != nil || s.MetricsPort == "" {
		return serving, 0, err
	}
	if n, err := strconv.Atoi(s.MetricsPort); err == nil {
		return serving, n, nil // which the configuration has checked
	}
	metrics, err = pick(slice.Ports, s.MetricsPort, "metrics_port", ported)
	return serving, metrics, err
}

// numbered reports whether a slice has a port, of any protocol.
func numbered(slice *discoveryv1.EndpointSlice) bool {
	return slices.ContainsFunc(slice.Ports, func(p discoveryv1.EndpointPort) bool { return p.Port != nil })
}

// pick finds the port that is wanted by name or number, or the only one.
func pick(all []discoveryv1.EndpointPort, wanted, key string, ported bool) (int, error) {
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
	case len(names) == 0 && ported:
		return 0, errors.New("it has no TCP port, though its Service has ports: do its Pods lack the port that the " +
			"Service names?")
	case len(names) == 0 && err == nil:
		return number, nil // a headless Service without ports
	case len(names) == 0:
		return 0, fmt.Errorf("it has no TCP port: write a number as the value of %s", key)
	case wanted == "":
		return 0, fmt.Errorf("it has the ports %s: write the one to use as the value of %s",
			strings.Join(names, ", "), key)
	}
	return 0, fmt.Errorf("it has no %s %s: its ports are the ports of its Pods, %s", key, wanted,
		strings.Join(names, ", "))
}
