package simulate

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"steelyard/controlplane/config"
	"steelyard/internal/files"
	"steelyard/sim"
	"steelyard/sim/engine"
	"steelyard/sim/trace"
)

// A file is a scenario file; the tags are those of the configuration.
type file struct {
	// Name is shown above the results. Default: the file's.
	Name string `yaml:"name"`
	// Seed of all random numbers, 0 to 9223372036854775807. Default 1.
	Seed int `yaml:"seed" default:"1" range:"0..9223372036854775807"`
	// Duration is the simulated time, 1s to 24h. Default 10m.
	Duration time.Duration `yaml:"duration" default:"10m" range:"1s..24h"`
	// WarmUp is the time at the start whose requests do not count, less than
	// Duration. Default 30s, or a fifth of Duration where that is less.
	WarmUp time.Duration `yaml:"warm_up" default:"30s" range:"0s..24h"`
	// Envoys are the clients.
	Envoys envoys `yaml:"envoys"`
	// Pods are the servers, 1 to 1000 groups. Required.
	Pods []pods `yaml:"pods" max:"1000" required:"write a list with at least one group, e.g. pods: [{count: 20, slots: 1}]"`
	// Load is the traffic as a part of the pods' capacity, 0.01 to 10. Default 0.8.
	Load float64 `yaml:"load" default:"0.8" range:"0.01..10"`
	// Rate is the traffic in requests per second, 0 to 1000000, in place of Load. 0
	// means by Load. Default 0.
	Rate float64 `yaml:"rate" default:"0" range:"0..1000000"`
	// Service is how long a request takes on pods with slots.
	Service service `yaml:"service"`
	// Prompts are the requests to engines, those of the built-in trace or of --trace.
	Prompts prompts `yaml:"prompts"`
	// Signals are delays and losses of the messages to and from Steelyard.
	Signals signals `yaml:"signals"`
	// Events happen during the run, 1 to 1000. Default none.
	Events []event `yaml:"events" max:"1000"`
}

type envoys struct {
	// Count is 1 to 1000. Default 10.
	Count int `yaml:"count" default:"10" range:"1..1000"`
	// Workers of each Envoy, every one with its own scheduler, 1 to 64.
	// Default 1.
	Workers int `yaml:"workers" default:"1" range:"1..64"`
	// Shares of the traffic, one number for each Envoy, in proportion, 0.000001 to
	// 1000000. Default none: equal shares.
	Shares []float64 `yaml:"shares" max:"1000" range:"0.000001..1000000"`
}

type pods struct {
	// Count is 1 to 10000. Required.
	Count int `yaml:"count" required:"write how many there are, e.g. count: 20" range:"1..10000"`
	// Slots of each pod, requests at once, 1 to 10000. Default 1.
	Slots int `yaml:"slots" default:"1" range:"1..10000"`
	// Speed is the work per second and slot, 0.001 to 1000. Default 1.
	Speed float64 `yaml:"speed" default:"1" range:"0.001..1000"`
	// SlowDown is how much longer a request takes in a full set than by itself, as in
	// continuous batching, 0 to 1000. Default 0.
	SlowDown float64 `yaml:"slow_down" default:"0" range:"0..1000"`
	// Engine makes the pods engines that batch continuously, as vLLM does, in place of
	// slots. Then all pods have to be. Default none.
	Engine *batching `yaml:"engine"`
	// Zone is the locality. Default none.
	Zone string `yaml:"zone"`
	// Metrics are how the pods' metrics pages fall short of the truth.
	Metrics metrics `yaml:"metrics"`
}

