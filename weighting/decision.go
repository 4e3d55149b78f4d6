package weighting

import (
	"slices"
	"time"
)

// A Decision is what the proxies of one cluster should do, together with its working: every number that led to it, so
// that "why does this endpoint weigh 37" is answered by data that is already there.
type Decision struct {
	At        time.Time
	Endpoints []EndpointDecision // sorted by address

	// Working of the whole pool.
	ArrivalRate       float64       // requests per second expected at the cluster
	ArrivalRateSource RateSource    // where ArrivalRate came from
	Horizon           time.Duration // for which the decision has to be good (package comment)
	Arrivals          float64       // requests to fill in: those expected within the horizon, A of the package comment
	WaterLevel        float64       // common level, in requests per slot (package comment)
	// MedianLoad is the median level of the endpoints with a fresh or held report (while there is none, with a decaying
	// one), in requests per slot; NaN without any.
	MedianLoad float64

	// DropFraction is the share of requests, 0..1, that the proxies should refuse because the whole pool is saturated.
	// Zero unless shedding is enabled.
	DropFraction float64
	// ExpectedWait is the mean time in seconds that the next request waits for a slot, over the pool; NaN while
	// unknown.
	ExpectedWait float64

	// Work is what was learned of the requests of a pool whose unit of load is the work of a mean request; nil where
	// the unit is the request.
	Work *Work

	vessels   []Vessel // as filled, in the order of Endpoints
	byLatency bool     // they are those of least latency
}

// Work is what requests cost engines that batch continuously, as learned from about the last minute.
type Work struct {
	PromptTokens float64   // of a mean request, without those from a prefix cache
	OutputTokens float64   // of a mean request
	Requests     float64   // that the means are made of
	Engines      int       // whose counters of tokens are usable
	CountedAt    time.Time // the newest reading of these counters
	// TokensPerByte is prompt tokens that each byte of a request's body makes an engine compute, without those from a
	// prefix cache, by these counters and the sizes of requests; NaN while unknown. SizedAt is its newest reading.
	TokensPerByte float64
	SizedAt       time.Time
	// BySize means that prompts are guessed by the size of requests; otherwise each counts as a mean one.
	BySize bool
	// Cached is the share of the prompts' tokens that engines found in a prefix cache, 0..1.
	Cached float64
	// PrefillRate is the prompt tokens per second that a typical engine computes, and Iteration what one of its
	// iterations takes in addition, in seconds; NaN while unknown. RatedAt is their newest reading, of an engine that
	// was busy.
	PrefillRate, Iteration float64
	RatedAt                time.Time
}

// WorkSource is what the requests that began at an endpoint are known by.
type WorkSource string

// The sources of the work of an endpoint.
const (
	WorkSizes    WorkSource = "sizes"     // the proxies report each request that begins, and its size
	WorkRequests WorkSource = "requests"  // the proxies report each; it counts as a mean one
	WorkInFlight WorkSource = "in_flight" // rises of the in-flight count; each counts as a mean one
	WorkExpected WorkSource = "expected"  // its share of the arrivals: nothing counts requests that begin
)

// PrefillSource is where the prefill rate of an endpoint comes from.
type PrefillSource string

// The sources of a prefill rate.
const (
	PrefillMeasured   PrefillSource = "measured"   // by the engine's own counters, while it was busy
	PrefillConfigured PrefillSource = "configured" // the typical rate, in proportion to the configured capacity
	PrefillTypical    PrefillSource = "typical"    // that of a typical engine of the cluster
)

// EndpointWork is the work that is outstanding at an endpoint.
type EndpointWork struct {
	PromptTokens float64    // estimated to be outstanding
	Source       WorkSource // of the requests that began
	ReportedAt   time.Time  // the newest report of these; zero where they are expected
	CountedAt    time.Time  // the newest reading of its counters of tokens, which corrected the estimate; zero: none
	// Requests is the work in mean requests: the prompts, and half of an output for each request in flight. It takes
	// the place of the load.
	Requests float64
	// Seconds is how long that keeps an engine of this speed busy; NaN while no prefill rate is known.
	Seconds float64
	// PrefillRate is prompt tokens per second that it computes; NaN while unknown. RatedAt is its newest reading.
	PrefillRate   float64
	PrefillSource PrefillSource
	RatedAt       time.Time
}

