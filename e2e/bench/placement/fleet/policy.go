package fleet

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"steelyard/e2e/rig/modelsim"
)

// A Policy is one way for requests to find their servers: a row of the bench.
type Policy struct {
	Name  string // in the JSON
	Title string // in tables and plots

	// One of these four. Native is the policy of Envoys without
	// Steelyard; Extension has Envoys that ask the endpoint picker of the Gateway API
	// Inference Extension; Direct has no Envoys: the load generator sees every request
	// and picks.
	Native    Native
	Control   *Control
	Extension bool
	Direct    bool
}

// Native is a load balancing policy of Envoy's own.
type Native string

// The native policies of the bench.
const (
	RoundRobin   Native = "ROUND_ROBIN"
	LeastRequest Native = "LEAST_REQUEST"
	// CSWRR is client_side_weighted_round_robin. Its servers send ORCA reports.
	CSWRR Native = "CLIENT_SIDE_WEIGHTED_ROUND_ROBIN"
)

// Control is the sources of a row's Steelyard, and how it pushes.
type Control struct {
	Default bool // all sources as they are when nothing is configured but the endpoints; the next four do not matter

	Scrape      time.Duration // interval between two scrapes of a server; 0 does not scrape
	Redis       time.Duration // interval between two reads of the counts in Redis; 0 has no Redis
	LoadReports bool          // Envoys report their load (LRS)
	AccessLog   bool          // Envoys report every request

	RoundRobin bool          // under the weights, instead of what bootstrap writes
	TargetWait time.Duration // above 0, a saturated pool sheds down to this wait
	Push       []string      // lines of the cluster's push section, such as "min_interval: 20ms"

	Module bool // Envoys name the endpoint of each request, by the module
	Picker bool // or ask a steelyard picker, one for each Envoy
	Prefix bool // either looks at prompts
	Queue  bool // with the module: a request waits in its Envoy until a slot is free

	Classes []string // of the queue, such as "{name: gold, weight: 3}"; none: one class
	Stamps  bool     // Envoys add to answers when the request came and was sent on

	Replicas int  // of Steelyard, each with its part of the Envoys; 0 is one
	Cut      bool // the network between the replicas hangs as soon as the row runs
}

// classes returns the classes of the queue as a part of the configuration.
func (c *Control) classes() string {
	if len(c.Classes) == 0 {
		return ""
	}
	return ", classes: [" + strings.Join(c.Classes, ", ") + "]"
}

// The policies of the bench. Those with a source of in-flight counts also scrape
// at the default interval, as their users would.
func Policies() []Policy {
	const scrape = 250 * time.Millisecond
	return []Policy{
		{Name: "least_request", Title: "LEAST_REQUEST", Native: LeastRequest},
		{Name: "round_robin", Title: "ROUND_ROBIN", Native: RoundRobin},
		{Name: "cswrr", Title: "client-side WRR", Native: CSWRR},
		{Name: "steelyard_scrape_1s", Title: "Steelyard, scraping 1 s", Control: &Control{Scrape: time.Second}},
		{Name: "steelyard_scrape_250ms", Title: "Steelyard, scraping 250 ms", Control: &Control{Scrape: scrape}},
		{Name: "steelyard_lrs", Title: "Steelyard, load reports", Control: &Control{Scrape: scrape, LoadReports: true}},
		{Name: "steelyard_redis", Title: "Steelyard, Redis",
			Control: &Control{Scrape: scrape, Redis: 50 * time.Millisecond}},
		{Name: "steelyard_access_log", Title: "Steelyard, access log",
			Control: &Control{Scrape: scrape, LoadReports: true, AccessLog: true}},
		{Name: "shortest_queue", Title: "bound: shortest queue", Direct: true},
	}
}

// inferenceExtension is a row that only runs if it is named, because it needs a Kubernetes API.
func inferenceExtension() Policy {
	return Policy{Name: "inference_extension", Title: "Inference Extension's picker", Extension: true}
}

// Variants of a row with Steelyard, as suffixes of its name.
const (
	variantRoundRobin = "+round_robin" // Envoy's ROUND_ROBIN under the weights, instead of what bootstrap writes
	variantShedding   = "+shedding"    // a bootstrap without the aggregate cluster of the fail-safe
	VariantModule     = "+module"      // the module inside Envoy chooses for each request
	VariantPicker     = "+picker"      // a picker next to each Envoy does (ext_proc)
	VariantPrefix     = "+prefix"      // by prompts too
	variantQueue      = "+queue"       // with the module: requests wait in their Envoys, in one queue
	variantReplicas   = "+replicas"    // two replicas, each with half of the Envoys
	variantCut        = "+cut"         // the same, cut off from each other
)

// Queued reports whether requests wait in their Envoys, instead of at the servers.
func (p Policy) Queued() bool { return p.Control != nil && p.Control.Queue }

// InReplicas makes a row with Steelyard one with two replicas, which are cut off from each other or not.
func (p Policy) InReplicas(cut bool) Policy {
	variant := variantReplicas
	if cut {
		variant = variantCut
	}
	c := *p.Control
	c.Replicas, c.Cut = 2, cut
	p.Control, p.Name, p.Title = &c, p.Name+variant, p.Title+variant
	return p
}

// With makes a row with Steelyard one with variants.
func (p Policy) With(variants string) (Policy, error) {
	c := *p.Control
	p.Control = &c
	return p.with(variants)
}

