package main

import (
	"github.com/spf13/cobra"

	"steelyard/controlplane/config"
)

func schemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON schema of the configuration, for editors",
		Long: `Print the JSON schema of the configuration. With it, an editor with a YAML language
server completes keys and shows what they mean. Name it in the configuration's first line:
  # yaml-language-server: $schema=steelyard.schema.json
steelyard check finds more, such as values that contradict each other.`,
		Example: `  steelyard schema > steelyard.schema.json`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := cmd.OutOrStdout().Write(config.Schema())
			return err
		},
	}
}
