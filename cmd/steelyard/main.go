// Command steelyard is the control plane and its tools: one binary.
package main

import (
	"os"

	"github.com/spf13/cobra"
)

// version is set by the linker.
var version = "dev"

func main() { os.Exit(execute(root())) }

// The groups of commands, as help shows them.
const (
	groupRun = "run"
	groupAsk = "ask"
	groupAct = "act"
)

func root() *cobra.Command {
	c := &cobra.Command{
		Use:   "steelyard",
		Short: "Envoy's own balancing by the load of the whole fleet, for pools of model servers",
		Long: `Steelyard reads the load of model servers (vLLM, Triton, TensorRT-LLM, SGLang, TGI)
and the requests in flight, computes a weight for every endpoint, and streams the
weights to Envoys (EDS). No request passes through it.

Exit status of all commands: 0 if all is well; 1 after a failure, or if a running
Steelyard has an incident; 2 after a mistake in the command line.`,
		Example: `  steelyard check -c steelyard.yaml && steelyard serve -c steelyard.yaml
  steelyard status               # is all well? Which endpoint, which Envoy, since when, why
  steelyard top llama            # what each endpoint really gets, live`,
		Version:       version,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.ArbitraryArgs, // the command that was meant is named by RunE
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownCommand(c, args[0])
			}
			return c.Help()
		},
	}
	c.AddGroup(&cobra.Group{ID: groupAsk, Title: "Ask a running Steelyard:"},
		&cobra.Group{ID: groupAct, Title: "Act on a running Steelyard:"},
		&cobra.Group{ID: groupRun, Title: "Run and prepare:"})
	inGroup := func(id string, commands ...*cobra.Command) {
		for _, sub := range commands {
			sub.GroupID = id
		}
		c.AddCommand(commands...)
	}
	inGroup(groupRun, serveCommand(), pickerCommand(), routerCommand(), checkCommand(), bootstrapCommand(),
		inspectCommand(), simulateCommand(), schemaCommand(), certificatesCommand())
	inGroup(groupAsk, statusCommand(), topCommand(), explainCommand(), eventsCommand(), diffCommand(),
		shadowCommand())
	inGroup(groupAct, drainCommand(), undrainCommand(), pinCommand(), logLevelCommand())
	c.AddCommand(versionCommand())
	prepare(c)
	return c
}
