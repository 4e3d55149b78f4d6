package sim

import (
	"time"

	"steelyard/sim/engine"
	"steelyard/sim/trace"
)

// A Scenario is the world in which policies are compared: clients, servers,
// and what happens meanwhile. The same scenario and seed give every policy the
// same arrivals at the same Envoys with the same need of service.
type Scenario struct {
	Name string
	Seed uint64

	// Duration is the simulated time; requests that arrive before WarmUp do not
	// count.
	Duration, WarmUp time.Duration

	// Envoys share the requests by EnvoyShares (relative; empty: evenly). Each has
	// Workers (0 means 1), every one with its own scheduler.
	Envoys      int
	EnvoyShares []float64
	Workers     int

	Pods []PodGroup

	// Load is the arrival rate as a part of the pods' capacity (of those there at
	// the start); Rate is requests per second and takes precedence.
	Load, Rate float64

	Service Service // what requests need of pods with slots
	// Measured are times that requests need, as parts of Service.Mean and each as likely, instead of Service.Kind.
	Measured []float64
	Prompts  *Prompts // what they need of engines; nil where pods have slots
	Signals  Signals
	Events   []Event // in any order

	// SampleEvery asks for a Series with a sample that often. 0: none.
	SampleEvery time.Duration
}

// A PodGroup is a number of servers of one kind. Pods are numbered from 0 in the
// order of the groups.
type PodGroup struct {
	Count int
	Slots int     // requests executed at once; 0 for an engine
	Speed float64 // work per second and slot, or part of an engine's full speed; 0 means 1
	// Sharing slows the requests that run together, as in continuous batching:
	// in a full set each takes 1 + SlowDown times as long as a single
	// one, and between the two in proportion.
	Sharing  bool
	SlowDown float64
	// Engine makes the pods engines that batch continuously. Then all groups are.
	Engine *engine.Params
	// Capacity is what a Steelyard that has capacities has for each; 0: the slots.
	Capacity float64
	Zone     string
	Metrics  Metrics
}

// Metrics are how the metrics page of a server falls short of the truth.
type Metrics struct {
	// GaugeLag is how old the state is that the gauges (waiting, running, KV cache) show when they are read, and
	// CounterLag the same of the counters.
	GaugeLag, CounterLag time.Duration
	// NoTokens means that an engine does not count tokens: it exports gauges, completions and seconds.
	NoTokens bool
	// TokensAtEnd means that an engine counts the tokens of a request when it ends, and no iterations, as TensorRT-LLM
	// does where it serves by itself.
	TokensAtEnd bool
	// NoRunning means that a server exports no gauge of running requests, as Triton.
	NoRunning bool
}

// Prompts are requests to engines: those of a trace, at another pace. The intervals
// between them keep their proportions, and the trace begins again when it ends.
type Prompts struct {
	Trace *trace.Trace
	// Spread moves requests whose times are rounded to whole seconds apart.
	Spread bool
	// Cached is the mean share of a prompt in the prefix cache, 0..1, by chance for each.
	Cached float64
	// BytesPerToken of a prompt is the mean of a log-normal distribution with
	// BytesSpread as the standard deviation of the logarithm: 0 means the defaults, and a
	// negative spread none. Content-length follows from it; Chunked is the share of the
	// requests that come without.
	BytesPerToken, BytesSpread, Chunked float64
}

// The size of a prompt unless a scenario sets it.
const (
	DefaultBytesPerToken = 4.2
	DefaultBytesSpread   = 0.2
)

// ServiceKind names a distribution of service times.
type ServiceKind string

// The distributions.
const (
	Exponential   ServiceKind = "exponential"
	Deterministic ServiceKind = "deterministic"
	LogNormal     ServiceKind = "log-normal" // Sigma of the logarithm
	TwoClass      ServiceKind = "two-class"  // LongShare of the requests take LongFactor times as long as the others
)

// Service is the time that a single request takes on a pod of speed 1.
type Service struct {
	Kind ServiceKind // empty means exponential
	Mean time.Duration

	Sigma                 float64
	LongShare, LongFactor float64
}

// Signals are what happens to the messages to and from the control plane on their way, under every policy with
// Steelyard. Each overrides the one of [Steelyard] of that name; nil leaves that as it is.
type Signals struct {
	ScrapeDelay *time.Duration
	Delay       *time.Duration // SignalDelay
	Loss        *float64
	PushDelay   *time.Duration
}

// EventKind names something that happens.
type EventKind string

// The kinds of events. Those with a duration end after Event.For, or last if it is 0.
const (
	Join         EventKind = "join"          // pods appear; absent before if that is their first join or leave
	Leave        EventKind = "leave"         // pods are no longer endpoints; what they hold they finish
	Stall        EventKind = "stall"         // pods execute nothing; their metrics are true
	Hang         EventKind = "hang"          // pods execute nothing, and their metrics look idle
	Recover      EventKind = "recover"       // ends stall, hang and slow
	Slow         EventKind = "slow"          // pods are Factor times slower
	StaleMetrics EventKind = "stale-metrics" // scrapes of the pods fail
	FreshMetrics EventKind = "fresh-metrics" // ends stale-metrics
	StuckRunning EventKind = "stuck-running" // the pods' gauge of running requests shows 0
	StuckWaiting EventKind = "stuck-waiting" // the pods' gauge of waiting requests shows Factor
	Eject        EventKind = "eject"         // the Envoys send the pods nothing from the next push on
	FlashCrowd   EventKind = "flash-crowd"   // Factor times the arrivals
	// ControlPlaneAway: nothing is counted, decided or pushed; it comes back without memory.
	ControlPlaneAway EventKind = "control-plane-away"
)

// An Event happens to pods, or to the whole world.
type Event struct {
	At     time.Duration
	Kind   EventKind
	Pods   []int // numbers; empty means all
	Factor float64
	For    time.Duration
}
