package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"steelyard/e2e/bench/placement/fleet"
	"steelyard/e2e/bench/placement/stats"
	"steelyard/e2e/rig/load"
	"steelyard/e2e/rig/modelsim"
	"steelyard/sim"
	"steelyard/sim/engine"
	"steelyard/sim/trace"
)

// Options say what to measure.
type Options struct {
	Policies []string // rows to run, of those of policies
	Envoys   int
	Workers  int // of each Envoy
	Engines  int
	Engine   engine.Params
	Mixed    bool    // every third engine is half as fast
	Load     float64 // of what the engines can do
	Trace    *trace.Trace
	From     float64 // where in the trace the requests begin, as a share of it
	Burst    int     // requests that arrive at the same moment
	Chunked  bool    // bodies have no content-length
	Cached   bool    // engines have a prefix cache, and requests are chats with the contents of the trace
	Seed     uint64

	WarmUp   time.Duration // of requests that are sent first and not counted
	Requests int           // counted for each row
	Lateness time.Duration // largest p99 of the generator's lateness
	Attempts int           // how often all is measured, at most, until the requests leave in time

	Place fleet.Place
	Log   io.Writer // progress, for people
}

// Default returns the options of the published bench: the whole trace once, in nine minutes.
func Default() Options {
	return Options{
		Policies: usual(), Envoys: 6, Workers: 1, Engines: 12, Engine: engine.Defaults(),
		Load: 0.8, Trace: trace.Azure(), Burst: 1, Seed: 1,
		WarmUp: time.Minute, Requests: len(trace.Azure().Requests), Lateness: 20 * time.Millisecond, Attempts: 2,
	}
}

// Quick returns the bench in two minutes. Its intervals are wide. It is of a part of the trace
// that has about the load of the whole: the beginning has 0.9 of it, the middle 1.6.
func Quick() Options {
	o := Default()
	o.From, o.WarmUp, o.Requests, o.Attempts = 0.1, 25*time.Second, 3000, 1
	return o
}

// converse makes it a bench of engines that cache prompts, with the built-in conversations or those of the trace.
func (o *Options) converse(builtIn bool) {
	o.Engine.CacheTokens = cacheTokens
	if builtIn {
		o.Trace = trace.Conversations()
	}
}

func (o *Options) validate() error {
	switch {
	case min(o.Envoys, o.Workers, o.Engines, o.Requests, o.Burst, o.Attempts) < 1:
		return fmt.Errorf("%d Envoys of %d workers, %d engines, %d requests, %d at the same moment, %d attempts: "+
			"want 1 at least", o.Envoys, o.Workers, o.Engines, o.Requests, o.Burst, o.Attempts)
	case !(o.Load > 0) || math.IsInf(o.Load, 0):
		return fmt.Errorf("load %v: want a number above 0, such as 0.8", o.Load)
	case !(o.From >= 0 && o.From < 1):
		return fmt.Errorf("from %v of the trace: want 0 or more, and less than 1", o.From)
	case o.WarmUp < 0 || o.Lateness <= 0:
		return fmt.Errorf("warm-up of %v, lateness %v: want 0 at least, and more than 0", o.WarmUp, o.Lateness)
	case len(o.Policies) == 0:
		return errors.New("no rows")
	}
	for i, name := range o.Policies {
		if slices.Contains(o.Policies[:i], name) {
			return fmt.Errorf("the row %s is there twice", name)
		}
		if !slices.Contains(names(), name) {
			return fmt.Errorf("there is no row %q: want some of %s", name, strings.Join(names(), ","))
		}
	}
	if o.Cached && len(o.Trace.Contents) == 0 {
		return fmt.Errorf("conversations: the trace %s does not say what its requests share", o.Trace.Name)
	}
	if err := o.Engine.Check(); err != nil {
		return fmt.Errorf("engines: %w", err)
	}
	if most := o.Trace.Largest(); !o.Engine.Fits(int(most.Prompt), int(most.Output)) {
		return fmt.Errorf("a KV cache of %d tokens: the trace has a request of %d and %d tokens",
			o.Engine.KVTokens, most.Prompt, most.Output)
	}
	return nil
}

