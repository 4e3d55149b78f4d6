package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"steelyard/e2e/bench/placement/report"
)

func main() { os.Exit(run()) }

func run() (status int) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "picker:", err)
		return 1
	}
	return 0
}

// command reads the flags over the defaults, or over those of --quick.
func command() *cobra.Command {
	o := Default()
	var quick bool
	var out string
	c := &cobra.Command{
		Use:   "picker",
		Short: "Measure on real Envoys what a choice for each request adds to its latency",
		Args:  cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
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

var errInvalid = errors.New("the machine was too busy: these figures are not a result")

// publish measures, prints the tables and writes the JSON.
func (o Options) publish(ctx context.Context, out string) (err error) {
	o.Log = os.Stderr
	if o.Place.Dir, err = os.MkdirTemp("", "steelyard-picker-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(o.Place.Dir)) }()
	d, err := o.measure(ctx)
	if err != nil {
		return err
	}
	if err := d.write(os.Stdout); err != nil {
		return err
	}
	name := "latency"
	if !d.Valid {
		name += "-invalid"
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	file := filepath.Join(out, name+".json")
	if err := report.WriteJSON(file, d); err != nil {
		return err
	}
	fmt.Printf("\n%s\n", file)
	if !d.Valid {
		return errInvalid
	}
	return nil
}
