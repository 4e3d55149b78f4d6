package main

import (
	"github.com/spf13/cobra"

	"steelyard/controlplane/config"
)

func schemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON schema of the configuration, for editors",
		Long: `Print the JSON schema of the configuration. Editors with a YAML language server
complete keys and values by it, and show what each key means. A first line
  # yaml-language-server: $schema=steelyard.schema.json
in the configuration names the file. The schema has keys, types, bounds and words;
steelyard check finds more, such as values that contradict each other.`,
		Example: `  steelyard schema > steelyard.schema.json`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := cmd.OutOrStdout().Write(config.Schema())
			return err
		},
	}
}
