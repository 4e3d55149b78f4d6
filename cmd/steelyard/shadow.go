package main

import (
	"context"
	"os"
	"syscall"

	"github.com/spf13/cobra"

	"steelyard/cmd/internal/console"
	"steelyard/cmd/internal/simulate"
	"steelyard/sim"
)

func shadowCommand() *cobra.Command {
	var a asking
	policy := string(sim.LeastRequest)
	c := &cobra.Command{
		Use:   "shadow CLUSTER",
		Short: "Show what weights would have brought to requests that do not follow them",
		Long: `Show what Steelyard would have brought to Envoys that only report their requests
(bootstrap --attach --shadow): in p50 and p99 of the time to the last byte, and for each
endpoint. It takes the busiest hour of the last day, or the current one if there is no
other yet, and simulates its requests here, with the Envoys' own policy and with weights.
The first of these shows how far the simulation is from what was measured.`,
		Example: `  steelyard shadow llama
  steelyard shadow llama --envoy-policy round_robin -o json`,
		Args: cobra.ExactArgs(1),
		RunE: a.run(func(_ context.Context, c *console.Client, out console.Output, args []string) error {
			if err := oneOf("envoy-policy", policy, envoyPolicies()...); err != nil {
				return err
			}
			ctx := untilSignal(os.Interrupt, syscall.SIGTERM)
			v, err := c.Shadow(ctx, args[0])
			if err != nil {
				return err
			}
			r, err := simulate.RunShadow(ctx, v, policy, os.Stderr)
			if err != nil {
				return err
			}
			return out.Print(r, r.Print)
		}),
		ValidArgsFunction: a.names,
	}
	c.Flags().StringVar(&policy, "envoy-policy", policy, "of the clusters that the Envoys have: round_robin, "+
		"least_request or random")
	completes(c, "envoy-policy", envoyPolicies()...)
	return a.flags(c)
}

func envoyPolicies() []string {
	return []string{string(sim.RoundRobin), string(sim.LeastRequest), string(sim.Random)}
}
