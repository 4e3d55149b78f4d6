package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"steelyard/e2e/bench/command"
	"steelyard/e2e/bench/placement/report"
)

func main() { command.Main(newCommand()) }

// newCommand reads the flags over the defaults, or over those of --quick.
func newCommand() *cobra.Command {
	given, d := Default(), Default()
	var quick bool
	var file, out string
	c := &cobra.Command{
		Use:   "llm",
		Short: "Measure on real Envoys how soon requests to language models get their first token",
	}
	s := c.Flags()
	s.BoolVar(&quick, "quick", false, "two minutes, wide intervals")
	s.StringSliceVar(&given.Policies, "policies", d.Policies, "rows to run, of "+strings.Join(names(), ","))
	s.IntVar(&given.Envoys, "envoys", d.Envoys, "Envoys of a row")
	s.IntVar(&given.Workers, "workers", d.Workers, "workers of each Envoy")
	s.IntVar(&given.Engines, "engines", d.Engines, "emulated engines of a row")
	s.IntVar(&given.Engine.KVTokens, "kv", d.Engine.KVTokens, "tokens of an engine's KV cache")
	s.IntVar(&given.Engine.MaxSequences, "sequences", d.Engine.MaxSequences, "requests that an engine runs at once")
	s.BoolVar(&given.Mixed, "mixed", false, "every third engine is half as fast")
	s.Float64Var(&given.Load, "load", d.Load, "offered work, as a share of what the engines can do")
	s.StringVar(&file, "trace", "",
		"file with a trace, as for steelyard simulate --trace (default: Azure's conversations of 2023)")
	s.Float64Var(&given.From, "from", d.From,
		"where in the trace the requests begin, as a share of it; it restarts when it ends")
	s.IntVar(&given.Burst, "burst", d.Burst, "requests that arrive at the same moment")
	s.BoolVar(&given.Chunked, "chunked", false, "bodies come without a content-length")
	s.BoolVar(&given.Cached, "conversations", false,
		"engines with a prefix cache, and conversations that share beginnings, made by the figures of a public trace")
	s.IntVar(&given.Requests, "requests", d.Requests, "requests that count, for each row")
	s.DurationVar(&given.WarmUp, "warm-up", d.WarmUp, "requests that are sent first and do not count")
	s.Uint64Var(&given.Seed, "seed", d.Seed, "of sizes of bodies and of choices by chance")
	s.StringVar(&out, "out", "bench", "folder for the results")
	s.StringVar(&given.Place.Binary, "steelyard", "", "the binary to measure (default: built from this checkout)")
	c.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		o := given
		if o.Cached {
			o.converse(file == "")
			if !s.Changed("requests") {
				o.Requests = conversationRequests
			}
		}
		if quick {
			q := Quick()
			o.Attempts = q.Attempts
			for _, f := range []struct {
				name string
				take func()
			}{
				{"requests", func() { o.Requests = q.Requests }},
				{"warm-up", func() { o.WarmUp = q.WarmUp }},
				{"from", func() { o.From = q.From }},
			} {
				if !s.Changed(f.name) {
					f.take()
				}
			}
		}
		if file != "" {
			if o.Trace, err = readTrace(file); err != nil {
				return fmt.Errorf("--trace: %w", err)
			}
		}
		return o.publish(cmd.Context(), out)
	}
	return c
}

// publish measures, prints the document and writes its files.
func (o Options) publish(ctx context.Context, out string) error {
	return command.InFolder("llm", func(dir string) error {
		o.Log, o.Place.Dir = os.Stderr, dir
		d, err := o.measureAll(ctx)
		if err != nil {
			return err
		}
		return report.Publish("llm", out, d, d.Valid, d.WritePlot)
	})
}
