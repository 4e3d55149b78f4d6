package sim

import (
	"slices"
	"time"

	"steelyard/weighting"
	"steelyard/weighting/push"
)

// Balancer names how an Envoy picks, or, for the last ones, something that sees more.
type Balancer string

// The balancers.
const (
	RoundRobin    Balancer = "round_robin"
	LeastRequest  Balancer = "least_request" // two choices by own requests; with unequal weights EDF, as in Envoy
	Random        Balancer = "random"
	FreeSlots     Balancer = "free_slots"     // weights by free slots, pushed every second: what not to do
	ShortestQueue Balancer = "shortest_queue" // one view of all pods for each request: the bound

	// With one view of all engines for each request, by what is in flight there, or by
	// the work that is known to be: in seconds, the prompt tokens that no iteration has
	// taken up yet by the prefill rate, and for each request in flight half of a mean
	// answer at the time of one sequence in an iteration.
	FewestInFlight Balancer = "fewest_in_flight"
	LeastWork      Balancer = "least_work"
	// LeastWorkGuessed estimates the work from the content-length of the prompts sent to
	// an engine, as if it had done nothing else since.
	LeastWorkGuessed Balancer = "least_work_guessed"

	// By the content of requests, with one view of all engines: by a hash of the first 2,048
	// tokens; to the engine that answered the longest beginning of the prompt, by routes
	// learned at the end of each prompt or at the end of each message of it, and by such a
	// hash where there is none; the same, but to the engine with the fewest in flight if that
	// one has more than twice the median in flight; and to the engine where the known work and
	// what the request adds to it, without what such routes say to be cached there, are
	// least.
	PrefixHash      Balancer = "prefix_hash"
	PrefixSingle    Balancer = "prefix_single"
	PrefixLearned   Balancer = "prefix_learned"
	PrefixOverride  Balancer = "prefix_override"
	LeastWorkPrefix Balancer = "least_work_prefix"
)

var prefixBalancers = []Balancer{PrefixHash, PrefixSingle, PrefixLearned, PrefixOverride, LeastWorkPrefix}

// byPrefix reports whether the policy looks at the content of requests.
func (p *Policy) byPrefix() bool {
	return p.Steelyard == nil && slices.Contains(prefixBalancers, p.Balancer)
}

// looksAtContent reports whether anything chooses by the content of requests.
func (p *Policy) looksAtContent() bool {
	return p.byPrefix() || p.Steelyard != nil && p.Steelyard.Picker.looks()
}

// byEnvoys reports whether the Envoys pick by themselves.
func (p *Policy) byEnvoys() bool {
	return slices.Contains([]Balancer{RoundRobin, LeastRequest, Random, FreeSlots}, p.Balancer)
}

// A Policy is a way to place requests. With Steelyard set, Balancer is ignored
// and the Envoys' own is Steelyard.EnvoyPolicy.
type Policy struct {
	Name     string
	Balancer Balancer

	Steelyard *Steelyard
}

// groups is into how many parts the Envoys are divided.
func (p *Policy) groups() int {
	if p.Steelyard == nil {
		return 1
	}
	return max(1, p.Steelyard.Apart)
}

// Source names where in-flight counts come from.
type Source string

// The sources.
const (
	AccessLog   Source = "access_log"   // an event at each beginning and end
	LoadReports Source = "load_reports" // gauges of each Envoy, each at its own phase
	Redis       Source = "redis"        // shared counts, polled
	Scrape      Source = "scrape"       // none: only what the servers report
)

// Picker is what chooses in the Envoys, in the place of the weights.
type Picker string

// The pickers.
const (
	NoPicker     Picker = ""
	PickerWork   Picker = "work"   // by the loads and the size of each request
	PickerPrefix Picker = "prefix" // and by what of its prompt is cached, as each has learned by itself
	PickerShared Picker = "shared" // the same, as all have learned together
)

// looks reports whether the picker looks at the content of requests.
func (k Picker) looks() bool { return k == PickerPrefix || k == PickerShared }

// Steelyard is the control plane as deployed.
type Steelyard struct {
	Source Source
	Picker Picker

	// ScrapeInterval is the time between two scrapes of a pod, 0 for none (with
	// Source Scrape: 1 s). ScrapeDelay is from a server's true numbers to the store.
	ScrapeInterval, ScrapeDelay time.Duration
	// ReportInterval is the interval of load reports (with the access log: of those that
	// reconcile it, default 1 s) or of polls of Redis. Default 50 ms.
	ReportInterval time.Duration
	// Uncorrected means that there are no load reports besides the access log: lost entries
	// stay lost, and its counts are not exact.
	Uncorrected bool
	// SignalDelay is the mean delay of an event, a load report or a poll: one half
	// fixed, one half exponential. Default 2 ms.
	SignalDelay time.Duration
	// Loss is the share of access log entries (or, of Redis, counts' changes) that
	// get lost, 0..1.
	Loss float64

	// Budget bounds the pushes; MinInterval, if positive, replaces it by a least time between two.
	Budget      push.Budget
	MinInterval time.Duration
	// Deadband, as total variation of shares, and Heartbeat decide what is pushed. Heartbeat and
	// FallbackAfter are stretched to what Budget sustains.
	Deadband  float64
	Heartbeat time.Duration
	// PushDelay is from a decision to its effect. Default 3 ms.
	PushDelay time.Duration
	// FallbackAfter is how long without a push until Envoys turn to their fallback,
	// least request with equal weights (endpoint_stale_after); 0 for never.
	FallbackAfter time.Duration

	// EnvoyPolicy is the Envoys' own under the weights: least_request (default, as steelyard bootstrap writes it, with
	// its bias), round_robin or random.
	EnvoyPolicy Balancer

	// Apart is the number of replicas that know nothing of each other, as without Redis: each has its part of the
	// Envoys, in turn, and their counts, and scrapes all pods. 0 means 1.
	Apart int

	// Capacity means that the slots are configured; otherwise they are learned.
	Capacity bool
	Params   weighting.Params // zero means the defaults

	// Shown is called with what a step of the law is shown, which it may change, and Decided with what it decides.
	Shown   func(at time.Duration, s *weighting.Snapshot)
	Decided func(at time.Duration, d *weighting.Decision)
}