// metrics has the keys for [sim.Metrics].
type metrics struct {
	// GaugeLag is how old the state is that the gauges show (waiting, running, KV cache), 0s to 1m. Default 0s.
	GaugeLag time.Duration `yaml:"gauge_lag" default:"0s" range:"0s..1m"`
	// CounterLag is the same of the counters, 0s to 1m. Default 0s.
	CounterLag time.Duration `yaml:"counter_lag" default:"0s" range:"0s..1m"`
	// NoTokens means that an engine does not count tokens. Default false.
	NoTokens bool `yaml:"no_tokens" default:"false"`
	// TokensAtEnd means that an engine counts the tokens of a request when it ends, and no iterations. Default false.
	TokensAtEnd bool `yaml:"tokens_at_end" default:"false"`
	// NoRunning means that a server has no gauge of running requests, as Triton. Default false.
	NoRunning bool `yaml:"no_running" default:"false"`
}

// batching are the constants of an engine, [engine.Params].
type batching struct {
	// Iteration is what each iteration takes, 100us to 1m. Default 20ms.
	Iteration time.Duration `yaml:"iteration" default:"20ms" range:"100us..1m"`
	// Sequence is what each sequence that decodes adds to it, 0s to 1s. Default 120us.
	Sequence time.Duration `yaml:"sequence" default:"120us" range:"0s..1s"`
	// Context is what each token of their context adds to it, 0s to 1ms. Default 15ns.
	Context time.Duration `yaml:"context" default:"15ns" range:"0s..1ms"`
	// PrefillRate is the prompt tokens computed per second, 1 to 10000000. Default 12000.
	PrefillRate float64 `yaml:"prefill_rate" default:"12000" range:"1..10000000"`
	// TokenBudget is the most tokens in one iteration (max_num_batched_tokens), 1 to
	// 1000000, one for each of the sequences at least. Default 8192.
	TokenBudget int `yaml:"token_budget" default:"8192" range:"1..1000000"`
	// MaxSequences run at once (max_num_seqs), 1 to 10000. Default 128.
	MaxSequences int `yaml:"max_sequences" default:"128" range:"1..10000"`
	// KVTokens is the size of the KV cache, 16 to 1000000000, the largest request at
	// least. Default 400000.
	KVTokens int `yaml:"kv_tokens" default:"400000" range:"16..1000000000"`
	// PromptsFirst is for engines that generate nothing while there are prompts to compute. Default false.
	PromptsFirst bool `yaml:"prompts_first" default:"false"`
	// CacheTokens is the size of the cache of prompts and answers that are no longer executed, in blocks of 128 tokens,
	// 0 to 100000000; 0 is none, and then a part of each prompt is cached by chance. Default 0.
	CacheTokens int `yaml:"cache_tokens" default:"0" range:"0..100000000"`
}

// prompts has the keys for [sim.Prompts], except the trace.
type prompts struct {
	// Conversations takes requests that share parts of their prompts, made by chance, in place of those of the trace.
	// Default false.
	Conversations bool `yaml:"conversations" default:"false"`
	// Cached is the mean part of a prompt that is in the prefix cache, 0 to 1. Default 0.
	Cached float64 `yaml:"cached" default:"0" range:"0..1"`
	// BytesPerToken of a prompt, on average, 0.01 to 1000000: what content-length says.
	// Default 4.2.
	BytesPerToken float64 `yaml:"bytes_per_token" default:"4.2" range:"0.01..1000000"`
	// BytesSpread is how much that differs from prompt to prompt: the standard deviation
	// of its logarithm, 0 to 5. Default 0.2.
	BytesSpread float64 `yaml:"bytes_spread" default:"0.2" range:"0..5"`
	// Chunked is the part of the requests without a content-length, 0 to 1. Default 0.
	Chunked float64 `yaml:"chunked" default:"0" range:"0..1"`
}

type service struct {
	// Kind is the distribution. Default exponential.
	Kind sim.ServiceKind `yaml:"kind" default:"exponential" oneof:"exponential deterministic log-normal two-class"`
	// Mean of the service time on a pod of speed 1, 1ms to 1h. Default 1s.
	Mean time.Duration `yaml:"mean" default:"1s" range:"1ms..1h"`
	// Sigma of the logarithm, 0.01 to 5: with log-normal, and needed there.
	Sigma float64 `yaml:"sigma" range:"0.01..5"`
	// LongShare of the requests take LongFactor times as long as the others, 0.0001
	// to 0.9999 and 1 to 10000: with two-class, and needed there.
	LongShare  float64 `yaml:"long_share" range:"0.0001..0.9999"`
	LongFactor float64 `yaml:"long_factor" range:"1..10000"`
}

