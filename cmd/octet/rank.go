package main

import (
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"github.com/octet-run/octet/actors"
	"github.com/octet-run/octet/rank"
)

// newRank is the life of a rank process. The supervisor starts it; a person has
// no use for it.
func newRank() *cobra.Command {
	var spec string
	cmd := &cobra.Command{
		Use:    "rank",
		Short:  "Run one rank of a group (started by the supervisor)",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if spec == "" {
				return usagef("octet rank is started by octet serve or octet generate, not by hand")
			}
			// Ctrl-C on a terminal, and its end, reach every process. The supervisor decides.
			signal.Ignore(os.Interrupt, syscall.SIGHUP)
			in, err := actors.Inherit(spec)
			if err != nil {
				return err
			}
			defer in.Close()
			if in.Role != "" {
				return actors.RunBenchRank(cmd.Context(), in)
			}
			err = actors.RunRank(cmd.Context(), in, rank.NewMember(in), zap.NewNop())
			if code := actors.ExitCode(err); code != exitOK {
				return exitError{err, code}
			}
			return nil
		},
	}
	cmd.AddCommand(newRankAllreduce(), newRankTune(), newRankTorture(), newRankLoss(), newRankDevices(), newRankTelemetry())
	cmd.Flags().StringVar(&spec, "inherit", "", "what the supervisor handed over")
	return cmd
}
