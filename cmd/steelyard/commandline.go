package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"steelyard/cmd/internal/simulate"
	"steelyard/internal/spelling"
)

// The exit statuses of all commands.
const (
	exitFailure = 1 // also: what was asked about is not well
	exitUsage   = 2 // a mistake in the command line
)

// A usageError is a mistake in the command line that shows only while a command runs.
type usageError struct{ error }

func (u usageError) Unwrap() error { return u.error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// errNotWell is the end of a command that has printed what is wrong: there is nothing to add.
var errNotWell = errors.New("not well")

// execute runs a command line and returns the exit status. A failure before a command
// starts is a mistake in the command line.
func execute(c *cobra.Command) int {
	began := false
	eachCommand(c, func(sub *cobra.Command) {
		if run := sub.RunE; run != nil && sub != c {
			sub.RunE = func(cmd *cobra.Command, args []string) error {
				began = true
				return run(cmd, args)
			}
		}
	})
	err := c.Execute()
	switch {
	case err == nil || errors.Is(err, context.Canceled):
		return 0
	case errors.Is(err, errNotWell):
		return exitFailure
	}
	sayLast(c.ErrOrStderr(), err)
	if !began || errors.As(err, &usageError{}) || errors.As(err, &simulate.Usage{}) {
		return exitUsage
	}
	return exitFailure
}

func eachCommand(c *cobra.Command, visit func(*cobra.Command)) {
	visit(c)
	for _, sub := range c.Commands() {
		eachCommand(sub, visit)
	}
}

// prepare makes all commands refuse unknown words, and suggest known ones.
func prepare(c *cobra.Command) {
	c.InitDefaultCompletionCmd()
	eachCommand(c, refuseUnknownShell)
	eachCommand(c, func(sub *cobra.Command) {
		sub.SetFlagErrorFunc(unknownFlag)
		if args := sub.Args; args != nil && sub != c {
			sub.Args = func(cmd *cobra.Command, given []string) error {
				err := args(cmd, given)
				switch {
				case err == nil:
					return nil
				case args(cmd, nil) == nil && args(cmd, given[:1]) != nil:
					return fmt.Errorf("there is no argument %q: write steelyard %s", given[0], cmd.Use)
				}
				return fmt.Errorf("%w: write steelyard %s", err, cmd.Use)
			}
		}
		sub.Flags().VisitAll(func(f *pflag.Flag) {
			if _, many := f.Value.(pflag.SliceValue); !many {
				f.Value = &once{Value: f.Value, name: f.Name}
				if f.DefValue == "0s" { // no default, which help does not see through once
					f.DefValue = ""
				}
			}
		})
	})
}

// refuseUnknownShell is for the command completion, which has a command for each shell.
func refuseUnknownShell(c *cobra.Command) {
	if c.Name() != "completion" || !c.HasSubCommands() {
		return
	}
	shells := subcommands(c)
	c.Args = cobra.ArbitraryArgs
	c.RunE = func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return c.Help()
		}
		return oneOf("SHELL", args[0], shells...)
	}
}

// once is an option that has one value: a second one is refused, not taken in place of the first. The same one again is
// none: completion reads a command line twice.
type once struct {
	pflag.Value
	name  string
	given *string
}

func (o *once) Set(text string) error {
	if o.given != nil && *o.given != text {
		return fmt.Errorf("--%s is given twice: write it once", o.name)
	}
	o.given = &text
	err := o.Value.Set(text)
	if form := forms[o.Type()]; err != nil && form != "" {
		return errors.New("write " + form)
	}
	return err
}

// forms are what to write for an option of a type, instead of the message of the parser.
var forms = map[string]string{
	"bool":     "true or false",
	"duration": "a number with its unit, such as 90s, 30m or 72h",
	"int":      "a whole number",
	"uint64":   "a whole number, 0 or more",
}

func unknownCommand(c *cobra.Command, name string) error {
	return fmt.Errorf("unknown command %q%s (steelyard --help lists them)", name,
		spelling.DidYouMean(name, append(subcommands(c), "help", "completion")))
}

func subcommands(c *cobra.Command) (names []string) {
	for _, sub := range c.Commands() {
		names = append(names, sub.Name())
	}
	return names
}

var flagName = regexp.MustCompile(`^unknown flag: --(.*)$`)

// elsewhere has options of the commands that ask a running Steelyard, by the names that such options have elsewhere.
var elsewhere = map[string]string{"server": "admin", "url": "admin", "address": "admin", "addr": "admin",
	"host": "admin", "format": "output", "json": "output"}

func unknownFlag(c *cobra.Command, err error) error {
	m := flagName.FindStringSubmatch(err.Error())
	if m == nil {
		return err
	}
	if name := elsewhere[m[1]]; name != "" && c.Flags().Lookup("token-file") != nil {
		return fmt.Errorf("%w: did you mean --%s?", err, name)
	}
	var names []string
	c.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, "--"+f.Name) })
	return fmt.Errorf("%w%s", err, spelling.DidYouMean("--"+m[1], names))
}

// oneOf refuses a value of an option that is none of its words.
func oneOf(option, value string, words ...string) error {
	if slices.Contains(words, value) {
		return nil
	}
	if option != strings.ToUpper(option) {
		option = "--" + option
	}
	return usagef("%s %q%s: write one of %s", option, value, spelling.DidYouMean(value, words),
		strings.Join(words, ", "))
}

// completes makes the values of an option known to the shell.
func completes(c *cobra.Command, option string, values ...string) {
	_ = c.RegisterFlagCompletionFunc(option, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// text is an error for the user. What has a place in a file begins with it, as editors and terminals expect; all else
// begins with the name of the program.
func text(err error) string {
	if placed.MatchString(err.Error()) {
		return err.Error()
	}
	return "steelyard: " + err.Error()
}

// placed is a text of which every line begins with FILE:LINE:COLUMN.
var placed = regexp.MustCompile(`^(?:[^\n]+:\d+:\d+: [^\n]+(?:\n|$))+$`)

// untilSignal ends at the first of the signals, for a command that has to clean up. A second one ends the process at
// once.
func untilSignal(signals ...os.Signal) context.Context {
	ctx, stop := signal.NotifyContext(context.Background(), signals...)
	context.AfterFunc(ctx, stop)
	return ctx
}

func configFlag(c *cobra.Command, path *string) {
	c.Flags().StringVarP(path, "config", "c", "", "the configuration, a YAML file (required)")
	_ = c.MarkFlagRequired("config")
	_ = c.MarkFlagFilename("config", "yaml", "yml")
}