// signals has the keys for [sim.Signals]; nil is each row's default.
type signals struct {
	// ScrapeDelay is from a server's true numbers to the store, 0s to 1m. Default
	// each row's own: 2ms.
	ScrapeDelay *time.Duration `yaml:"scrape_delay" range:"0s..1m"`
	// Delay is the mean of what an entry of the access log, a load report or a read of
	// Redis takes, one half fixed and one half exponential, 0s to 1m. Default each row's
	// own: 2ms, and 6ms for entries in batches.
	Delay *time.Duration `yaml:"delay" range:"0s..1m"`
	// Loss is the part of the entries of the access log, or of the changes of counts in
	// Redis, that get lost, 0 to 1. Default each row's own: 0.
	Loss *float64 `yaml:"loss" range:"0..1"`
	// PushDelay is from a decision to its effect in the Envoys, 0s to 1m. Default each
	// row's own: 3ms.
	PushDelay *time.Duration `yaml:"push_delay" range:"0s..1m"`
}

type event struct {
	// At is when it happens, 0s to 24h and before the end. Required.
	At time.Duration `yaml:"at" required:"write when it happens, e.g. at: 2m" range:"0s..24h"`
	// Kind is what happens. Required.
	Kind sim.EventKind `yaml:"kind" required:"write what happens, e.g. kind: leave" oneof:"join leave stall hang recover slow stale-metrics fresh-metrics stuck-running stuck-waiting flash-crowd control-plane-away"`
	// Pods that it happens to, by number from 0 in the order of the groups. Default
	// none: all.
	Pods []int `yaml:"pods" max:"10000" range:"0..9999999"`
	// Factor of slow (the pods), flash-crowd (the traffic) and stuck-waiting (what the gauge shows), 0.001 to 1000:
	// needed there.
	Factor float64 `yaml:"factor" range:"0.001..1000"`
	// For is how long it lasts, 0s to 24h; 0s means to the end. Default 0s.
	For time.Duration `yaml:"for" default:"0s" range:"0s..24h"`
}

// The bounds of what is simulated in one run.
const (
	largestFile  = 1 << 20    // bytes
	mostPods     = 10_000     // in all groups
	mostRequests = 50_000_000 // each is remembered to the end
)

// readFile reads a scenario. Its mistakes are in a *config.Error.
func readFile(ctx context.Context, path string) (sim.Scenario, error) {
	data, err := files.Read(ctx, path, largestFile+1)
	if err != nil {
		return sim.Scenario{}, fmt.Errorf("reading the scenario: %w", err)
	}
	return parse(path, data)
}

// parse checks a scenario; path stands for it in messages.
func parse(path string, data []byte) (sim.Scenario, error) {
	var f file
	if err := config.Decode(path, data, &f, f.check); err != nil {
		return sim.Scenario{}, err
	}
	if f.Name == "" {
		f.Name = strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
	}
	return f.scenario(), nil
}

func (f *file) scenario() sim.Scenario {
	s := sim.Scenario{
		Name: f.Name, Seed: uint64(f.Seed), Duration: f.Duration, WarmUp: f.WarmUp,
		Envoys: f.Envoys.Count, EnvoyShares: f.Envoys.Shares, Workers: f.Envoys.Workers,
		Load: f.Load, Rate: f.Rate, Signals: sim.Signals(f.Signals),
	}
	if f.engines() {
		s.Prompts = f.Prompts.requests()
	} else {
		s.Service = sim.Service(f.Service)
	}
	for _, p := range f.Pods {
		s.Pods = append(s.Pods, p.group())
	}
	for _, e := range f.Events {
		s.Events = append(s.Events, sim.Event(e))
	}
	return s
}

