// Command steelyard is the control plane and its tools: one binary.
package main

import (
	"context"
	"errors"
	"os"
	"os/signal"

	"github.com/spf13/cobra"

	"steelyard/cmd/internal/simulate"
)

// version is set by the linker.
var version = "dev"

func main() { os.Exit(execute(root())) }

// The exit statuses of all commands.
const (
	exitFailure = 1
	exitUsage   = 2 // a mistake in the command line
)

// execute runs a command line and returns the exit status. A failure before a command
// starts is a mistake in the command line.
func execute(c *cobra.Command) int {
	began := false
	for _, sub := range c.Commands() {
		run := sub.RunE
		sub.RunE = func(cmd *cobra.Command, args []string) error {
			began = true
			return run(cmd, args)
		}
	}
	err := c.Execute()
	if err == nil || errors.Is(err, context.Canceled) {
		return 0
	}
	sayLast(c.ErrOrStderr(), err)
	if !began || errors.As(err, &simulate.Usage{}) {
		return exitUsage
	}
	return exitFailure
}

// untilSignal ends at the first of the signals, for a command that has to clean up. A second one ends the process at
// once.
func untilSignal(signals ...os.Signal) context.Context {
	ctx, stop := signal.NotifyContext(context.Background(), signals...)
	context.AfterFunc(ctx, stop)
	return ctx
}

func root() *cobra.Command {
	c := &cobra.Command{
		Use:   "steelyard",
		Short: "Envoy's own balancing by the load of the whole fleet, for pools of model servers",
		Long: `Steelyard reads the load of model servers (vLLM, Triton, TensorRT-LLM, SGLang,
TGI) and the requests in flight, computes a weight for every endpoint, and streams
the weights to Envoys as EDS. No request passes through it.`,
		Version:       version,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.NoArgs,
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(serveCommand(), checkCommand(), bootstrapCommand(), inspectCommand(), simulateCommand())
	return c
}
