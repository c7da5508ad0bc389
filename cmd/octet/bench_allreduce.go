package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/octet-run/octet/collectives"
	"github.com/octet-run/octet/collectives/topology"
	"github.com/octet-run/octet/collectives/transport"
)

// allreduceSettings are the flags of bench allreduce.
type allreduceSettings struct {
	ranks, iterations, rounds int
	hidden                    int
	sizes, algorithms         string
	backend, peer             string
	fused                     bool
}

func newBenchAllreduce() *cobra.Command {
	var s allreduceSettings
	cmd := &cobra.Command{
		Use:   "allreduce",
		Short: "Verify, then time the all-reduce among processes of this machine",
		Long: "Every result is held against the sum along the fixed tree before anything is timed. Contenders take turns.\n" +
			"The floor is one processor's time to read every rank's payload and write the sum, plus one futex round.",
		Example: "  octet bench allreduce --ranks 8 --sizes 1KiB,64KiB,1MiB\n" +
			"  octet bench allreduce --ranks 2 --algorithms all --peer mpi",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return benchAllreduce(cmd, &s) },
	}
	flags := cmd.Flags()
	flags.IntVar(&s.ranks, "ranks", 8, "number of rank processes, 1 to 8")
	flags.StringVar(&s.sizes, "sizes", "1KiB,8KiB,64KiB,256KiB,1MiB", "payloads per rank")
	flags.StringVar(&s.algorithms, "algorithms", "auto", "auto, all, or names: "+strings.Join(algorithmNames(), ", "))
	flags.StringVar(&s.backend, "backend", "auto", "auto or cpu")
	flags.StringVar(&s.peer, "peer", "", "mpi: time OpenMPI in the same run, where it is installed")
	flags.BoolVar(&s.fused, "fused", false, "also time all-reduce + residual + RMSNorm")
	flags.IntVar(&s.hidden, "hidden", 4096, "row width of the fused form, about")
	flags.IntVar(&s.iterations, "iterations", 300, "operations timed at each size")
	flags.IntVar(&s.rounds, "rounds", 3, "how often each contender is started")
	return cmd
}

func algorithmNames() []string {
	var names []string
	for _, a := range collectives.Algorithms() {
		names = append(names, a.Name)
	}
	return names
}

func benchAllreduce(cmd *cobra.Command, s *allreduceSettings) error {
	if s.backend != "auto" && s.backend != "cpu" {
		return refusedError{fmt.Errorf("--backend %s: this build reduces on the CPU only", s.backend)}
	}
	switch {
	case s.ranks < 1 || s.ranks > transport.MaxRanks:
		return usagef("--ranks %d: a group has 1 to %d ranks", s.ranks, transport.MaxRanks)
	case s.iterations < 1 || s.rounds < 1 || s.hidden < 1:
		return usagef("--iterations, --rounds and --hidden must be at least 1")
	}
	payloads, err := s.payloads()
	if err != nil {
		return err
	}
	contenders, err := s.contenders(payloads)
	if err != nil {
		return err
	}
	peers, done, err := mpiPeers(cmd.Context(), s.peer)
	if err != nil {
		return err
	}
	defer done()
	var timings []collectives.Timing
	for i, contender := range contenders {
		bench := collectives.Bench{RankBench: contender, Ranks: s.ranks, Rounds: s.rounds, Command: rankBenchCommand(contender)}
		if i == 0 {
			bench.Peers = peers
		}
		over := busy(cmd, "timing "+contender.Name)
		rows, err := bench.Run(cmd.Context())
		over()
		if err != nil {
			return interrupted(cmd.Context(), err)
		}
		timings = append(timings, rows...)
	}
	return printAllreduce(cmd, s.ranks, timings)
}

func (s *allreduceSettings) payloads() ([]collectives.Payload, error) {
	var payloads []collectives.Payload
	for _, text := range strings.Split(s.sizes, ",") {
		bytes, err := parseBytes(strings.TrimSpace(text))
		if err != nil {
			return nil, fmt.Errorf("--sizes: %w", err)
		}
		if bytes%4 != 0 || bytes > 1<<28 {
			return nil, usagef("--sizes: %s is not a whole number of float32 values up to 256 MiB", text)
		}
		payloads = append(payloads, collectives.Payload{Rows: 1, Width: int(bytes / 4)})
		if s.fused {
			payloads = append(payloads, fusedPayload(int(bytes/4), s.hidden))
		}
	}
	return payloads, nil
}

// fusedPayload is so many elements as rows of about hidden. The residual is the
// group's own, as in a verify pass.
func fusedPayload(elements, hidden int) collectives.Payload {
	rows := max(1, (elements+hidden/2)/hidden)
	for elements%rows != 0 {
		rows++
	}
	return collectives.Payload{Rows: rows, Width: elements / rows, Fused: true, CommonResidual: true}
}

