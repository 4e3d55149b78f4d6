package main

import (
	"context"
	"encoding/csv"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"slices"
	"sync"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"steelyard/e2e/bench/command"
)

func main() { command.Main(newCommand()) }

// options are what is run.
type options struct {
	only  *regexp.Regexp
	seeds uint64
	least bool
}

func newCommand() *cobra.Command {
	var only, out, against string
	var o options
	c := &cobra.Command{
		Use:   "law",
		Short: "Run simulated fleets under the law, and compare the waits with those of another commit's law",
		Args:  cobra.NoArgs,
	}
	s := c.Flags()
	s.StringVar(&only, "only", "", "regular expression: the rows to run, as SET/FLEET/SOURCE")
	s.Uint64Var(&o.seeds, "seeds", 3, "runs of each row")
	s.BoolVar(&o.least, "least-request", false, "also each fleet under Envoy's own policy")
	s.StringVar(&out, "out", "bench/law.csv", "file for the rows")
	s.StringVar(&against, "against", "", "file of rows to compare with")
	c.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		if o.only, err = regexp.Compile(only); err != nil {
			return fmt.Errorf("--only: %w", err)
		}
		var base []row
		if against != "" {
			if base, err = readFile(against); err != nil {
				return fmt.Errorf("--against: %w", err)
			}
		}
		rows, err := o.measure(cmd.Context(), out)
		if err != nil || base == nil {
			return err
		}
		return printComparison(cmd.OutOrStdout(), compare(rows, base))
	}
	return c
}

// measure runs the rows, as many at a time as there are CPUs, and writes each to the file as soon as it is there.
func (o *options) measure(ctx context.Context, path string) ([]row, error) {
	file, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var writing sync.Mutex
	write := csv.NewWriter(file)
	put := func(record []string) error {
		writing.Lock()
		defer writing.Unlock()
		if err := write.Write(record); err != nil {
			return err
		}
		write.Flush()
		return write.Error()
	}
	if err := put(header()); err != nil {
		return nil, err
	}
	jobs := o.jobs()
	rows := make([]row, len(jobs))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i, j := range jobs {
		group.Go(func() (err error) {
			if rows[i], err = run(ctx, j.fleet, j.source, j.seed); err != nil {
				return err
			}
			return put(rows[i].record())
		})
	}
	return rows, group.Wait()
}

// A job is a row to run.
type job struct {
	fleet  *fleet
	source string
	seed   uint64
}

func (o *options) jobs() []job {
	var jobs []job
	for _, f := range fleets() {
		sources := f.sources
		if o.least {
			sources = append(slices.Clone(sources), byItself)
		}
		for _, source := range sources {
			if !o.only.MatchString(f.set + "/" + f.name + "/" + source) {
				continue
			}
			for seed := range o.seeds {
				jobs = append(jobs, job{&f, source, seed + 1})
			}
		}
	}
	return jobs
}

func readFile(path string) ([]row, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return read(file)
}
