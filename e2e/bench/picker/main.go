package main

import (
	"context"
	"errors"
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
		Short: "Measure on real Envoys what a choice for each request costs, and how the queue shares and survives",
	}
	s := c.Flags()
	s.BoolVar(&quick, "quick", false, "three minutes, wide intervals")
	s.IntVar(&o.Requests, "requests", o.Requests, "bodies of each size that count, for each row")
	s.StringVar(&out, "out", "bench/picker", "folder for the results")
	s.StringVar(&o.Place.Binary, "steelyard", "", "the binary to measure (default: built from this checkout)")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		if quick {
			short := Quick()
			if o.Flood, o.Waiting, o.Killing = short.Flood, short.Waiting, short.Killing; !s.Changed("requests") {
				o.Requests = short.Requests
			}
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
		// A machine that was too busy for latencies can still tell shares and failures.
		busy := report.Publish("latency", out, d, d.Valid, nil)
		w, err := o.wait(ctx)
		if err != nil {
			return errors.Join(busy, err)
		}
		return errors.Join(busy, report.Publish("waiting", out, w, true, nil))
	})
}