// Neutral is the decision to leave behind when no further one will come: each endpoint gets its part of the capacity,
// none is flagged for its load and nothing is dropped. Endpoints that stall, fail or sleep keep their share, which is
// the floor, and their flags: they would fail what they are sent, with or without a control plane. So do those with an
// override.
func (d Decision) Neutral() Decision {
	var capacity, kept float64
	for i := range d.Endpoints {
		if e := &d.Endpoints[i]; e.kept() {
			kept += e.Share
		} else {
			capacity += e.Capacity
		}
	}
	d.Endpoints = slices.Clone(d.Endpoints) // the originals may be in use elsewhere
	for i := range d.Endpoints {
		if e := &d.Endpoints[i]; !e.kept() && capacity > 0 {
			e.Share = (1 - kept) * e.Capacity / capacity
			e.Overloaded, e.OverloadReason = false, ""
		}
	}
	d.DropFraction = 0
	return d
}

// kept reports whether the share stays when no further decision will come.
func (e *EndpointDecision) kept() bool { return e.Out() || e.Override != Override{} }

// Out reports whether requests to the endpoint would fail or wait for ever, as far as is known: it stalls, fails or
// sleeps.
func (e *EndpointDecision) Out() bool { return e.Failing || e.Reason == ReasonAsleep }

// Vessels are the endpoints as they were filled, in the order of Endpoints.
func (d *Decision) Vessels() []Vessel { return slices.Clone(d.vessels) }

// Level is how full the endpoint with this index looked when the others were filled, in the unit of WaterLevel, and
// whether its share follows from that. ok is false where no law made the decision.
func (d *Decision) Level(i int) (level float64, filled, ok bool) {
	if len(d.vessels) != len(d.Endpoints) {
		return 0, false, false
	}
	level = d.vessels[i].level()
	return level, level < excludedLevel/2, true
}

// ByLatency reports whether the levels are costs by least latency, and not loads.
func (d *Decision) ByLatency() bool { return d.byLatency }

// Fixed returns the share that the endpoint with this index gets whatever its load; 0 where that follows from the load,
// and for an endpoint that stalls or fails. It is a part of what endpoints without a flag get.
func (d *Decision) Fixed(i int) float64 {
	e := &d.Endpoints[i]
	if _, filled, _ := d.Level(i); e.Failing || e.Overloaded || filled {
		return 0
	}
	flagged := 0.0
	for k := range d.Endpoints {
		if d.Endpoints[k].Overloaded {
			flagged += d.Endpoints[k].Share
		}
	}
	return e.Share / max(e.Share, 1-flagged)
}

// An EndpointDecision is the verdict on one endpoint and how it was reached.
type EndpointDecision struct {
	Address string
	Zone    string

	// Share is the endpoint's share of the cluster's traffic; the shares of a non-empty decision are finite and add up
	// to 1. Only that of a drained endpoint is 0.
	Share float64
	// Overloaded asks the proxies to prefer other endpoints.
	Overloaded bool
	// OverloadReason is why the flag was raised, empty when not overloaded.
	OverloadReason string
	// Failing means that the endpoint stalls or fails its requests: its share is its floor, and a flag is for that and
	// not for load.
	Failing bool
	// Probed is why the endpoint was ejected, while it is tried with few requests and nothing shows yet whether it
	// recovered; else empty.
	Probed string
	// OutlierSince is since when the endpoint has not been healthy, over all times that it was tried again; zero unless
	// it is failing or probed.
	OutlierSince time.Time
	// Worked is when its process last answered a request or did any work; zero before, and where it does not count work
	// as it does it, so that a long request looks like none.
	Worked time.Time
	// Tried is why the endpoint was flagged for its load, while it has no flag and is given a request, to see what it
	// does; else empty.
	Tried string
	// Doubted is since when its report stands still, where that is doubted: it claims requests, and neither gauges nor
	// counters change; else zero.
	Doubted time.Time
	// Reason is the main cause of the share.
	Reason Reason
	// Override is what an operator decided, as far as it is in effect.
	Override Override

	// Working.
	Load        float64 // requests waiting and running, from all signals; always finite
	LoadSource  LoadSource
	LoadAge     time.Duration // of the oldest reading in it; 0 where there is none, and the median stands in
	Capacity    float64       // slots x relative speed x ramp: proportional to the share when the horizon is long
	Slots       float64       // concurrent requests, configured or learned; NaN where the unit of load is work
	SlotsSource CapacitySource
	// RelativeSpeed is completions per busy slot-second, or work per second of an engine, as a ratio to the pool's
	// median; 1 while not learned.
	RelativeSpeed float64
	Ramp          float64 // 0..1: how much of its capacity a new endpoint is trusted with
	// Unproxied is requests that the server reports and the in-flight counts do not (negative: the counts have drifted
	// up).
	Unproxied float64

	// Work is what is outstanding; nil where the unit of load is the request.
	Work *EndpointWork

	Inputs []Input // one for each field of the load or the flag, in a fixed order

	// Latency is the moving average of the time to the last byte, in seconds, as the proxies report it, and LatencyAge
	// the time since the newest answer in it. NaN before the first.
	Latency    float64
	LatencyAge time.Duration

	// Restarts is how often the server's counters began again, as far as it was seen.
	Restarts int
	// CountersGoBack means that they began again three times within about a minute, as those of several servers behind
	// one address do. Counts of tokens are not used then.
	CountersGoBack bool
	// BlockTokens is the size of a block of its prefix cache; NaN while unknown.
	BlockTokens float64

	// Measured over the last window, NaN while unknown.
	CompletionRate float64 // completions per second
	MeanQueueTime  float64 // seconds, of requests completed in the window
	BusyFraction   float64 // 0..1, share of the slots executing
}

