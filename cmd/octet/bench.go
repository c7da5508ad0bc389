package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/octet-run/octet/actors"
	"github.com/octet-run/octet/actors/board"
)

func newBench() *cobra.Command {
	bench := &cobra.Command{
		Use:   "bench",
		Short: "Measure this machine, each figure beside its floor or its peer",
		Example: "  octet bench round --ranks 8\n" +
			"  octet bench allreduce --ranks 8 --sizes 1KiB,64KiB,1MiB\n" +
			"  octet bench decode --speculate off,eagle3,auto",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	bench.AddCommand(newBenchRound(), newBenchAllreduce(), newBenchTorture(), newBenchLoss(), newBenchDecode(), newBenchVerify(), newBenchCheckpoint(), newBenchLoad())
	return bench
}

func newBenchRound() *cobra.Command {
	var ranks, rounds int
	cmd := &cobra.Command{
		Use:   "round",
		Short: "Time a round without compute, beside the least that any such exchange takes here",
		Long: `Times a round that computes nothing, from its publication until every rank has answered, and beside it
the bare exchange of the same number of processes by futexes. The ranks of both are bound to a processor each,
in turn, and so is the coordinator's thread.`,
		Example: "  octet bench round --ranks 8",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case ranks < 1 || ranks > board.MaxRanks:
				return usagef("--ranks %d: a round can have 1 to %d ranks", ranks, board.MaxRanks)
			case rounds < 1:
				return usagef("--rounds %d: time at least one round", rounds)
			}
			exe, err := os.Executable()
			if err != nil {
				return err
			}
			cpus, err := allowedCPUs()
			if err != nil {
				return err
			}
			over := busy(cmd, "timing rounds")
			result, err := actors.BenchRound(cmd.Context(), actors.BenchConfig{
				Ranks: ranks, Rounds: rounds, CPUs: cpus,
				Launcher: actors.Processes{Command: func(_ int, spec string) []string {
					return []string{exe, "rank", "--inherit", spec}
				}},
			})
			over()
			if err != nil {
				return interrupted(cmd.Context(), err)
			}
			return printRoundBench(cmd, result)
		},
	}
	cmd.Flags().IntVar(&ranks, "ranks", 8, "number of rank processes, 1 to 64")
	cmd.Flags().IntVar(&rounds, "rounds", 2000, "rounds to time")
	return cmd
}

func printRoundBench(cmd *cobra.Command, r actors.BenchResult) error {
	micros := func(ns int64) float64 { return float64(ns) / 1e3 }
	row := map[string]any{
		"ranks": r.Ranks, "rounds": r.Rounds,
		"p50_us": micros(int64(r.P50)), "p99_us": micros(int64(r.P99)),
		"floor_p50_us": micros(int64(r.FloorP50)), "floor_p99_us": micros(int64(r.FloorP99)),
		"ratio": float64(r.P50) / float64(max(r.FloorP50, 1)),
	}
	if wantJSON(cmd) {
		return printJSON(cmd, map[string]any{"rows": []any{row}})
	}
	fmt.Fprintf(cmd.OutOrStdout(), "ranks %d  round p50 %.1f us, p99 %.1f us  floor p50 %.1f us, p99 %.1f us  ratio %.2f\n",
		r.Ranks, row["p50_us"], row["p99_us"], row["floor_p50_us"], row["floor_p99_us"], row["ratio"])
	return nil
}
