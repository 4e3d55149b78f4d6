package main

import (
	"os"
	"syscall"

	"github.com/spf13/cobra"

	"steelyard/cmd/internal/simulate"
)

func simulateCommand() *cobra.Command {
	var o simulate.Options
	c := &cobra.Command{
		Use:   "simulate --scenario NAME|FILE | --trace FILE",
		Short: "Simulate how long requests would wait under each policy, also on your own fleet",
		Long: `Simulate a fleet of model servers behind Envoys, and show how long users would wait with
each policy: Envoy's own ones, Steelyard with several sources of load, and the bound, a
choice for each request that sees all servers. All policies get the same requests. It
starts nothing, sends nothing and opens no port.

A scenario is a built-in one (--list) or a file; --print writes one to start from. With
--config, endpoints, slots, sources and law are from your configuration, and the traffic
is from the scenario.

Scenarios llm and llm-mixed-speed have engines that batch continuously, as vLLM does, and
requests from a trace: the built-in one, or the file of --trace (Azure's CSV, BurstGPT's
CSV or Mooncake's JSON lines, plain or gzip). Their times are in seconds: to the first
token, for each output token, and to the last one. Other waits are in mean service times.`,
		Example: `  steelyard simulate --list
  steelyard simulate --scenario photoroom
  steelyard simulate --scenario photoroom --policy least_request,steelyard@5ms
  steelyard simulate --scenario photoroom --print > mine.yaml
  steelyard simulate --scenario ./mine.yaml --seed 7 --json rows.json
  steelyard simulate --scenario photoroom --config steelyard.yaml --cluster llama
  steelyard simulate --scenario llm --load 0.9
  steelyard simulate --trace BurstGPT_1.csv --spread --duration 20m`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Seeded = cmd.Flags().Changed("seed")
			o.Out, o.Err = cmd.OutOrStdout(), cmd.ErrOrStderr()
			return simulate.Run(untilSignal(os.Interrupt, syscall.SIGTERM), o)
		},
	}
	simulateFlags(c, &o)
	return c
}

func simulateFlags(c *cobra.Command, o *simulate.Options) {
	f := c.Flags()
	f.StringVar(&o.Scenario, "scenario", "", "a built-in scenario, or the path of a file (with a / or a dot in it)")
	f.StringVar(&o.Trace, "trace", "", "a file of requests to language models, instead of the scenario's "+
		"(default scenario: llm)")
	f.BoolVar(&o.Spread, "spread", false, "spread the requests of a trace whose times are rounded to seconds over "+
		"what they are rounded to")
	f.Float64Var(&o.Load, "load", 0, "traffic as a part of what the pods can do, 0.01 to 10 (default: the scenario's)")
	f.BoolVar(&o.List, "list", false, "list the built-in scenarios and exit")
	f.BoolVar(&o.Print, "print", false, "print the scenario as a file and exit")
	f.Uint64Var(&o.Seed, "seed", 0, "seed of all random numbers, 0 to 9223372036854775807: the same seed gives the "+
		"same result (default: the scenario's)")
	f.DurationVar(&o.Duration, "duration", 0, "simulated time (default: the scenario's)")
	f.StringSliceVar(&o.Policies, "policy", nil, "rows to show: names as in the table (--list describes them), "+
		"or steelyard@ with another interval, 1ms to 1m, which uses the access log, pushes at most that often and has "+
		"no other budget; repeat or separate by commas (default: all)")
	f.StringVar(&o.JSONFile, "json", "", "write the rows to this file as JSON; - for standard output instead of the "+
		"table")
	f.StringVarP(&o.Config, "config", "c", "", "a configuration, whose cluster replaces the scenario's pods")
	f.StringVar(&o.Cluster, "cluster", "", "the cluster of that configuration (default: its only one)")
	f.IntVar(&o.Pods, "pods", 0, "number of endpoints, where the configuration finds them by DNS")
	f.StringVar(&o.EnvoyPolicy, "envoy-policy", "", "Envoy's policy under the weights of that configuration: "+
		"round_robin, least_request or random (default: least_request)")
	_ = c.MarkFlagFilename("config", "yaml", "yml")
	_ = c.RegisterFlagCompletionFunc("scenario", cobra.FixedCompletions(simulate.ScenarioNames(),
		cobra.ShellCompDirectiveDefault))
	completes(c, "policy", simulate.PolicyNames()...)
	completesClusterOf(c, &o.Config)
	completes(c, "envoy-policy", envoyPolicies()...)
}
