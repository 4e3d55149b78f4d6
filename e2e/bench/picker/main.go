package main

import (
	"context"
	"os"

	"github.com/spf13/cobra"

	"steelyard/e2e/bench/command"
	"steelyard/e2e/bench/placement/report"
)

func main() { command.Main(newCommand()) }

// newCommand reads the flags over the defaults, or over those of --quick.
func newCommand() *cobra.Command {
	o := Default()
	var quick bool
	var out string
	c := &cobra.Command{
		Use:   "picker",
		Short: "Measure on real Envoys what a choice for each request adds to its latency",
	}
	s := c.Flags()
	s.BoolVar(&quick, "quick", false, "half a minute, wide intervals")
	s.IntVar(&o.Requests, "requests", o.Requests, "bodies of each size that count, for each row")
	s.StringVar(&out, "out", "bench/picker", "folder for the results")
	s.StringVar(&o.Place.Binary, "steelyard", "", "the binary to measure (default: built from this checkout)")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		if quick && !s.Changed("requests") {
			o.Requests = Quick().Requests
		}
		return o.publish(cmd.Context(), out)
	}
	return c
}

// publish measures, prints the tables and writes the JSON.
func (o Options) publish(ctx context.Context, out string) error {
	return command.InFolder("picker", func(dir string) error {
		o.Log, o.Place.Dir = os.Stderr, dir
		d, err := o.measure(ctx)
		if err != nil {
			return err
		}
		return report.Publish("latency", out, d, d.Valid, nil)
	})
}