func (p *pods) group() sim.PodGroup {
	g := sim.PodGroup{Count: p.Count, Speed: p.Speed, Zone: p.Zone, Metrics: sim.Metrics(p.Metrics)}
	if p.Engine != nil {
		constants := engine.Params(*p.Engine)
		g.Engine = &constants
		return g
	}
	g.Slots, g.Sharing, g.SlowDown = p.Slots, p.SlowDown > 0, p.SlowDown
	return g
}

// requests returns the prompts of the built-in trace.
func (p *prompts) requests() *sim.Prompts {
	spread := p.BytesSpread
	if spread == 0 {
		spread = -1 // 0 is the default there
	}
	requests := trace.Azure()
	if p.Conversations {
		requests = trace.Conversations()
	}
	return &sim.Prompts{
		Trace: requests, Cached: p.Cached, BytesPerToken: p.BytesPerToken, BytesSpread: spread, Chunked: p.Chunked,
	}
}

// engines reports whether there are engines; then all pods have to be.
func (f *file) engines() bool {
	return slices.ContainsFunc(f.Pods, func(p pods) bool { return p.Engine != nil })
}

// check compares the values of a file with one another.
func (f *file) check(c *config.Checker) {
	if !c.Written(&f.WarmUp) {
		f.WarmUp = min(f.WarmUp, f.Duration/longestWarmUp)
	}
	if f.WarmUp >= f.Duration {
		c.Fail(&f.WarmUp, "%s takes all of the duration of %s: write a shorter warm_up or a longer duration",
			config.DurationText(f.WarmUp), config.DurationText(f.Duration))
	}
	if c.Written(&f.Load) && c.Written(&f.Rate) {
		c.Fail(&f.Rate, "the traffic is given as load too: keep one of them")
	}
	if n := len(f.Envoys.Shares); n > 0 && n != f.Envoys.Count {
		c.Fail(&f.Envoys.Shares, "there are %d shares for %d Envoys: write one number for each", n, f.Envoys.Count)
	}
	count := f.podCount()
	if count > mostPods {
		c.Fail(&f.Pods, "there are %d pods in all: write at most %d", count, mostPods)
	}
	f.checkEngines(c)
	f.Service.check(c)
	// otherwise already reported
	if f.WarmUp < f.Duration && count > 0 && count <= mostPods && !f.engines() {
		f.checkSize(c)
	}
	for i := range f.Events {
		f.Events[i].check(c, count, f.Duration)
	}
}

// checkEngines compares what is of slots with what is of engines.
func (f *file) checkEngines(c *config.Checker) {
	engines := f.engines()
	for i := range f.Pods {
		p := &f.Pods[i]
		switch {
		case (p.Engine != nil) != engines:
			c.Fail(p, "engines and pods with slots do not mix: write engine: {…} in all groups, or in none")
		case !engines && p.Metrics.NoTokens:
			c.Fail(&p.Metrics.NoTokens, "pods with slots count no tokens: remove it")
		case !engines && p.Metrics.TokensAtEnd:
			c.Fail(&p.Metrics.TokensAtEnd, "pods with slots count no tokens: remove it")
		case p.Metrics.NoTokens && p.Metrics.TokensAtEnd:
			c.Fail(&p.Metrics.TokensAtEnd, "no_tokens says that none are counted: remove one of the two")
		case engines && c.Written(&p.Slots):
			c.Fail(&p.Slots, "an engine has no slots: remove it, or engine")
		case engines && c.Written(&p.SlowDown):
			c.Fail(&p.SlowDown, "an engine slows down by itself: remove it, or engine")
		case engines && p.Engine.TokenBudget < p.Engine.MaxSequences:
			c.Fail(&p.Engine.TokenBudget, "%d is less than one for each of %d sequences: write %d or more, or fewer "+
				"max_sequences",
				p.Engine.TokenBudget, p.Engine.MaxSequences, p.Engine.MaxSequences)
		}
	}
	switch {
	case engines && c.Written(&f.Service):
		c.Fail(&f.Service, "requests to engines are prompts: remove it (use prompts: instead)")
	case !engines && c.Written(&f.Prompts):
		c.Fail(&f.Prompts, "prompts are requests to engines: remove it, or write engine: {} in the groups of pods")
	}
}

