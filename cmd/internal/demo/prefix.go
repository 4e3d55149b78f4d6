package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"steelyard/e2e/rig/load"
	"steelyard/e2e/rig/modelsim"
	envoybootstrap "steelyard/envoy-bootstrap"
	"steelyard/sim/engine"
)

// The demo of prefix caches.
const (
	prefixEngines = 4
	prefixEnvoys  = 2 // of each kind
	prefixHeader  = "x-conversation-id"
	prefillRate   = 5000    // prompt tokens per second of an engine
	cacheTokens   = 150_000 // of an engine's prefix cache
	prefixWarmUp  = 5 * time.Second
)

// Prefix plays the demo of prefix caches, with phases of length d.
func Prefix(ctx context.Context, out io.Writer, d time.Duration, s Steelyard) (err error) {
	servers, err := modelsim.StartServers(prefixEngines, func(int) modelsim.Options {
		p := engine.Defaults()
		p.PrefillRate, p.CacheTokens = prefillRate, cacheTokens
		return modelsim.Options{Batching: &p}
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, servers.Close()) }()
	return s.ControlPlane.during(ctx, configOf(servers, settings{}), func(ctx context.Context, control Handle) error {
		return playPrefix(ctx, out, d, servers, control)
	})
}

// playPrefix starts the Envoys, sends the conversations in each way and shows what came of them.
func playPrefix(ctx context.Context, out io.Writer, d time.Duration, servers modelsim.Servers, control Handle) (
	err error) {
	weighted, err := startEnvoys(ctx, prefixEnvoys, "demo-envoy",
		bootstrap(control.XDSAddress(), envoybootstrap.Options{Affinity: prefixHeader}))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, weighted.close()) }()
	choosing, err := startEnvoys(ctx, prefixEnvoys, "demo-envoy-module",
		bootstrap(control.XDSAddress(), envoybootstrap.Options{Module: true, Prefix: true}))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, choosing.close()) }()
	fmt.Fprintf(out, `Steelyard demo: %d simulated engines with prefix caches, the same conversations in three ways
Page:  %s
Load:  %.1f conversations per second begin, for %v each time; %d system prompts, up to %d turns

`, prefixEngines, pageOf(control), conversationRate, d, systemPrompts, mostTurns)
	if _, err := (way{"(warm-up)", false, weighted}).play(ctx, out, prefixWarmUp, servers); err != nil {
		return err
	}
	return compare(out, wayTable, []way{{"weights", false, weighted}, {"by header", true, weighted},
		{"by prompt", false, choosing}}, func(w way) (wayResult, error) { return w.play(ctx, out, d, servers) })
}

// A way is one by which requests find their engine.
type way struct {
	title  string
	named  bool // requests name their conversation
	envoys *envoys
}

// A wayResult is the outcome of the load in one way.
type wayResult struct {
	load.Result
	title  string
	cached float64 // share of the prompt tokens that the caches had
}

// play sends the conversations in one way.
func (w way) play(ctx context.Context, out io.Writer, d time.Duration, servers modelsim.Servers) (wayResult, error) {
	urls, err := w.envoys.urls(ctx, weightedListener, "/v1/chat/completions")
	if err != nil {
		return wayResult{}, err
	}
	before := tokensOf(servers)
	got, err := load.Run(ctx, load.Plan{Targets: urls, Seed: 1, Completions: conversations(w.title, w.named, 1, d),
		Drain: 30 * time.Second})
	if err != nil {
		return wayResult{}, err
	}
	after := tokensOf(servers)
	fmt.Fprintf(out, "%-10s %4d requests, all answered after %.1f s\n", w.title, got.Requests, got.Elapsed.Seconds())
	return wayResult{got, w.title, float64(after.CachedTokens-before.CachedTokens) /
		float64(max(1, after.PromptTokens-before.PromptTokens))}, nil
}

// tokensOf are the sums of all engines.
func tokensOf(servers modelsim.Servers) (sum engine.Counters) {
	for _, s := range servers {
		c := s.Tokens()
		sum.CachedTokens += c.CachedTokens
		sum.PromptTokens += c.PromptTokens
	}
	return sum
}

var wayTable = table[wayResult]{first: 27, other: 10}.
	with("", func(r wayResult) string { return r.title }).
	with("time to first token, mean", func(r wayResult) string { return inSeconds(r.FirstBytes().Mean) }).
	with("time to first token, p50", func(r wayResult) string { return inSeconds(r.FirstBytes().P50) }).
	with("time to first token, p90", func(r wayResult) string { return inSeconds(r.FirstBytes().P90) }).
	with("time to last token, p50", func(r wayResult) string { return inSeconds(r.Latency.P50) }).
	with("prompt tokens in caches", func(r wayResult) string { return fmt.Sprintf("%.0f %%", 100*r.cached) }).
	with("requests", func(r wayResult) string { return fmt.Sprint(r.Requests) }).
	with("failed", func(r wayResult) string { return fmt.Sprint(r.Errors) })