// policies returns the rows that exist. Those whose requests go straight to the engines have a picker that chooses for
// each.
func policies() []fleet.Policy {
	return []fleet.Policy{
		{Name: "least_request", Native: fleet.LeastRequest},
		{Name: "round_robin", Native: fleet.RoundRobin},
		steelyardRow(),
		{Name: "steelyard_scrapes", Control: &fleet.Control{Scrape: 250 * time.Millisecond}},
		{Name: rowFewestInFlight, Direct: true},
		{Name: rowLeastWork, Direct: true},
		steelyardRow().InReplicas(false),
		steelyardRow().InReplicas(true),
		withVariants(steelyardRow(), fleet.VariantModule),
		withVariants(steelyardRow(), fleet.VariantModule+fleet.VariantPrefix),
	}
}

// withVariants returns a row with variants that it has.
func withVariants(p fleet.Policy, variants string) fleet.Policy {
	p, err := p.With(variants)
	if err != nil {
		panic(err) // a variant that there is not
	}
	return p
}

func steelyardRow() fleet.Policy {
	return fleet.Policy{Name: "steelyard", Control: &fleet.Control{Default: true}}
}

// The rows in which the generator chooses.
const (
	rowFewestInFlight = "fewest_in_flight"
	rowLeastWork      = "least_work"
)

func names() []string {
	var all []string
	for _, p := range policies() {
		all = append(all, p.Name)
	}
	return all
}

// usual returns the rows that run when none is asked for: those with one Steelyard at most, and with weights.
func usual() []string {
	var all []string
	for _, p := range policies() {
		if p.Control == nil || p.Control.Replicas == 0 && !p.Control.Module {
			all = append(all, p.Name)
		}
	}
	return all
}

// picker returns how the generator chooses among the servers of a row without Envoys.
func (o *Options) picker(policy string, servers []*modelsim.Server) load.Picker {
	if policy == rowFewestInFlight {
		return load.NewLeastLoaded(slices.Repeat([]float64{1}, len(servers)), o.Seed)
	}
	prompt, output := o.Trace.Means()
	return load.NewLeastMeasured(len(servers), func(i, out int) float64 {
		// A request that is on its way counts as a mean one: of several that leave together,
		// not all go to the same engine.
		onTheirWay := max(0, out-servers[i].InFlight())
		return servers[i].Work(output) + float64(onTheirWay)*prompt/(o.Engine.PrefillRate*o.speed(i))
	}, o.Seed)
}

// size returns the size of a row's fleet.
func (o *Options) size() fleet.Size {
	s := fleet.Size{Envoys: o.Envoys, Workers: o.Workers, Servers: o.Engines}
	for i := range o.Engines {
		s.Engines = append(s.Engines, modelsim.Options{
			Batching: &o.Engine, Speed: o.speed(i), Seed: o.Seed + uint64(i),
			StreamInterval: firstTokenAndEnd,
		})
		if o.Cached {
			s.Engines[i].BytesPerToken = cachedBytesPerToken
		}
	}
	return s
}

// conversationRequests is how many requests of the conversations count, by default: eight minutes.
const conversationRequests = 4000

// With Cached, the cache of an engine has this many tokens, as in the simulator, and a block of the trace has a text of
// this many bytes for each of its tokens.
const (
	cacheTokens         = 2_000_000
	cachedBytesPerToken = 4
)

// chat returns the body of request k, with the contents of the trace; empty without them.
func (o *Options) chat(k int) string {
	if !o.Cached {
		return ""
	}
	r, c := o.Trace.Requests[k], o.Trace.Contents[k]
	blocks := c.Blocks[:min(len(c.Blocks), int(r.Prompt)/trace.BlockTokens)]
	return chatOf(blocks, c.Ends, int(r.Output))
}

