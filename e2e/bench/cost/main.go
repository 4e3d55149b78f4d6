package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"steelyard/e2e/rig/proc"
)

// options are the flags.
type options struct {
	quick   bool
	soak    time.Duration
	only    string
	repeat  int
	against string
	profile string
	json    string
	strict  bool
}

func main() { os.Exit(command()) }

func command() (status int) {
	var o options
	flag.BoolVar(&o.quick, "quick", false, "measure each setting for 5 s instead of 20")
	flag.DurationVar(&o.soak, "soak", 0, "run only the largest setting, for so long, and look at the growth of its "+
		"memory")
	flag.StringVar(&o.only, "only", "", "run only this setting, or those of a kind: endpoints-100, streams-")
	flag.IntVar(&o.repeat, "repeat", 1, "run all settings so many times, in turn")
	flag.StringVar(&o.against, "against", "", "another steelyard binary, to be measured in turn with this one")
	flag.StringVar(&o.profile, "profile", "", "an existing folder for CPU and heap profiles of each setting; the "+
		"figures are then those of a profiled process")
	flag.StringVar(&o.json, "json", "", "write the report to this file, as JSON")
	flag.BoolVar(&o.strict, "strict", false, "exit with status 1 when a target is missed")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	report, err := bench(ctx, o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "measuring the cost:", err)
		return 1
	}
	report.print(os.Stdout)
	if o.strict && slices.ContainsFunc(report.Targets, func(t Target) bool { return !t.Met }) {
		return 1
	}
	return 0
}

// bench measures every setting with every binary, in turn.
func bench(ctx context.Context, o options) (Report, error) {
	report := newReport()
	if err := o.validate(); err != nil {
		return report, err
	}
	binaries, err := o.binaries()
	if err != nil {
		return report, err
	}
	for range o.repeat {
		for _, s := range o.settings() {
			for _, name := range slices.Sorted(maps.Keys(binaries)) {
				r := run{binary: binaries[name], warmUp: o.warmUp(), window: o.window()}
				if o.profile != "" {
					r.env = profileEnv(o.profile, s.Name, o.warmUp(), o.window())
				}
				row, err := r.measure(ctx, s)
				if err != nil {
					return report, fmt.Errorf("%s: %w", s.Name, err)
				}
				row.Binary = name
				fmt.Fprintln(os.Stderr, strings.ReplaceAll(row.line(), "\t", "  "))
				report.Rows = append(report.Rows, row)
			}
		}
	}
	if report.Targets = judge(report.Rows); o.strict && len(report.Targets) == 0 {
		return report, errors.New("--strict: no target is of what was measured")
	}
	if o.json == "" {
		return report, nil
	}
	return report, report.save(o.json)
}

// validate reports flags that contradict one another, or would be ignored.
func (o options) validate() error {
	switch {
	case o.repeat < 1:
		return fmt.Errorf("--repeat %d: write 1 or more", o.repeat)
	case o.soak < 0:
		return fmt.Errorf("--soak %v: write how long, such as 10m", o.soak)
	case o.soak > 0 && (o.quick || o.only != ""):
		return errors.New("--soak measures the largest setting for this time: leave out --quick and --only")
	case len(o.settings()) == 0:
		return fmt.Errorf("--only %q is not a setting: see docs/cost.md for their names", o.only)
	}
	return nil
}

// binaries returns what is measured, by the name in the rows.
func (o options) binaries() (map[string]string, error) {
	build := proc.BuildSteelyard
	if o.profile != "" {
		build = buildProfiled
	}
	this, err := build()
	if err != nil {
		return nil, err
	}
	all := map[string]string{"": this}
	if o.against != "" {
		all["other"] = o.against
	}
	return all, nil
}

func (o options) settings() []Setting {
	all := settings()
	if o.soak > 0 {
		return all[len(all)-1:]
	}
	return slices.DeleteFunc(all, func(s Setting) bool {
		ofKind := strings.HasSuffix(o.only, "-") && strings.HasPrefix(s.Name, o.only)
		return o.only != "" && o.only != s.Name && !ofKind
	})
}

// warmUp returns a longer time before a measurement of growth: the heap takes a minute or two to reach its size.
func (o options) warmUp() time.Duration {
	switch {
	case o.soak > 0:
		return 2 * time.Minute
	case o.quick:
		return 3 * time.Second
	}
	return 5 * time.Second
}

func (o options) window() time.Duration {
	switch {
	case o.soak > 0:
		return o.soak
	case o.quick:
		return 5 * time.Second
	}
	return 20 * time.Second
}
