package main

import (
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"steelyard/e2e/bench/command"
	"steelyard/e2e/bench/placement/report"
)

func main() { command.Main(newCommand()) }

func newCommand() *cobra.Command {
	o := defaults()
	var quick bool
	var out string
	c := &cobra.Command{
		Use:   "faults",
		Short: "Measure on real Envoys how soon a server that fails gets nothing new, and what is lost until then",
	}
	s := c.Flags()
	s.BoolVar(&quick, "quick", false, "one run of 20 s for each fault")
	s.StringSliceVar(&o.policies, "policies", o.policies, "rows, as of bench-placement")
	s.StringSliceVar(&o.faults, "faults", o.faults, "some of "+strings.Join(o.faults, ","))
	s.IntVar(&o.runs, "runs", o.runs, "how often each fault is measured")
	s.IntVar(&o.envoys, "envoys", o.envoys, "Envoys of a row")
	s.IntVar(&o.servers, "servers", o.servers, "servers of a row")
	s.IntVar(&o.slots, "slots", o.slots, "requests that a server executes at once")
	s.DurationVar(&o.service, "service", o.service, "mean service of a request")
	s.Float64Var(&o.load, "load", o.load, "offered work, as a share of what all servers can do")
	s.DurationVar(&o.warmUp, "warm-up", o.warmUp, "before the fault")
	s.DurationVar(&o.length, "length", o.length, "of the fault")
	s.Uint64Var(&o.seed, "seed", o.seed, "of the requests of the first run")
	s.StringVar(&out, "out", "bench", "folder for the results")
	s.StringVar(&o.place.Binary, "steelyard", "", "the binary to measure (default: built from this checkout)")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		if quick {
			o.runs, o.length = 1, 20*time.Second
		}
		return command.InFolder("faults", func(dir string) error {
			o.log, o.place.Dir = os.Stderr, dir
			d, err := o.run(cmd.Context())
			if err != nil {
				return err
			}
			return report.Publish("faults", out, d, true, nil)
		})
	}
	return c
}
