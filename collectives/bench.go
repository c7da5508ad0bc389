package collectives

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Bench times all-reduces among processes, ours and OpenMPI's, taking turns.
type Bench struct {
	RankBench
	Ranks int
	// Rounds is how often each contender is launched. The medians of all rounds are
	// combined by their median.
	Rounds int
	// Command makes the process of one rank. It inherits the group's segment as
	// file descriptor 3, calls RankBench.Run and prints, at rank 0, the timings as
	// one line of JSON.
	Command RankCommand
	// Peers are MPI launches to compare with; see MPIPeers.
	Peers []MPIPeer
}

// Run returns, for each contender and size, the combined timing.
func (b Bench) Run(ctx context.Context) ([]Timing, error) {
	var all []Timing
	for range max(b.Rounds, 1) {
		ours, err := b.runOnce(ctx)
		if err != nil {
			return nil, err
		}
		all = append(all, ours...)
		for _, peer := range b.Peers {
			theirs, err := peer.run(ctx, b.Ranks, b.Iterations, b.Payloads)
			if err != nil {
				return nil, err
			}
			all = append(all, theirs...)
		}
	}
	return combine(all), nil
}

func (b Bench) runOnce(ctx context.Context) ([]Timing, error) {
	var most int
	for _, p := range b.Payloads {
		most = max(most, p.Elements())
	}
	printed, err := RunProcesses(ctx, b.Ranks, most, true, b.Command)
	if err != nil {
		return nil, err
	}
	var timings []Timing
	if err := json.Unmarshal(printed, &timings); err != nil {
		return nil, fmt.Errorf("rank 0 of the benchmark printed %q: %w", printed, err)
	}
	return timings, nil
}

// combine is the median over rounds of each contender's medians at each size.
func combine(all []Timing) []Timing {
	type key struct {
		name   string
		bytes  int
		fused  bool
		common bool
	}
	rounds := map[key][]Timing{}
	var order []key
	for _, t := range all {
		k := key{t.Name, t.Bytes, t.Fused, t.Common}
		if rounds[k] == nil {
			order = append(order, k)
		}
		rounds[k] = append(rounds[k], t)
	}
	out := make([]Timing, 0, len(order))
	for _, k := range order {
		of := rounds[k]
		t := Timing{Name: k.name, Bytes: k.bytes, Fused: k.fused, Common: k.common}
		t.Median = medianOf(of, func(t Timing) time.Duration { return t.Median })
		t.P99 = medianOf(of, func(t Timing) time.Duration { return t.P99 })
		out = append(out, t)
	}
	return out
}

func medianOf(of []Timing, what func(Timing) time.Duration) time.Duration {
	values := make([]time.Duration, len(of))
	for i, t := range of {
		values[i] = what(t)
	}
	slices.Sort(values)
	return values[len(values)/2]
}

//go:embed peer/mpi_allreduce.c
var mpiSource []byte

// MPIPeer is OpenMPI's all-reduce, compiled from the source embedded here.
type MPIPeer struct {
	name    string
	program string
	options []string
}

// MPIPeers compiles the peer into dir and returns its two launches: as mpirun
// comes, and with ranks that yield while they wait. It fails where OpenMPI's
// mpicc or mpirun is missing (Debian: openmpi-bin, libopenmpi-dev).
func MPIPeers(ctx context.Context, dir string) ([]MPIPeer, error) {
	source, program := filepath.Join(dir, "mpi_allreduce.c"), filepath.Join(dir, "mpi_allreduce")
	if err := os.WriteFile(source, mpiSource, 0o600); err != nil {
		return nil, err
	}
	compile := exec.CommandContext(ctx, "mpicc.openmpi", "-O2", "-o", program, source)
	if out, err := compile.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("compile the OpenMPI peer (Debian: openmpi-bin, libopenmpi-dev): %w: %s", err, out)
	}
	return []MPIPeer{
		{name: "openmpi", program: program},
		{name: "openmpi yield", program: program, options: []string{"--mca", "mpi_yield_when_idle", "1"}},
	}, nil
}

func (m MPIPeer) run(ctx context.Context, ranks, iterations int, payloads []Payload) ([]Timing, error) {
	args := append([]string{"--allow-run-as-root", "--oversubscribe", "-np", strconv.Itoa(ranks)}, m.options...)
	args = append(args, m.program, strconv.Itoa(iterations))
	for _, p := range payloads {
		if !p.Fused {
			args = append(args, strconv.Itoa(p.Bytes()))
		}
	}
	cmd := exec.CommandContext(ctx, "mpirun.openmpi", args...)
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", m.name, err, complaints.String())
	}
	var timings []Timing
	for l := range strings.Lines(string(out)) {
		t := Timing{Name: m.name}
		if _, err := fmt.Sscan(l, &t.Bytes, &t.Median, &t.P99); err != nil {
			return nil, fmt.Errorf("%s printed %q: %w", m.name, l, err)
		}
		timings = append(timings, t)
	}
	return timings, nil
}