// chatOf returns a body whose messages end after these numbers of blocks. Blocks that are alike have the same text.
func chatOf(blocks []uint64, ends []int32, output int) string {
	const blockBytes = trace.BlockTokens * cachedBytesPerToken
	var b strings.Builder
	fmt.Fprintf(&b, `{"stream":true,"max_tokens":%d,"messages":[`, output)
	for from, first := 0, true; first || from < len(blocks); first = false {
		for len(ends) > 0 && int(ends[0]) <= from { // of messages that fill no block
			ends = ends[1:]
		}
		end := len(blocks)
		if len(ends) > 0 {
			end = min(end, int(ends[0]))
		}
		if !first {
			b.WriteByte(',')
		}
		b.WriteString(`{"role":"user","content":"`)
		for ; from < end; from++ {
			text := fmt.Sprintf("%016x", blocks[from])
			b.WriteString(strings.Repeat(text, blockBytes/len(text)))
		}
		b.WriteString(`"}`)
	}
	b.WriteString("]}")
	return b.String()
}

// firstTokenAndEnd makes pieces of a stream so large that after the first token only the
// end is one.
const firstTokenAndEnd = math.MaxInt32

// speed returns the speed of engine i.
func (o *Options) speed(i int) float64 {
	if o.Mixed && i%3 == 2 {
		return 0.5
	}
	return 1
}

// rate returns the requests per second that make the load.
func (o *Options) rate() float64 {
	next := 0
	each := o.Engine.Throughput(func() (prompt, cached, output int) {
		r := o.Trace.Requests[next]
		next = (next + 1) % len(o.Trace.Requests)
		return int(r.Prompt), 0, int(r.Output)
	})
	sum := 0.0
	for i := range o.Engines {
		sum += each * o.speed(i)
	}
	return o.Load * sum
}

// completions returns the first n requests of the trace, at this rate: the intervals between them keep their
// proportions, and the trace restarts when it ends.
func (o *Options) completions(n int, rate float64) []load.Completion {
	sizes := rand.New(rand.NewPCG(o.Seed, 5))
	requests := o.Trace.Requests
	from := int(o.From * float64(len(requests)))
	stretch := 1 / (rate * o.Trace.Gap().Seconds())
	again := o.Trace.Span() + o.Trace.Gap() // from one beginning of the trace to the next
	all := make([]load.Completion, n)
	for i := range all {
		k := from + i
		r := requests[k%len(requests)]
		at := r.At + time.Duration(k/len(requests))*again - requests[from].At
		all[i] = load.Completion{
			At: time.Duration(float64(at) * stretch), Prompt: int(r.Prompt), Output: int(r.Output),
			Bytes: bodyBytes(r.Prompt, sizes.NormFloat64()), Chunked: o.Chunked,
			Text: o.chat(k % len(requests)),
		}
		all[i].At = all[i-i%o.Burst].At
	}
	return all
}

// bodyBytes returns the size of a body: log-normal, with the mean and the spread of the simulator.
func bodyBytes(tokens int32, normal float64) int {
	const mean, spread = sim.DefaultBytesPerToken, sim.DefaultBytesSpread
	return int(math.Ceil(float64(tokens) * mean * math.Exp(spread*normal-spread*spread/2)))
}

// bootstrapSeconds is the length of a block of the bootstrap: about as long as a request
// takes, and as an engine remembers a burst.
const bootstrapSeconds = 10

func (o *Options) bootstrap(rate float64) stats.Bootstrap {
	return stats.Bootstrap{Block: max(1, int(bootstrapSeconds*rate)), Resamples: 1000, Seed: o.Seed}
}

// readTrace reads a trace from a file.
func readTrace(file string) (_ *trace.Trace, err error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return trace.Read(filepath.Base(file), f)
}
