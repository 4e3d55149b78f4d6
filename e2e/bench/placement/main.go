package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9/logging"
	"github.com/spf13/cobra"

	"steelyard/e2e/bench/command"
	"steelyard/e2e/bench/placement/bench"
	"steelyard/e2e/bench/placement/fleet"
	"steelyard/e2e/bench/placement/report"
)

func main() {
	logging.Disable() // a Redis that is starting is tried until it answers
	command.Main(newCommand())
}

// flags are what a person can choose.
type flags struct {
	quick    bool
	rows     []string
	services []time.Duration
	requests int
	runs     int
	seed     uint64
	out      string
	size     fleet.Size
	group    int
	together float64
	binary   string
	overload bool
	knee     bool
}

func newCommand() *cobra.Command {
	var f flags
	c := &cobra.Command{
		Use:   "placement",
		Short: "Measure on real Envoys how well policies place requests",
		RunE:  func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	d := bench.Default()
	s := c.Flags()
	s.BoolVar(&f.quick, "quick", false, "three minutes: all rows at 1 s of service, few requests, wide intervals")
	s.StringSliceVar(&f.rows, "rows", nil, "rows to run, of "+strings.Join(names(fleet.Policies()), ",")+
		"; those with Steelyard also with +round_robin, +shedding, +module or +module+queue behind their name "+
		"(default: all at 1 s of service and longer, at less "+
		strings.Join(names(bench.DefaultPolicies(0)), ",")+")")
	s.DurationSliceVar(&f.services, "service", d.Services, "mean service times")
	s.IntVar(&f.requests, "requests", d.Requests, "requests that count, for each row and service time")
	s.IntVar(&f.runs, "runs", d.Runs, "runs, one after the other")
	s.Uint64Var(&f.seed, "seed", d.Seed, "of the requests")
	s.StringVar(&f.out, "out", "bench", "folder for the results")
	s.IntVar(&f.size.Envoys, "envoys", d.Size.Envoys, "Envoys of a row, one worker each")
	s.IntVar(&f.size.Servers, "servers", d.Size.Servers, "simulated model servers of a row")
	s.IntVar(&f.size.Slots, "slots", d.Size.Slots, "requests that a server runs at once")
	s.IntVar(&f.size.Slow, "slow", d.Size.Slow, "servers that take three times as long")
	s.BoolVar(&f.size.Skew, "skew", d.Size.Skew, "the first Envoy gets half of the requests")
	s.Float64Var(&f.size.Load, "load", d.Size.Load, "offered work, as a share of what the servers can do")
	s.IntVar(&f.group, "group", d.Group, "rows with Steelyard that are measured together; each group also has "+
		"least_request and shortest_queue")
	s.Float64Var(&f.together, "together", d.Together, "requests per second of the rows of a group that run at the "+
		"same time")
	s.BoolVar(&f.overload, "overload", false, "instead: twice the load that the servers can carry, with shedding and "+
		"without")
	s.BoolVar(&f.knee, "knee", false, "instead: how quality pays for pushes, by their least interval, deadband and "+
		"budget")
	c.MarkFlagsMutuallyExclusive("overload", "knee")
	for _, ignored := range []string{"rows", "requests", "runs", "load", "group", "together"} {
		c.MarkFlagsMutuallyExclusive("overload", ignored)
	}
	c.MarkFlagsMutuallyExclusive("knee", "rows")
	s.StringVar(&f.binary, "steelyard", "", "the binary to measure (default: built from this checkout)")
	return c
}

func names(policies []fleet.Policy) []string {
	all := make([]string, len(policies))
	for i, p := range policies {
		all[i] = p.Name
	}
	return all
}

// options returns the flags over the defaults, or over those of --quick.
func (f flags) options(cmd *cobra.Command) (bench.Options, error) {
	o := bench.Default()
	if f.quick {
		o = bench.Quick()
	}
	o.Size, o.Runs, o.Seed, o.Group, o.Together, o.Log = f.size, f.runs, f.seed, f.group, f.together, os.Stderr
	if !f.quick || cmd.Flags().Changed("requests") {
		o.Requests = f.requests
	}
	if !f.quick || cmd.Flags().Changed("service") {
		o.Services = f.services
	}
	for _, name := range f.rows {
		p, err := fleet.Named(name)
		if err != nil {
			return o, fmt.Errorf("--rows: %w", err)
		}
		o.Policies = append(o.Policies, p)
	}
	return o, nil
}

func (f flags) run(cmd *cobra.Command) error {
	o, err := f.options(cmd)
	if err != nil {
		return err
	}
	return command.InFolder(cmd.Name(), func(dir string) error {
		o.Place = fleet.Place{Dir: dir, Binary: f.binary}
		switch {
		case f.overload:
			return f.runOverload(cmd, o)
		case f.knee:
			return f.runKnee(cmd, o)
		}
		d, err := bench.Run(cmd.Context(), o)
		if err != nil {
			return err
		}
		return report.Publish("placement", f.out, d, d.Valid,
			func(file string) error { return report.WritePlot(file, d.Sections) })
	})
}

func (f flags) runOverload(cmd *cobra.Command, o bench.Options) error {
	overload := bench.DefaultOverload()
	overload.Options = o
	if cmd.Flags().Changed("service") {
		overload.Service = f.services[0]
	}
	if f.quick {
		overload.During = 30 * time.Second
	}
	d, err := overload.Run(cmd.Context())
	if err != nil {
		return err
	}
	return report.Publish("overload", f.out, d, d.Valid, d.WritePlot)
}

func (f flags) runKnee(cmd *cobra.Command, o bench.Options) error {
	k, sweeps := bench.Knee(o)
	if cmd.Flags().Changed("service") {
		k.Services = f.services
	}
	d, err := bench.Run(cmd.Context(), k)
	if err != nil {
		return err
	}
	d.Targets, d.Runs = nil, nil // those of the placement, which these rows do not answer
	return report.Publish("knee", f.out, d, d.Valid,
		func(file string) error { return report.WriteKnee(file, d.Sections, sweeps) })
}
