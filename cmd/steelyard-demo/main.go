// Command steelyard-demo shows Envoy's own least request and then Steelyard's weights under the same load. It is
// a program of its own, so that the simulated model servers and the embedded Redis are no part of the product.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"steelyard/cmd/internal/daemon"
	"steelyard/cmd/internal/demo"
	"steelyard/cmd/internal/router"
	"steelyard/controlplane/config"
	"steelyard/e2e/rig/proc"
)

// version is set by the linker.
var version = "dev"

func main() {
	ctx, end := untilClosed()
	c := command()
	c.SetOut(output{os.Stdout, end})
	if err := c.ExecuteContext(ctx); err != nil && (ctx.Err() == nil || !errors.Is(err, context.Canceled)) {
		fmt.Fprintln(os.Stderr, "steelyard-demo:", err)
		os.Exit(1)
	}
}

// untilClosed ends with a signal, or with end. A closed terminal or pipe must leave nothing behind either; but SIGPIPE
// does not show whether standard output or the connection of a client was closed, which is ordinary: see output.
func untilClosed() (ctx context.Context, end func()) {
	signal.Ignore(syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	return context.WithCancel(ctx)
}

// An output is a file that ends the demo once its other side is closed.
type output struct {
	*os.File
	end func()
}

func (o output) Write(p []byte) (int, error) {
	n, err := o.File.Write(p)
	if err != nil {
		o.end()
	}
	return n, err
}

func command() *cobra.Command {
	var o demo.Options
	c := &cobra.Command{
		Use:   "steelyard-demo",
		Short: "Show Envoy's own least request and then Steelyard's weights under the same load",
		Long: `Start a control plane, simulated model servers, an embedded Redis, real Envoys and
a load, all on loopback, and show what users wait: first under Envoy's own least
request, then under Steelyard's weights. Everything ends with the demo, or with
Ctrl-C.`,
		Version: version, Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.Duration == 0 || o.Envoys == 0 || o.Endpoints == 0 || o.Load == 0 {
				return errors.New("--duration, --envoys, --endpoints and --load have to be above 0")
			}
			if o.Trouble && !o.Keep {
				return errors.New("--trouble needs --keep: it begins after the last phase")
			}
			o.Out = cmd.OutOrStdout()
			o.ControlPlane = controlPlane
			return demo.Run(cmd.Context(), o)
		},
	}
	f := c.Flags()
	f.DurationVar(&o.Duration, "duration", demo.DefaultDuration, "length of each phase")
	f.IntVar(&o.Envoys, "envoys", demo.DefaultEnvoys, "number of Envoys")
	f.IntVar(&o.Endpoints, "endpoints", demo.DefaultEndpoints, "number of model servers")
	f.Float64Var(&o.Load, "load", demo.DefaultLoad, "load, as a share of what all servers together can do")
	f.Uint64Var(&o.Seed, "seed", 0, "seed of the load: the same seed sends the same requests")
	f.BoolVar(&o.RoundRobin, "round-robin", false, "begin with Envoy's round robin instead of its least request")
	f.BoolVar(&o.Keep, "keep", false, "keep running after the last phase, until Ctrl-C")
	f.BoolVar(&o.Trouble, "trouble", false, "with --keep: then a server stalls and an Envoy stands still, to be found")
	f.StringVar(&o.JSONFile, "json", "", "write the figures to this file as JSON")
	c.AddCommand(queueCommand(), routerCommand(), prefixCommand())
	return c
}

func queueCommand() *cobra.Command {
	return withDuration(&cobra.Command{
		Use:   "queue",
		Short: "Show a queue with two classes at twice the load that the servers can take",
		Long: `Start a control plane, simulated model servers that execute one request at a time
and two real Envoys with the module, and send two classes of requests, twice as
much as the servers can do. libsteelyard.so has to be next to this program, or in
the folder that ENVOY_DYNAMIC_MODULES_SEARCH_PATH names.`,
	}, 20*time.Second, "length of the load", demo.Queue)
}

func routerCommand() *cobra.Command {
	return withDuration(&cobra.Command{
		Use:   "router",
		Short: "Show what requests wait when busy replicas are scaled up: round robin, then steelyard router",
		Long: `Send simulated replicas more requests than they can answer, and add replicas half of
the time later: first through an Envoy with its own round robin, then through
steelyard router. libsteelyard.so has to be next to this program, or in the folder
that ENVOY_DYNAMIC_MODULES_SEARCH_PATH names.`,
	}, 20*time.Second, ofEachPhase, demo.Scaling)
}

func prefixCommand() *cobra.Command {
	return withDuration(&cobra.Command{
		Use:   "prefix",
		Short: "Show conversations on engines with prefix caches, placed in three ways",
		Long: `Start a control plane, simulated engines with prefix caches and real Envoys, and
send the same conversations three times: with weights from the engines' work, with a
hash of a header that names the conversation, and with the prompt, in the module.
libsteelyard.so has to be next to this program, or in the folder that
ENVOY_DYNAMIC_MODULES_SEARCH_PATH names.`,
	}, 15*time.Second, ofEachPhase, demo.Prefix)
}

const ofEachPhase = "length of the load of each phase"

// withDuration makes a command with one option, and how long a demo needs at least.
func withDuration(c *cobra.Command, byDefault time.Duration, usage string,
	run func(context.Context, io.Writer, time.Duration, demo.Steelyard) error) *cobra.Command {
	d := c.Flags().Duration("duration", byDefault, usage)
	c.Args, c.SilenceUsage, c.SilenceErrors = cobra.NoArgs, true, true
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		if *d < time.Second {
			return errors.New("--duration has to be 1s or more")
		}
		folder, err := router.ModuleFolder()
		if err != nil {
			return err
		}
		if err := os.Setenv(router.SearchPath, folder); err != nil { // for the Envoys
			return fmt.Errorf("naming the folder of the module: %w", err)
		}
		return run(cmd.Context(), cmd.OutOrStdout(), *d, demo.Steelyard{ControlPlane: controlPlane, Router: runRouter})
	}
	return c
}

// runRouter is what `steelyard router` runs, with this environment.
func runRouter(ctx context.Context, getenv func(string) string, log io.Writer) error {
	o, err := router.FromEnvironment(getenv)
	if err != nil {
		return err
	}
	if o.Envoy, err = proc.Find(proc.ProgramEnvoy); err != nil {
		return err
	}
	o.Host, o.EnvoyLog, o.Log = "127.0.0.1", log, slog.New(slog.NewTextHandler(log, nil))
	return router.Run(ctx, o)
}

// controlPlane is what `steelyard serve` runs, from a text instead of a file.
func controlPlane(_ context.Context, text []byte) (demo.Handle, error) {
	cfg, err := config.Parse("demo.yaml", text)
	if err != nil {
		return nil, fmt.Errorf("the demo's configuration: %w", err)
	}
	return daemon.New(cfg, daemon.Options{Version: version, Log: slog.New(slog.DiscardHandler)})
}