// contenders is one bench per plan: the default one, or one that has a single
// algorithm.
func (s *allreduceSettings) contenders(payloads []collectives.Payload) ([]collectives.RankBench, error) {
	allowed, err := allowedCPUs()
	if err != nil {
		return nil, err
	}
	base := collectives.RankBench{
		Name: "auto", Payloads: payloads, Iterations: s.iterations, Dedicated: len(allowed) >= s.ranks, Pin: true, Floor: true,
	}
	if s.algorithms == "auto" {
		return []collectives.RankBench{base}, nil
	}
	names := strings.Split(s.algorithms, ",")
	if s.algorithms == "all" {
		names = algorithmNames()
	}
	shape := collectives.Shape{Ranks: s.ranks, Coherent: true}
	var list []collectives.RankBench
	for _, name := range names {
		algorithm, err := collectives.Find(name)
		if err != nil {
			return nil, usageError{err}
		}
		one := base
		one.Name, one.Floor = name, len(list) == 0
		one.Plan = collectives.Plan{
			Version: collectives.PlanVersion, Shape: shape, AllowInexact: true,
			Choices: []collectives.Choice{{Algorithm: name, Why: "asked for"}, {Algorithm: name, Fused: true, Why: "asked for"}},
		}
		one.Payloads = nil
		for _, p := range payloads {
			if algorithm.Admits(shape, p) == nil {
				one.Payloads = append(one.Payloads, p)
			}
		}
		if len(one.Payloads) > 0 {
			list = append(list, one)
		}
	}
	if len(list) == 0 {
		return nil, refusedError{fmt.Errorf("none of the algorithms %s admits %d ranks at these sizes", s.algorithms, s.ranks)}
	}
	return list, nil
}

// mpiPeers compiles the MPI contender where one was asked for.
func mpiPeers(ctx context.Context, peer string) (peers []collectives.MPIPeer, done func(), err error) {
	switch peer {
	case "":
		return nil, func() {}, nil
	case "mpi":
	default:
		return nil, nil, usagef("--peer %q: the peer that can be had is mpi", peer)
	}
	dir, err := os.MkdirTemp("", "octet-mpi-")
	if err != nil {
		return nil, nil, err
	}
	done = func() { _ = os.RemoveAll(dir) }
	if peers, err = collectives.MPIPeers(ctx, dir); err != nil {
		done()
		return nil, nil, refusedError{err}
	}
	return peers, done, nil
}

// rankBenchCommand starts this program again as a rank of the bench.
func rankBenchCommand(b collectives.RankBench) func(ctx context.Context, rank int) *exec.Cmd {
	return func(ctx context.Context, rank int) *exec.Cmd {
		exe, err := os.Executable()
		encoded, jerr := json.Marshal(b)
		if err != nil || jerr != nil {
			exe = "" // Run reports that the process cannot be started
		}
		return exec.CommandContext(ctx, exe, "rank", "allreduce", strconv.Itoa(rank), string(encoded))
	}
}

// newRankAllreduce is a rank process of bench allreduce.
func newRankAllreduce() *cobra.Command {
	return newRankMeasurement("allreduce", func(b collectives.RankBench, group *transport.Group, rank int) error {
		timings, err := b.Run(group, rank)
		if err != nil || rank != 0 {
			return err
		}
		return json.NewEncoder(os.Stdout).Encode(timings)
	})
}

func printAllreduce(cmd *cobra.Command, ranks int, timings []collectives.Timing) error {
	if wantJSON(cmd) {
		box, err := topology.Discover("/sys")
		if err != nil {
			return err
		}
		rows := []map[string]any{}
		for _, t := range timings {
			rows = append(rows, map[string]any{
				"algorithm": t.Name, "bytes": t.Bytes, "ranks": ranks, "fused": t.Fused,
				"median_us": t.Median.Seconds() * 1e6, "p99_us": t.P99.Seconds() * 1e6, "verified": true,
			})
		}
		return printJSON(cmd, map[string]any{"rows": rows, "box": box})
	}
	table := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "ALGORITHM\tBYTES\tFUSED\tMEDIAN us\tP99 us")
	for _, t := range timings {
		fused := ""
		if t.Fused {
			fused = "yes"
		}
		fmt.Fprintf(table, "%s\t%d\t%s\t%.1f\t%.1f\n", t.Name, t.Bytes, fused, t.Median.Seconds()*1e6, t.P99.Seconds()*1e6)
	}
	return table.Flush()
}
