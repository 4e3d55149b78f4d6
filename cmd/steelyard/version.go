package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	envoybootstrap "steelyard/envoy-bootstrap"
)

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of this program, and of the Envoy that it is tested with",
		Long: `Print the version of this program, and of the Envoy that it is tested with. steelyard
status shows the version of a running Steelyard.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "steelyard %s\nenvoy     %s\ngo        %s %s/%s\n", version,
				envoybootstrap.EnvoyVersion, runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}
