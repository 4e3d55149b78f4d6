package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"steelyard/cmd/internal/console"
	"steelyard/internal/api"
	"steelyard/internal/credentials"
)

// asking holds the options of all commands that query a running Steelyard.
type asking struct {
	console.Options
	format string
	width  int
}

// flags adds the options of all commands that ask.
func (a *asking) flags(c *cobra.Command) *cobra.Command {
	f := c.Flags()
	f.StringArrayVar(&a.Admins, "admin", nil, "URL of Steelyard's admin listener; repeat for more replicas, of which "+
		"the first that answers is asked (default: "+console.EnvAdmin+", or "+console.DefaultAdmin+")")
	f.StringVar(&a.TokenFile, "token-file", "", "file with a token of admin.tokens_file, or of kubectl create token "+
		"(default: "+console.EnvToken+", or the file in "+console.EnvTokenFile+")")
	clientTLSFlags(f, &a.TLS)
	f.Lookup("ca-file").Usage = "with https: authorities to trust, PEM (default: " + console.EnvCAFile +
		", or the system's)"
	f.StringVarP(&a.format, "output", "o", console.FormatTable, "form of the output: table, json or yaml")
	completes(c, "output", console.Formats()...)
	return c
}

// clientTLSFlags adds the options of how to connect with TLS.
func clientTLSFlags(f *pflag.FlagSet, c *credentials.Client) {
	f.StringVar(&c.CAFile, "ca-file", "", "with https: authorities to trust, PEM (default: the system's)")
	f.StringVar(&c.CertFile, "cert-file", "", "with https: client certificate, PEM")
	f.StringVar(&c.KeyFile, "key-file", "", "with https: key of that certificate, PEM")
	f.StringVar(&c.ServerName, "server-name", "", "with https: name in the server's certificate (default: the host)")
}

// client returns a client and an output for the options. A wrong option is a usage error.
func (a *asking) client(cmd *cobra.Command) (*console.Client, console.Output, error) {
	if err := oneOf("output", a.format, console.Formats()...); err != nil {
		return nil, console.Output{}, err
	}
	a.Notes = cmd.ErrOrStderr()
	c, err := console.NewClient(cmd.Context(), a.Options)
	if errors.Is(err, console.ErrOptions) {
		err = usageError{err}
	}
	w := cmd.OutOrStdout()
	return c, console.Output{W: w, Format: a.format, Width: cmp.Or(a.width, console.WidthOf(w))}, err
}

// run is the RunE of a command that asks.
func (a *asking) run(f func(ctx context.Context, c *console.Client, out console.Output, args []string) error,
) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		c, out, err := a.client(cmd)
		if err != nil {
			return err
		}
		return f(cmd.Context(), c, out, args)
	}
}

// notNegative refuses a number below 0.
func notNegative(option string, value int) error {
	if value < 0 {
		return usagef("--%s %d: write 0 or more", option, value)
	}
	return nil
}

// completing is how long the completion of a name waits for Steelyard.
const completing = 2 * time.Second

