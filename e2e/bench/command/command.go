// Package command is what the commands of the benches have in common.
package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// Main runs a command until it or a signal ends it. The error of one that fails is printed, with its exit status.
func Main(c *cobra.Command) {
	c.Args, c.SilenceUsage, c.SilenceErrors = cobra.NoArgs, true, true
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := c.ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", c.Name(), err)
		os.Exit(1)
	}
}

// InFolder gives a bench a folder for the files of its processes.
func InFolder(name string, run func(dir string) error) error {
	dir, err := os.MkdirTemp("", "steelyard-"+name+"-")
	if err != nil {
		return err
	}
	return errors.Join(run(dir), os.RemoveAll(dir))
}