// Named returns the policy of a name: one of Policies, a variant of one, or inference_extension.
func Named(name string) (Policy, error) {
	base, variants := name, ""
	if i := strings.Index(name, "+"); i >= 0 {
		base, variants = name[:i], name[i:]
	}
	all := append(Policies(), inferenceExtension())
	i := slices.IndexFunc(all, func(p Policy) bool { return p.Name == base })
	if i < 0 {
		var names []string
		for _, p := range all {
			names = append(names, p.Name)
		}
		return Policy{}, fmt.Errorf("there is no row %q: want some of %s", name, strings.Join(names, ","))
	}
	return all[i].with(variants)
}

// with changes the policy, which has a Control of its own.
func (p Policy) with(variants string) (Policy, error) {
	name := p.Name + variants
	for rest := variants; rest != ""; {
		switch {
		case p.Control != nil && strings.HasPrefix(rest, variantRoundRobin):
			p.Control.RoundRobin, rest = true, strings.TrimPrefix(rest, variantRoundRobin)
		case p.Control != nil && strings.HasPrefix(rest, variantShedding):
			p.Control.TargetWait, rest = time.Hour, strings.TrimPrefix(rest, variantShedding)
		case p.Control != nil && strings.HasPrefix(rest, VariantModule):
			p.Control.Module, rest = true, strings.TrimPrefix(rest, VariantModule)
		case p.Control != nil && strings.HasPrefix(rest, VariantPicker):
			p.Control.Picker, rest = true, strings.TrimPrefix(rest, VariantPicker)
		case p.Control != nil && strings.HasPrefix(rest, VariantPrefix):
			p.Control.Prefix, rest = true, strings.TrimPrefix(rest, VariantPrefix)
		case p.Control != nil && p.Control.Module && strings.HasPrefix(rest, variantQueue):
			p.Control.Queue, rest = true, strings.TrimPrefix(rest, variantQueue)
		case p.Control != nil && strings.HasPrefix(rest, variantReplicas):
			p.Control.Replicas, rest = 2, strings.TrimPrefix(rest, variantReplicas)
		case p.Control != nil && strings.HasPrefix(rest, variantCut):
			p.Control.Replicas, p.Control.Cut, rest = 2, true, strings.TrimPrefix(rest, variantCut)
		default:
			return Policy{}, fmt.Errorf("row %q: %s is no variant of it: rows with Steelyard have %s", name, rest,
				strings.Join([]string{variantRoundRobin, variantShedding, VariantModule, VariantModule + variantQueue,
					VariantPicker, VariantPrefix, variantReplicas, variantCut}, ", "))
		}
	}
	p.Name, p.Title = name, p.Title+variants
	return p, nil
}

// A Size is how large a row is, and of what.
type Size struct {
	Envoys  int
	Workers int // of each Envoy; 0: 1
	Servers int
	Slots   int     // of each server; 0: Engines
	Slow    int     // of the servers, which take three times as long
	Skew    bool    // the first Envoy gets half of the requests
	Load    float64 // offered work as a share of what the servers can do

	Service time.Duration // mean work of a request

	// Engines, if not empty, replaces the Servers, which have slots. Steelyard is not configured with their capacity.
	Engines []modelsim.Options

	Observer modelsim.Observer // of the requests at the servers; none where the policy has Redis, whose counter it is
}

// slowSpeed is the speed of a slow server.
const slowSpeed = 1.0 / 3

// speed returns the speed of server i. Slow ones come first; the order has no effect.
func (s Size) speed(i int) float64 {
	if i < s.Slow {
		return slowSpeed
	}
	return 1
}

// capacities returns the servers' capacities, in slots at full speed.
func (s Size) capacities() []float64 {
	all := make([]float64, s.Servers)
	for i := range all {
		all[i] = float64(s.Slots) * s.speed(i)
	}
	return all
}

// Capacity returns how much work all servers do in a second, in seconds of work.
func (s Size) Capacity() float64 {
	sum := 0.0
	for _, c := range s.capacities() {
		sum += c
	}
	return sum
}

// Rate returns the number of requests per second that makes the load.
func (s Size) Rate() float64 { return s.Load * s.Capacity() / s.Service.Seconds() }

// places is how many requests a queue lets an endpoint have: its slots, and where some milliseconds until the next
// request is granted are much of a service, one more, as docs/queue.md advises.
func (s Size) places() int {
	const short = 100 * time.Millisecond
	if s.Service < short {
		return s.Slots + 1
	}
	return s.Slots
}

// shares returns the Envoys' shares of the requests; nil for equal ones.
func (s Size) shares() []float64 {
	if !s.Skew || s.Envoys < 2 {
		return nil
	}
	all := make([]float64, s.Envoys)
	for i := range all {
		all[i] = 1
	}
	all[0] = float64(s.Envoys - 1)
	return all
}

// serverOptions returns the options of server i under a policy.
func (s Size) serverOptions(i int, p Policy, observer modelsim.Observer) modelsim.Options {
	if observer == nil {
		observer = s.Observer
	}
	if len(s.Engines) > 0 {
		o := s.Engines[i]
		o.Observer = observer
		return o
	}
	o := modelsim.Options{Engine: modelsim.VLLM, Slots: s.Slots, Speed: s.speed(i), Observer: observer}
	if p.Native == CSWRR {
		// Tried at 1 s service: utilization without the queue, and averages over
		// 10 and 60 services. This did best.
		o.ORCA, o.ORCAWindow = modelsim.ORCAQueue, 5*s.Service
	}
	return o
}
