package main

import (
	"fmt"
	"os"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/octet-run/octet/collectives"
	"github.com/octet-run/octet/collectives/transport"
)

func newBenchLoss() *cobra.Command {
	var ranks, victims int
	var deadline time.Duration
	cmd := &cobra.Command{
		Use:   "loss",
		Short: "Kill and stop ranks in every phase of every all-reduce, and time until all others can name them",
		Long: "Of a rank that is killed, the time from the blow until each other rank has the typed error that names it; of one\n" +
			"that is stopped, from the deadline of the wait. It fails if any rank names another, or nobody.",
		Example: "  octet bench loss\n  octet bench loss --ranks 4 --victims 1",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if ranks < 2 || ranks > 8 || victims < 0 || victims > ranks || deadline <= 0 {
				return usagef("--ranks must be 2 to 8, --victims 0 to as many, and --deadline more than 0")
			}
			bench := collectives.LossBench{
				Ranks: ranks, Victims: victims, Deadline: deadline,
				Command: func(l collectives.RankLoss) collectives.RankCommand { return rankCommand("loss", l) },
			}
			over := busy(cmd, "killing and stopping ranks")
			timings, err := bench.Run(cmd.Context())
			over()
			if err != nil {
				return interrupted(cmd.Context(), err)
			}
			return printLosses(cmd, ranks, timings)
		},
	}
	cmd.Flags().IntVar(&ranks, "ranks", 8, "number of rank processes, 2 to 8")
	cmd.Flags().IntVar(&victims, "victims", 0, "ranks that are struck in turn (default: all)")
	cmd.Flags().DurationVar(&deadline, "deadline", 250*time.Millisecond, "deadline of a wait")
	return cmd
}

func newRankLoss() *cobra.Command {
	return newRankMeasurement("loss", func(l collectives.RankLoss, group *transport.Group, rank int) error {
		return l.Run(group, rank, os.Stdout)
	})
}

func newRankTorture() *cobra.Command {
	return newRankMeasurement("torture", collectives.RankTorture.Run)
}

func printLosses(cmd *cobra.Command, ranks int, timings []collectives.LossTiming) error {
	if wantJSON(cmd) {
		return printJSON(cmd, map[string]any{"ranks": ranks, "rows": timings})
	}
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ALGORITHM\tA RANK IS\tSTRIKES\tSURVIVORS, ALL NAMED IT\tP50 ms\tP99 ms\tMAX ms\tNOTICED P50\tMAX")
	for _, t := range timings {
		what := "killed "
		if t.Stopped {
			what = "stopped "
		}
		ms := func(d time.Duration) float64 { return d.Seconds() * 1e3 }
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%.1f\t%.1f\t%.1f\t", t.Algorithm, what+string(t.Moment), t.Strikes, t.Survivors, ms(t.P50), ms(t.P99), ms(t.Max))
		if t.Stopped {
			fmt.Fprintln(w, "-\t-")
			continue
		}
		fmt.Fprintf(w, "%.1f\t%.1f\n", ms(t.NoticedP50), ms(t.NoticedMax))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(cmd.OutOrStdout(), "\nkilled: from the blow, noticed: until the parent knew; stopped: from the deadline")
	return nil
}
