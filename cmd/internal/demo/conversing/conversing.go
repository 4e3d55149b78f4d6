package conversing

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"steelyard/cmd/internal/demo"
	"steelyard/e2e/rig/load"
	"steelyard/e2e/rig/modelsim"
	"steelyard/e2e/rig/proc"
	envoybootstrap "steelyard/envoy-bootstrap"
	"steelyard/weighting/sim/engine"
)

const (
	clusterName = "demo"
	engines     = 4
	envoyCount  = 2 // of each kind
	header      = "x-conversation-id"

	prefillRate = 5000    // prompt tokens per second of an engine
	cacheTokens = 150_000 // of an engine's prefix cache
	lesson      = 5 * time.Second

	// startTimeout bounds the start of the Envoys.
	startTimeout = 30 * time.Second
)

// DefaultDuration is how long the load of each phase lasts.
const DefaultDuration = 15 * time.Second

// Options are the choices of a demo.
type Options struct {
	Duration time.Duration // of the load of each phase
	Out      io.Writer
	// ControlPlane makes Steelyard from the text of its configuration file.
	ControlPlane func(ctx context.Context, configYAML []byte) (demo.Handle, error)
}

// A way is one by which requests find their engine.
type way struct {
	title string
	named bool // requests name their conversation
	urls  []string
}

// Run plays the demo, and returns when everything that it started has stopped.
func Run(ctx context.Context, o Options) (err error) {
	servers, err := startServers()
	defer func() {
		for _, s := range servers {
			err = errors.Join(err, s.Close())
		}
	}()
	if err != nil {
		return err
	}
	control, err := o.ControlPlane(ctx, configOf(servers))
	if err != nil {
		return fmt.Errorf("starting Steelyard: %w", err)
	}
	// Steelyard outlives the Envoys and, with them, the caller's context.
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	group, failed := errgroup.WithContext(background)
	group.Go(func() error { return control.Run(failed) })
	playing, end := context.WithCancelCause(ctx)
	defer end(nil)
	defer context.AfterFunc(failed, func() { end(errors.New("Steelyard ended early")) })()
	err = play(playing, o, control, servers)
	stop()
	return errors.Join(err, group.Wait())
}

func startServers() (all []*modelsim.Server, err error) {
	for range engines {
		p := engine.Defaults()
		p.PrefillRate, p.CacheTokens = prefillRate, cacheTokens
		s, err := modelsim.Start(modelsim.Options{Batching: &p})
		if err != nil {
			return all, err
		}
		all = append(all, s)
	}
	return all, nil
}

func configOf(servers []*modelsim.Server) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, `xds:   {listen: "127.0.0.1:0"}
admin: {listen: "127.0.0.1:0"}
clusters:
  - name: %s
    engine: vllm
    scrape: {interval: 250ms, timeout: 200ms}
    endpoints:
      static:
`, clusterName)
	for _, s := range servers {
		fmt.Fprintf(&b, "        - {address: %q}\n", s.Address())
	}
	return b.Bytes()
}