// An Input is one field as the law saw it.
type Input struct {
	Field Field
	Value float64 // as read; NaN when it was never known
	Age   time.Duration
	State FieldState
}

// Field is the name of a number that a source reports.
type Field string

// The fields of an endpoint's inputs.
const (
	FieldQueue       Field = "queue"
	FieldRunning     Field = "running"
	FieldUtilization Field = "utilization"
	FieldInFlight    Field = "in_flight"
)

// FieldState is what the age of a field means for its use.
type FieldState string

// The states of a field, in the order in which an aging field passes them.
const (
	StateUnknown FieldState = "unknown" // never reported
	StateFresh   FieldState = "fresh"   // used as it is
	StateHold    FieldState = "hold"    // late, used as it is
	StateDecay   FieldState = "decay"   // blended with the pool's median, more and more of it
	StateNeutral FieldState = "neutral" // too old to be used: the pool's median stands in
	StateStuck   FieldState = "stuck"   // stands still while requests come and go: not used
)

// Reason is the main cause of an endpoint's share.
type Reason string

// The reasons, from the most exceptional to the ordinary.
const (
	ReasonDrained  Reason = "drained"  // an operator decided: no new requests
	ReasonPinned   Reason = "pinned"   // an operator decided the share
	ReasonAsleep   Reason = "asleep"   // its engine sleeps: flagged until it is awake
	ReasonBlackout Reason = "blackout" // new, and no report yet: neutral load, smallest ramp
	ReasonUnused   Reason = "unused"   // the proxies send it nothing: its part of the capacity
	ReasonNeutral  Reason = "neutral"  // no usable report: counts as a median endpoint
	ReasonDecay    Reason = "decay"    // the report is going stale: moving to the median
	ReasonRamp     Reason = "ramp"     // new: trusted with a part of its capacity
	ReasonSlow     Reason = "slow"     // latency above the threshold of least-latency: kept reachable
	ReasonFloor    Reason = "floor"    // load above the water level: kept reachable
	ReasonFill     Reason = "fill"     // load below the water level: filled up to it
)

// LoadSource is the signals that an endpoint's load was made of.
type LoadSource string

// The sources of a load.
const (
	LoadScraped  LoadSource = "scraped"   // queue + running, from the server
	LoadInFlight LoadSource = "in_flight" // counts of the proxies only
	LoadFused    LoadSource = "fused"     // in-flight counts, corrected by the server's report
	LoadMedian   LoadSource = "median"    // the pool's median stands in
)

// CapacitySource is where an endpoint's slots come from.
type CapacitySource string

// The sources of a capacity.
const (
	CapacityConfigured CapacitySource = "configured"
	CapacityLearned    CapacitySource = "learned" // requests running while others waited
	CapacityAssumed    CapacitySource = "assumed" // the pool's median, or 1
	// CapacityWork means that the endpoint is an engine without slots: the unit of load is the work of a mean request.
	CapacityWork CapacitySource = "work"
)

// RateSource is where the arrival rate comes from.
type RateSource string

// The sources of an arrival rate.
const (
	RateCompletions RateSource = "completions" // completions per second plus the growth of the load
	RateIssued      RateSource = "issued"      // requests that the proxies report to have sent
	RateIncrements  RateSource = "increments"  // rises of the counts: a lower bound
	// RateUnknown: nothing has been read twice yet, so one request for each endpoint stands in for the arrivals.
	RateUnknown RateSource = "unknown"
)
