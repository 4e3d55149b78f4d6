// Command steelyard is the control plane and its tools: one binary.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"

	"github.com/spf13/cobra"
)

// version is set by the linker.
var version = "dev"

func main() {
	err := root().Execute()
	if err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "steelyard:", err)
		os.Exit(1)
	}
}

// untilSignal ends at the first of the signals, for a command that has things to
// put away. A second one ends the process at once.
func untilSignal(signals ...os.Signal) context.Context {
	ctx, stop := signal.NotifyContext(context.Background(), signals...)
	context.AfterFunc(ctx, stop)
	return ctx
}

func root() *cobra.Command {
	c := &cobra.Command{
		Use:   "steelyard",
		Short: "Global load in Envoy's own balancing, for pools of model servers",
		Long: `Steelyard reads the load of model servers (vLLM, Triton, TensorRT-LLM, SGLang,
TGI) and the requests in flight, computes a weight for every endpoint, and streams
the weights to Envoys as EDS. No request passes through it.`,
		Version:       version,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.NoArgs,
	}
	c.AddCommand(serveCommand(), checkCommand(), bootstrapCommand(), inspectCommand(), demoCommand())
	return c
}
