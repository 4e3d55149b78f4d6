package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"steelyard/cmd/internal/console"
	"steelyard/controlplane/config"
	"steelyard/controlplane/discovery/kubernetes"
	"steelyard/controlplane/override"
	"steelyard/internal/api"
)

func diffCommand() *cobra.Command {
	var a asking
	c := &cobra.Command{
		Use:   "diff CONFIG",
		Short: "Show what a new configuration would change, without changing anything",
		Long: `Show what a new configuration would change: keys, clusters, endpoints, and each
endpoint's part of the pool's capacity before and after. For that, the law runs once
with the current reports; nothing is pushed. The part of the capacity is the share of
the requests that an endpoint gets in the long run while the pool is busy. SERVED is
what it got in the last minute.

CONFIG may be - for standard input. Relative paths then start at the folder of the
running configuration.`,
		Example: `  steelyard diff new.yaml
  sed 's/capacity: 4/capacity: 8/' steelyard.yaml | steelyard diff -`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, out, err := a.client(cmd)
			if err != nil {
				return err
			}
			name, text, err := readConfig(cmd, args[0])
			if err != nil {
				return err
			}
			if _, err := config.Parse(name, text); err != nil {
				return err // with the place of each mistake
			}
			if name == stdinName {
				// It stands for the file that is followed, so its paths are relative to the folder of that one.
				if name, err = c.ConfigFile(cmd.Context()); err != nil {
					return err
				}
			}
			d, err := c.Diff(cmd.Context(), name, text)
			if err != nil {
				return err
			}
			return console.PrintDiff(out, d)
		},
	}
	return a.flags(c)
}

// overriding is what drain and pin have in common.
type overriding struct {
	asking
	change api.OverrideRequest
	length time.Duration
}

func (o *overriding) flags(c *cobra.Command) *cobra.Command {
	c.Flags().DurationVar(&o.length, "for", time.Hour, "how long it lasts, at most 168h")
	c.Flags().StringVar(&o.change.Reason, "reason", "", "why; everyone sees it")
	return o.asking.flags(c)
}

// override sends the change, unless no Steelyard would do it.
func (o *overriding) override(ctx context.Context, c *console.Client, out console.Output, args []string) error {
	o.change.ForSeconds = api.Seconds(o.length)
	now := time.Now()
	if err := override.Check(api.Override{Kind: o.change.Kind, Share: o.change.Share, Reason: o.change.Reason,
		Since: api.At(now), Until: api.At(now.Add(o.length))}); err != nil {
		return usageError{err}
	}
	done, before, err := c.Override(ctx, args[0], args[1], o.change)
	if err != nil {
		return err
	}
	return console.PrintOverride(out, done, before, kubernetes.OwnPod(ctx, kubernetes.TokenFile).Program())
}

func drainCommand() *cobra.Command {
	var o overriding
	c := &cobra.Command{
		Use:   "drain CLUSTER ENDPOINT",
		Short: "Send an endpoint no new requests for some time",
		Long: `Send an endpoint no new requests for some time. It finishes its old ones. The last
endpoint of a cluster that serves cannot be drained.

The drain ends by itself. Everyone sees it: in steelyard status, on the page, in the
metrics and the events. With Redis it survives a restart.

ENDPOINT is HOST:PORT, or the name of a Pod, or its beginning. This needs a token with the role operate.`,
		Example: `  steelyard drain llama 10.0.0.1:8000 --for 30m --reason "new driver"
  steelyard undrain llama 10.0.0.1:8000`,
		Args: cobra.ExactArgs(2),
		RunE: o.run(func(ctx context.Context, c *console.Client, out console.Output, args []string) error {
			o.change.Kind = api.OverrideDrain
			return o.override(ctx, c, out, args)
		}),
		ValidArgsFunction: o.names,
	}
	return o.flags(c)
}

func pinCommand() *cobra.Command {
	var o overriding
	var share string
	c := &cobra.Command{
		Use:   "pin CLUSTER ENDPOINT",
		Short: "Give an endpoint a fixed share of the requests for some time",
		Long: `Give an endpoint a fixed share of the requests for some time, whatever its load, for
instance to try a new version with a few. The others are filled with the rest. A pin is
stronger than the overload flag, and not in effect while the endpoint stalls or fails.

ENDPOINT is HOST:PORT, or the name of a Pod, or its beginning. This needs a token with the role operate.`,
		Example: `  steelyard pin llama 10.0.0.1:8000 --share 5% --for 30m
  steelyard undrain llama 10.0.0.1:8000`,
		Args: cobra.ExactArgs(2),
		RunE: o.run(func(ctx context.Context, c *console.Client, out console.Output, args []string) error {
			part, err := parsePart(share)
			if err != nil {
				return err
			}
			o.change.Kind, o.change.Share = api.OverridePin, api.Num(part)
			return o.override(ctx, c, out, args)
		}),
		ValidArgsFunction: o.names,
	}
	c.Flags().StringVar(&share, "share", "", "part of the requests: 5% or 0.05 (required)")
	_ = c.MarkFlagRequired("share")
	return o.flags(c)
}

// parsePart reads a part of a whole, as a number or as percent.
func parsePart(text string) (float64, error) {
	digits, isPercent := strings.CutSuffix(text, "%")
	v, err := strconv.ParseFloat(strings.TrimSpace(digits), 64)
	if isPercent {
		v /= 100
	}
	if err != nil || !(v > 0 && v < 1) {
		return 0, usagef("--share %q: write a part of the requests from %v%% to %v%%, such as 5%% or 0.05", text,
			100*override.LeastShare, 100*override.MostShare)
	}
	return v, nil
}

func undrainCommand() *cobra.Command {
	var a asking
	c := &cobra.Command{
		Use:     "undrain CLUSTER ENDPOINT",
		Aliases: []string{"unpin"},
		Short:   "End a drain or a pin",
		Long: "End a drain or a pin. ENDPOINT is HOST:PORT, or the name of a Pod, or its beginning. This\n" +
			"needs a token with the role operate.",
		Example: "  steelyard undrain llama 10.0.0.1:8000",
		Args:    cobra.ExactArgs(2),
		RunE: a.run(func(ctx context.Context, c *console.Client, out console.Output, args []string) error {
			o, err := c.Undo(ctx, args[0], args[1])
			if err != nil {
				return err
			}
			return console.PrintUndone(out, o)
		}),
		ValidArgsFunction: a.names,
	}
	return a.flags(c)
}

func logLevelCommand() *cobra.Command {
	var a asking
	c := &cobra.Command{
		Use:   "log-level [LEVEL]",
		Short: "Show or set the least level that a running Steelyard logs",
		Long: `Show or set the least level that a running Steelyard logs: debug, info, warn or error.
The level lasts until the restart. Setting it needs a token with the role operate.`,
		Example: `  steelyard log-level
  steelyard log-level debug --token-file token`,
		Args:      cobra.MaximumNArgs(1),
		ValidArgs: logLevels,
		RunE: a.run(func(ctx context.Context, c *console.Client, out console.Output, args []string) error {
			if len(args) == 1 {
				if err := oneOf("LEVEL", args[0], logLevels...); err != nil {
					return err
				}
				if err := c.SetLogLevel(ctx, args[0]); err != nil {
					return err
				}
			}
			level, err := c.LogLevel(ctx)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(out.W, level)
			return err
		}),
	}
	return a.flags(c)
}
