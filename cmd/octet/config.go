package main

import (
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"
)

func newConfig() *cobra.Command {
	config := &cobra.Command{
		Use:   "config",
		Short: "Show the settings, and where each value came from",
		Long: `A setting is a flag. Its value is what the command line says, or else OCTET_NAME in the environment, or else
the file that --config names, or else the default.`,
		Example: "  octet config print\n  OCTET_RANKS=4 octet config print generate --config octet.yaml",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	show := &cobra.Command{
		Use:     "print [COMMAND]",
		Short:   "Print every setting of a command (default: serve), its value and where it came from",
		Example: "  octet config print\n  OCTET_RANKS=4 octet config print generate --config octet.yaml",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			target := "serve"
			if len(args) == 1 {
				target = args[0]
			}
			return printConfig(cmd, target)
		},
	}
	config.AddCommand(show)
	return config
}

func printConfig(cmd *cobra.Command, name string) error {
	target, _, err := cmd.Root().Find([]string{name})
	if err != nil || target == cmd.Root() {
		return usageError{fmt.Errorf("%q is not a command", name)}
	}
	path, err := cmd.Flags().GetString("config")
	if err != nil {
		return err
	}
	// The target parses no command line here; it gets this one's --config.
	if err := target.ParseFlags([]string{"--config=" + path}); err != nil {
		return err
	}
	settings, err := loadSettings(target)
	if err != nil {
		return err
	}
	for i, s := range settings {
		if s.Name == "token" && s.Value != "" {
			settings[i].Value = "(hidden)" // what this prints goes into bug reports
		}
	}
	if wantJSON(cmd) {
		return printJSON(cmd, map[string]any{"command": name, "settings": settings})
	}
	table := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "SETTING\tVALUE\tORIGIN")
	for _, s := range settings {
		fmt.Fprintf(table, "%s\t%s\t%s\n", s.Name, s.Value, s.Origin)
	}
	return table.Flush()
}