// play starts the Envoys, sends the load in each way and shows what came of it.
func play(ctx context.Context, o Options, control demo.Handle, servers []*modelsim.Server) (err error) {
	dir, err := os.MkdirTemp("", "steelyard-demo-")
	if err != nil {
		return fmt.Errorf("making a folder for the Envoys: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	e := envoys{dir: dir, xds: control.XDSAddress()}
	defer func() { err = errors.Join(err, e.stop()) }()
	var plain, choosing []string
	for i := range envoyCount {
		url, err := e.start(ctx, fmt.Sprintf("demo-envoy-%d", i+1), envoybootstrap.Options{Affinity: header})
		if err != nil {
			return err
		}
		plain = append(plain, url)
		if url, err = e.start(ctx, fmt.Sprintf("demo-envoy-module-%d", i+1), envoybootstrap.Options{Module: true,
			Prefix: true}); err != nil {
			return err
		}
		choosing = append(choosing, url)
	}
	fmt.Fprintf(o.Out, `Steelyard demo: %d simulated engines with prefix caches, the same conversations in three ways
Page:  http://%s/#/c/%s
Load:  %.1f conversations per second begin, for %v each time; %d system prompts, up to %d turns

`, engines, control.AdminAddress(), clusterName, conversationRate, o.Duration, systemPrompts, mostTurns)
	if _, err := phase(ctx, o, way{"(warm-up)", false, plain}, lesson, servers); err != nil {
		return err
	}
	var results []result
	for _, w := range []way{{"weights", false, plain}, {"by header", true, plain}, {"by prompt", false, choosing}} {
		r, err := phase(ctx, o, w, o.Duration, servers)
		if err != nil {
			return err
		}
		results = append(results, r)
	}
	fmt.Fprint(o.Out, "\n", table(results))
	return nil
}

// envoys are running Envoys.
type envoys struct {
	dir, xds string
	all      []*proc.Envoy
}

// start starts an Envoy, and returns where it takes requests.
func (e *envoys) start(ctx context.Context, name string, o envoybootstrap.Options) (url string, err error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	o.Cluster, o.XDS, o.NodeID, o.Listen, o.Admin = clusterName, e.xds, name, "127.0.0.1:0", "127.0.0.1:0"
	text, err := envoybootstrap.Render(o)
	if err != nil {
		return "", fmt.Errorf("making the bootstrap of %s: %w", name, err)
	}
	envoy, err := proc.StartEnvoy(ctx, proc.EnvoyConfig{Bootstrap: text, Dir: e.dir, Name: name})
	if err != nil {
		return "", err
	}
	e.all = append(e.all, envoy)
	address, err := envoy.Listener(ctx, "ingress")
	return "http://" + address + "/v1/chat/completions", err
}

func (e *envoys) stop() (err error) {
	for _, envoy := range e.all {
		err = errors.Join(err, envoy.Stop())
	}
	return err
}

// A result is the outcome of the load in one way.
type result struct {
	title             string
	requests, failed  int
	firstToken, whole load.Summary // seconds
	cached            float64      // share of the prompt tokens that the caches had
}

// phase sends the conversations in one way.
func phase(ctx context.Context, o Options, w way, d time.Duration, servers []*modelsim.Server) (result, error) {
	before := tokens(servers)
	got, err := load.Run(ctx, load.Plan{Targets: w.urls, Seed: 1, Completions: talk(w.title, w.named, 1, d),
		Drain: 30 * time.Second})
	if err != nil {
		return result{}, err
	}
	after := tokens(servers)
	fmt.Fprintf(o.Out, "%-10s %4d requests, all answered after %.1f s\n", w.title, got.Requests, got.Elapsed.Seconds())
	return result{title: w.title, requests: got.Requests, failed: got.Errors, firstToken: got.FirstBytes(),
		whole: got.Latency, cached: float64(after.CachedTokens-before.CachedTokens) /
			float64(max(1, after.PromptTokens-before.PromptTokens))}, nil
}

// tokens are the sums of all engines.
func tokens(servers []*modelsim.Server) (sum engine.Counters) {
	for _, s := range servers {
		c := s.Tokens()
		sum.CachedTokens += c.CachedTokens
		sum.PromptTokens += c.PromptTokens
	}
	return sum
}

// rows are the lines of the comparison.
var rows = []struct {
	title string
	value func(result) string
}{
	{"time to first token, mean", func(r result) string { return seconds(r.firstToken.Mean) }},
	{"time to first token, p50", func(r result) string { return seconds(r.firstToken.P50) }},
	{"time to first token, p90", func(r result) string { return seconds(r.firstToken.P90) }},
	{"time to last token, p50", func(r result) string { return seconds(r.whole.P50) }},
	{"prompt tokens in caches", func(r result) string { return fmt.Sprintf("%.0f %%", 100*r.cached) }},
	{"requests", func(r result) string { return fmt.Sprint(r.requests) }},
	{"failed", func(r result) string { return fmt.Sprint(r.failed) }},
}

func seconds(s float64) string { return fmt.Sprintf("%.2f s", s) }

// table compares the ways.
func table(results []result) string {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%-27s", "")
	for _, r := range results {
		fmt.Fprintf(&b, " %10s", r.title)
	}
	for _, row := range rows {
		fmt.Fprintf(&b, "\n%-27s", row.title)
		for _, r := range results {
			fmt.Fprintf(&b, " %10s", row.value(r))
		}
	}
	b.WriteByte('\n')
	return b.String()
}
