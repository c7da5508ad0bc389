package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/octet-run/octet/actors/process"
	"github.com/octet-run/octet/collectives"
	"github.com/octet-run/octet/collectives/transport"
)

func newBenchTorture() *cobra.Command {
	var operations int
	var seed uint64
	cmd := &cobra.Command{
		Use:   "torture",
		Short: "Run random all-reduces among ranks that are stopped and resumed, and check every bit",
		Long: "Form, size and algorithm are random, groups have 2 to 8 ranks and 1 to 8 islands, operation numbers begin near\n" +
			"wrap-around, ranks stall at flags and are stopped anywhere. First the controls: a transport without one of its\n" +
			"guarantees must be caught.",
		Example: "  octet bench torture\n  octet bench torture --operations 100000 --seed 7",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if operations < 1 {
				return usagef("--operations must be positive")
			}
			return benchTorture(cmd, seed, operations)
		},
	}
	cmd.Flags().IntVar(&operations, "operations", 1_000_000, "all-reduces")
	cmd.Flags().Uint64Var(&seed, "seed", 1, "what all that is random comes from, but the times of stops")
	return cmd
}

func benchTorture(cmd *cobra.Command, seed uint64, operations int) error {
	caught := map[collectives.Control]string{}
	t := collectives.Torture{Seed: seed, Operations: operations, Command: func(r collectives.RankTorture, _ int) collectives.RankCommand {
		return rankCommand("torture", r)
	}}
	for _, control := range collectives.Controls() {
		err := t.Caught(cmd.Context(), control)
		if cmd.Context().Err() != nil {
			return interrupted(cmd.Context(), err)
		}
		if err == nil {
			return fmt.Errorf("control %q was not caught: the checks see nothing", control)
		}
		caught[control] = err.Error()
		if !wantJSON(cmd) {
			fmt.Fprintf(cmd.OutOrStdout(), "control %q caught: %v\n", control, err)
		}
	}
	began := time.Now()
	t.Progress = func(done int) {
		if !wantJSON(cmd) && done%100_000 == 0 {
			fmt.Fprintf(cmd.OutOrStdout(), "%d all-reduces, no wrong bit, no hang, %v\n", done, time.Since(began).Round(time.Second))
		}
	}
	if err := t.Run(cmd.Context()); err != nil {
		return interrupted(cmd.Context(), err)
	}
	took := time.Since(began)
	if wantJSON(cmd) {
		return printJSON(cmd, map[string]any{"operations": operations, "seed": seed, "seconds": took.Seconds(), "controls_caught": caught})
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%d all-reduces of seed %d: every bit as the contract says, in %v\n", operations, seed, took.Round(time.Second))
	return nil
}

// rankCommand starts this program again as a rank of a measurement.
func rankCommand(name string, config any) collectives.RankCommand {
	return func(ctx context.Context, rank int) *exec.Cmd {
		exe, err := os.Executable()
		encoded, jerr := json.Marshal(config)
		if err != nil || jerr != nil {
			exe = "" // the launch reports that the process cannot be started
		}
		return exec.CommandContext(ctx, exe, "rank", name, strconv.Itoa(rank), string(encoded))
	}
}

// newRankMeasurement is a rank process of a measurement: octet rank NAME RANK CONFIG.
func newRankMeasurement[C any](name string, run func(C, *transport.Group, int) error) *cobra.Command {
	return &cobra.Command{
		Use: name + " RANK CONFIG", Hidden: true, Args: cobra.ExactArgs(2),
		Short: "Run one rank of a measurement (started by it)",
		RunE: func(_ *cobra.Command, args []string) error {
			rank, err := strconv.Atoi(args[0])
			if err != nil {
				return usagef("%q is not a rank", args[0])
			}
			if _, err := process.Guard(os.Stdin); err != nil { // see collectives.RankCommand
				return err
			}
			var config C
			if err := json.Unmarshal([]byte(args[1]), &config); err != nil {
				return usageError{err}
			}
			group, err := transport.Open(os.NewFile(3, "octet-collectives"))
			if err != nil {
				return err
			}
			defer group.Close()
			return run(config, group, rank)
		},
	}
}
