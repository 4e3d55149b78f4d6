package conversing

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"steelyard/cmd/internal/demo"
	"steelyard/e2e/rig/load"
	"steelyard/e2e/rig/modelsim"
	envoybootstrap "steelyard/envoy-bootstrap"
	"steelyard/weighting/sim/engine"
)

const (
	engines    = 4
	envoyCount = 2 // of each kind
	header     = "x-conversation-id"

	prefillRate = 5000    // prompt tokens per second of an engine
	cacheTokens = 150_000 // of an engine's prefix cache
	lesson      = 5 * time.Second
)

// DefaultDuration is how long the load of each phase lasts.
const DefaultDuration = 15 * time.Second

// A way is one by which requests find their engine.
type way struct {
	title string
	named bool // requests name their conversation
	urls  []string
}

// A stage is what all phases share.
type stage struct {
	out     io.Writer
	servers modelsim.Servers
}

// Run plays the demo, with phases of length d, and returns when everything that it started has stopped.
func Run(ctx context.Context, out io.Writer, d time.Duration, start demo.ControlPlane) (err error) {
	servers, err := modelsim.StartServers(engines, func(int) modelsim.Options {
		p := engine.Defaults()
		p.PrefillRate, p.CacheTokens = prefillRate, cacheTokens
		return modelsim.Options{Batching: &p}
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, servers.Close()) }()
	s := stage{out, servers}
	return start.During(ctx, configOf(servers), func(ctx context.Context, control demo.Handle) error {
		return s.play(ctx, d, control)
	})
}

func configOf(servers modelsim.Servers) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, `xds:   {listen: "127.0.0.1:0"}
admin: {listen: "127.0.0.1:0"}
clusters:
  - name: %s
    engine: vllm
    scrape: {interval: 250ms, timeout: 200ms}
    endpoints:
      static:
`, demo.ClusterName)
	for _, address := range servers.Addresses() {
		fmt.Fprintf(&b, "        - {address: %q}\n", address)
	}
	return b.Bytes()
}

// play starts the Envoys, sends the load in each way and shows what came of it.
func (s stage) play(ctx context.Context, d time.Duration, control demo.Handle) (err error) {
	plain, closePlain, err := startEnvoys(ctx, "demo-envoy", control, envoybootstrap.Options{Affinity: header})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closePlain()) }()
	choosing, closeChoosing, err := startEnvoys(ctx, "demo-envoy-module", control,
		envoybootstrap.Options{Module: true, Prefix: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeChoosing()) }()
	fmt.Fprintf(s.out, `Steelyard demo: %d simulated engines with prefix caches, the same conversations in three ways
Page:  http://%s/#/c/%s
Load:  %.1f conversations per second begin, for %v each time; %d system prompts, up to %d turns

`, engines, control.AdminAddress(), demo.ClusterName, conversationRate, d, systemPrompts, mostTurns)
	if _, err := s.phase(ctx, way{"(warm-up)", false, plain}, lesson); err != nil {
		return err
	}
	var results []result
	for _, w := range []way{{"weights", false, plain}, {"by header", true, plain}, {"by prompt", false, choosing}} {
		r, err := s.phase(ctx, w, d)
		if err != nil {
			return err
		}
		results = append(results, r)
	}
	fmt.Fprint(s.out, "\n", comparison.Text(results))
	return nil
}

// startEnvoys starts the Envoys of a kind, and returns where they take requests.
func startEnvoys(ctx context.Context, name string, control demo.Handle, o envoybootstrap.Options) (urls []string,
	end func() error, err error) {
	e, err := demo.StartEnvoys(ctx, envoyCount, name, demo.Bootstrap(control.XDSAddress(), o))
	if err != nil {
		return nil, nil, err
	}
	if urls, err = e.URLs(ctx, demo.WeightedListener, "/v1/chat/completions"); err != nil {
		return nil, nil, errors.Join(err, e.Close())
	}
	return urls, e.Close, nil
}

// A result is the outcome of the load in one way.
type result struct {
	title             string
	requests, failed  int
	firstToken, whole load.Summary // seconds
	cached            float64      // share of the prompt tokens that the caches had
}

// phase sends the conversations in one way.
func (s stage) phase(ctx context.Context, w way, d time.Duration) (result, error) {
	before := tokens(s.servers)
	got, err := load.Run(ctx, load.Plan{Targets: w.urls, Seed: 1, Completions: talk(w.title, w.named, 1, d),
		Drain: 30 * time.Second})
	if err != nil {
		return result{}, err
	}
	after := tokens(s.servers)
	fmt.Fprintf(s.out, "%-10s %4d requests, all answered after %.1f s\n", w.title, got.Requests, got.Elapsed.Seconds())
	return result{title: w.title, requests: got.Requests, failed: got.Errors, firstToken: got.FirstBytes(),
		whole: got.Latency, cached: float64(after.CachedTokens-before.CachedTokens) /
			float64(max(1, after.PromptTokens-before.PromptTokens))}, nil
}

// tokens are the sums of all engines.
func tokens(servers modelsim.Servers) (sum engine.Counters) {
	for _, s := range servers {
		c := s.Tokens()
		sum.CachedTokens += c.CachedTokens
		sum.PromptTokens += c.PromptTokens
	}
	return sum
}

// comparison is the table of the ways.
var comparison = demo.Table[result]{First: 27, Other: 10}.
	With("", func(r result) string { return r.title }).
	With("time to first token, mean", func(r result) string { return demo.Seconds(r.firstToken.Mean) }).
	With("time to first token, p50", func(r result) string { return demo.Seconds(r.firstToken.P50) }).
	With("time to first token, p90", func(r result) string { return demo.Seconds(r.firstToken.P90) }).
	With("time to last token, p50", func(r result) string { return demo.Seconds(r.whole.P50) }).
	With("prompt tokens in caches", func(r result) string { return fmt.Sprintf("%.0f %%", 100*r.cached) }).
	With("requests", func(r result) string { return fmt.Sprint(r.requests) }).
	With("failed", func(r result) string { return fmt.Sprint(r.failed) })