func (f *file) podCount() int {
	count := 0
	for _, p := range f.Pods {
		count += p.Count
	}
	return count
}

// checkSize bounds the requests of a run, from both sides.
func (f *file) checkSize(c *config.Checker) {
	s := f.scenario()
	requests := requests(s)
	switch {
	case requests == 0:
		c.Fail(&f.Events, "no pod is there at the start, so a load of it is nothing: write rate: instead of load:, "+
			"or let some join later")
	case requests > mostRequests:
		field := any(&f.Duration)
		switch {
		case c.Written(&f.Rate):
			field = &f.Rate
		case c.Written(&f.Load):
			field = &f.Load
		case !c.Written(&f.Duration):
			field = &f.Pods
		}
		c.Fail(field, "%.0f million requests would arrive: write a shorter duration or less traffic, for at most %d "+
			"million", requests/1e6, int(mostRequests/1e6))
	}
}

// requests is how many will arrive, the crowds among them.
func requests(s sim.Scenario) float64 {
	seconds := s.Duration.Seconds()
	for _, e := range s.Events {
		if e.Kind == sim.FlashCrowd && e.Factor > 1 {
			lasts := s.Duration - e.At
			if e.For > 0 {
				lasts = min(lasts, e.For)
			}
			seconds += (e.Factor - 1) * max(0, lasts).Seconds()
		}
	}
	return s.ArrivalRate() * seconds
}

func (s *service) check(c *config.Checker) {
	for _, f := range []struct {
		field *float64
		kind  sim.ServiceKind
		key   string
		such  string
	}{
		{&s.Sigma, sim.LogNormal, "sigma", "1"},
		{&s.LongShare, sim.TwoClass, "long_share", "0.1"},
		{&s.LongFactor, sim.TwoClass, "long_factor", "10"},
	} {
		switch written, needed := c.Written(f.field), s.Kind == f.kind; {
		case needed && !written:
			c.Fail(&s.Kind, "%s needs %s: add one, such as %s: %s", s.Kind, f.key, f.key, f.such)
		case written && !needed:
			c.Fail(f.field, "%s is of %s, and the kind is %s: remove it, or write kind: %s", f.key, f.kind, s.Kind,
				f.kind)
		}
	}
}

// What the kinds of events need.
var (
	withFactor = map[sim.EventKind]bool{sim.Slow: true, sim.FlashCrowd: true, sim.StuckWaiting: true}
	ofTheWorld = map[sim.EventKind]bool{sim.FlashCrowd: true, sim.ControlPlaneAway: true}
	atOnce     = map[sim.EventKind]bool{sim.Recover: true, sim.FreshMetrics: true}
)

func (e *event) check(c *config.Checker, pods int, end time.Duration) {
	if e.At >= end {
		c.Fail(&e.At, "the simulation ends at %s: write an earlier time, or a longer duration",
			config.DurationText(end))
	}
	switch written := c.Written(&e.Factor); {
	case withFactor[e.Kind] && !written:
		c.Fail(&e.Kind, "%s needs a factor: add one, such as factor: 3", e.Kind)
	case written && !withFactor[e.Kind]:
		c.Fail(&e.Factor, "%s has no factor: remove it", e.Kind)
	}
	if ofTheWorld[e.Kind] && c.Written(&e.Pods) {
		c.Fail(&e.Pods, "%s happens to the whole world: remove the pods", e.Kind)
	}
	if atOnce[e.Kind] && c.Written(&e.For) {
		c.Fail(&e.For, "%s has no duration: remove it", e.Kind)
	}
	for i, pod := range e.Pods {
		if pod >= pods {
			c.Fail(&e.Pods[i], "there is no pod %d: the numbers go from 0 to %d", pod, pods-1)
		}
	}
}

// longestWarmUp is the largest part of a duration that does not count, unless the scenario sets
// another: a fifth.
const longestWarmUp = 5
