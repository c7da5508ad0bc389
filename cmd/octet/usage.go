package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// flagError says in words what is wrong with a flag.
func flagError(cmd *cobra.Command, err error) error {
	var bad *pflag.InvalidValueError
	var unknown *pflag.NotExistError
	switch {
	case errors.As(err, &bad):
		return fmt.Errorf("--%s: %w", bad.GetFlag().Name, valueError(bad.GetFlag(), bad.GetValue(), bad.Unwrap()))
	case errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() != "":
		return fmt.Errorf("unknown flag -%s: %s --help lists the flags; an argument that begins with - goes behind --",
			unknown.GetSpecifiedShortnames(), cmd.CommandPath())
	case errors.As(err, &unknown):
		return fmt.Errorf("unknown flag --%s: %s --help lists the flags", unknown.GetSpecifiedName(), cmd.CommandPath())
	}
	return err
}

// usageArgs makes a wrong number of arguments a usage error in every command, which
// says what the command takes.
func usageArgs(cmd *cobra.Command) {
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if check(cmd, args) == nil {
				return nil
			}
			if cmd.HasAvailableSubCommands() {
				return usagef("unknown command %q: %s --help lists the commands", args[0], cmd.CommandPath())
			}
			return usagef("wrong number of arguments, %d: write %s", len(args), cmd.UseLine())
		}
	}
	for _, sub := range cmd.Commands() {
		usageArgs(sub)
	}
}

// newHelp is octet help COMMAND, which fails where there is no such command.
func newHelp() *cobra.Command {
	return &cobra.Command{
		Use:     "help [COMMAND]",
		Short:   "Say what a command does, with an example",
		Example: "  octet help generate\n  octet help bench allreduce",
		RunE: func(cmd *cobra.Command, args []string) error {
			target, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return usagef("unknown command %q: octet --help lists the commands", args[len(args)-max(len(rest), 1)])
			}
			target.InitDefaultHelpFlag()
			return target.Help()
		},
	}
}