// names completes the cluster and then the endpoint of a command line.
func (a *asking) names(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(context.Background(), completing)
	defer cancel()
	c, err := console.NewClient(ctx, a.Options)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var names []string
	switch n := strings.Count(cmd.Use, " "); {
	case len(args) == 0:
		names, err = c.Clusters(ctx)
	case len(args) == 1 && n > 1:
		names, err = c.Endpoints(ctx, args[0])
	}
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

func statusCommand() *cobra.Command {
	var a asking
	var ignoreWarnings bool
	c := &cobra.Command{
		Use:   "status",
		Short: "Show clusters, every Envoy with its version and lag, overrides and incidents",
		Long: `Show clusters, Envoys with their lag, drains and pins, and incidents: since when,
why, whether Steelyard is the cause, and what to do.

The exit status is 1 if something is wrong: an incident, an Envoy that refuses, is
behind or asks for a cluster that does not exist, a configuration that was refused, or
a process that is not ready.`,
		Example: `  steelyard status
  steelyard status --admin https://steelyard.example:19000 --token-file token
  steelyard status -o json | jq '.envoys[] | select(.state != "follows")'`,
		Args: cobra.NoArgs,
		RunE: a.run(func(ctx context.Context, c *console.Client, out console.Output, _ []string) error {
			s, err := c.Status(ctx)
			if err != nil {
				return err
			}
			if err := s.Print(out, c.String()); err != nil {
				return err
			}
			if !s.Well(ignoreWarnings) {
				return errNotWell
			}
			return nil
		}),
	}
	c.Flags().BoolVar(&ignoreWarnings, "ignore-warnings", false, "exit with 0 if there are only warnings")
	return a.flags(c)
}

func topCommand() *cobra.Command {
	var a asking
	var interval time.Duration
	var count, limit int
	c := &cobra.Command{
		Use:   "top [CLUSTER]",
		Short: "Show the endpoints of a cluster, live, the worst first",
		Long: `Show the endpoints of a cluster, the worst first, until Ctrl-C. Without CLUSTER it
is the first one. The columns are the part of the requests that each really got in the
last minute and in ten seconds, its part of the capacity, its load (requests for each
slot, or seconds of work), requests in flight, the time to the first token or the last
byte, failed requests, memory, and the age of the oldest number.`,
		Example: `  steelyard top llama
  steelyard top llama --count 1 -o json`,
		Args: cobra.MaximumNArgs(1),
		RunE: a.run(func(_ context.Context, c *console.Client, out console.Output, args []string) error {
			if interval < 100*time.Millisecond {
				return usagef("--interval %v: write at least 100ms", interval)
			}
			if err := cmp.Or(notNegative("count", count), notNegative("limit", limit)); err != nil {
				return err
			}
			ctx := untilSignal(os.Interrupt, syscall.SIGTERM)
			if len(args) == 0 {
				first, err := c.FirstCluster(ctx)
				if err != nil {
					return err
				}
				args = []string{first}
			}
			return console.Every(ctx, interval, count, func() error {
				v, err := c.Cluster(ctx, args[0], limit)
				if err != nil {
					return err
				}
				if out.Width > 0 && count != 1 && out.Format == console.FormatTable {
					fmt.Fprint(out.W, "\x1b[H\x1b[J") // home, and clears the screen
				}
				return console.PrintCluster(out, v, time.Now())
			})
		}),
		ValidArgsFunction: a.names,
	}
	c.Flags().DurationVar(&interval, "interval", time.Second, "time between two updates")
	c.Flags().IntVar(&count, "count", 0, "number of updates (default: until Ctrl-C)")
	c.Flags().IntVar(&limit, "limit", 200, "number of endpoints, the worst, 0 for all")
	return a.flags(c)
}

func explainCommand() *cobra.Command {
	var a asking
	var at string
	c := &cobra.Command{
		Use:   "explain CLUSTER ENDPOINT",
		Short: "Explain why an endpoint has its share, now or some minutes ago",
		Long: `Explain why an endpoint has its share: first in a sentence, then step by step, from the
reports about it to the weight that the Envoys get. --at explains a decision of up to a
quarter of an hour ago. ENDPOINT is HOST:PORT, or the name of a Pod, or its beginning.`,
		Example: `  steelyard explain llama 10.0.0.1:8000
  steelyard explain llama 10.0.0.1:8000 --at 5m
  steelyard explain llama 10.0.0.1:8000 --at 2026-03-14T03:12:40Z`,
		Args: cobra.ExactArgs(2),
		RunE: a.run(func(ctx context.Context, c *console.Client, out console.Output, args []string) error {
			if err := checkAt(at); err != nil {
				return err
			}
			x, err := c.Explain(ctx, args[0], args[1], at)
			if err != nil {
				return err
			}
			return x.Print(out)
		}),
		ValidArgsFunction: a.names,
	}
	c.Flags().StringVar(&at, "at", "", "when: a time (RFC 3339) or how long ago, such as 5m (default: now)")
	return a.flags(c)
}

// checkAt refuses what is neither a time nor how long ago.
func checkAt(at string) error {
	if at == "" {
		return nil
	}
	if ago, err := time.ParseDuration(at); err == nil && ago >= 0 {
		return nil
	}
	if _, err := time.Parse(time.RFC3339, at); err != nil {
		return usagef("--at %q: write a time such as 2026-03-14T12:00:00Z, or 5m for that long ago", at)
	}
	return nil
}

func eventsCommand() *cobra.Command {
	var a asking
	var q console.EventQuery
	var follow bool
	c := &cobra.Command{
		Use:   "events",
		Short: "Show what changed in the last hour",
		Long: `Show what changed in the last hour: configurations, endpoints, flags, sources, Envoys,
and what operators did. Times are UTC.`,
		Example: `  steelyard events
  steelyard events --cluster llama --kind flagged --kind unflagged --follow`,
		Args: cobra.NoArgs,
		RunE: a.run(func(ctx context.Context, c *console.Client, out console.Output, _ []string) error {
			if err := notNegative("limit", q.Limit); err != nil {
				return err
			}
			for _, k := range q.Kinds {
				if err := oneOf("kind", k, eventKinds()...); err != nil {
					return err
				}
			}
			events, err := c.Events(ctx, q)
			if err != nil {
				return err
			}
			if len(events) == 0 && out.Format == console.FormatTable && !follow {
				fmt.Fprintln(out.W, "Nothing changed in the last hour.")
				return nil
			}
			if err := console.PrintEvents(out, events); err != nil || !follow {
				return err
			}
			f := console.Follower{Client: c, Query: q, Out: out, Notes: os.Stderr}
			if len(events) > 0 {
				last := events[len(events)-1]
				f.Query.Since, f.Latest = last.ID, last.At
			}
			return f.Run(untilSignal(os.Interrupt, syscall.SIGTERM), time.Second)
		}),
	}
	f := c.Flags()
	f.StringVar(&q.Cluster, "cluster", "", "only events of this cluster")
	f.StringArrayVar(&q.Kinds, "kind", nil, "only events of this kind; repeat for more")
	f.IntVar(&q.Limit, "limit", 0, "number of events, the latest (default: all)")
	f.Uint64Var(&q.Since, "after", 0, "only events after the one with this id (id in -o json)")
	f.BoolVarP(&follow, "follow", "f", false, "keep printing new events until Ctrl-C, even if Steelyard restarts")
	completes(c, "kind", eventKinds()...)
	_ = c.RegisterFlagCompletionFunc("cluster", a.names)
	return a.flags(c)
}

func eventKinds() []string {
	var out []string
	for _, k := range api.EventKinds() {
		out = append(out, string(k))
	}
	return out
}
