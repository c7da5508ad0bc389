package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/octet-run/octet/collectives"
	"github.com/octet-run/octet/collectives/topology"
	"github.com/octet-run/octet/collectives/transport"
)

// tuneMost is the largest payload that is tuned, in elements.
const tuneMost = 1 << 18

// tuneWidth is the row width of the fused form: a usual hidden size.
const tuneWidth = 4096

// rankTune is what one rank's process of octet tune is told.
type rankTune struct {
	Box         string
	Dedicated   bool
	RequireFast bool
	Verdict     *collectives.Verdict // of an earlier probe, which then is not repeated
	ProbeOnly   bool
	Sizes       []int
	Bindings    []topology.Binding // of all ranks, as a group has them
}

// tuned is what rank 0 of octet tune prints.
type tuned struct {
	Verdict      collectives.Verdict       `json:"verdict"`
	Probed       bool                      `json:"probed"` // now, and not earlier since the box booted
	HugePages    bool                      `json:"huge_pages"`
	Plan         collectives.Plan          `json:"plan"`
	Measurements []collectives.Measurement `json:"measurements"`
	// SmallPages is the same on small pages, on which models with short rows run, if
	// there is a difference.
	SmallPages *tuned `json:"small_pages,omitempty"`
}

func newTune() *cobra.Command {
	var settings tuneSettings
	var dry bool
	cmd := &cobra.Command{
		Use:   "tune",
		Short: "Probe every path, time every algorithm, and write the plan that groups of this size use here",
		Long: "Correctness comes first: a path that delivers wrong data is refused, however fast, and every algorithm's\n" +
			"result is verified before it is timed. The plan holds until the machine boots again or the program changes.",
		Example: "  octet tune --ranks 8\n  octet tune --ranks 4 --dry-run --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if settings.ranks < 1 || settings.ranks > transport.MaxRanks {
				return usagef("--ranks %d: a group has 1 to %d ranks", settings.ranks, transport.MaxRanks)
			}
			if _, err := cachePath("plan", settings.ranks); err != nil && !dry {
				return refusedError{err} // before anything is measured
			}
			over := busy(cmd, "probing and timing")
			result, err := tune(cmd.Context(), settings)
			over()
			if err != nil {
				return interrupted(cmd.Context(), err)
			}
			path := ""
			if !dry {
				if path, err = result.save(settings.ranks); err != nil {
					return err
				}
			}
			return printTuned(cmd, result, path)
		},
	}
	cmd.Flags().IntVar(&settings.ranks, "ranks", 8, "number of rank processes, 1 to 8")
	cmd.Flags().BoolVar(&settings.requireFast, "require-fast", false, "fail where the fast path cannot be had")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "print the plan and write nothing")
	cmd.Flags().BoolVar(&settings.again, "probe", false, "probe the paths again, though their verdict is known since the box booted")
	return cmd
}

// tuneSettings is what is tuned.
type tuneSettings struct {
	ranks       int
	requireFast bool
	again       bool  // probe though the verdict is known
	sizes       []int // payload bytes, rising; none: the usual ones
}

// tuneSizes checks payloads that somebody else asks for.
func tuneSizes(bytes []uint64) ([]int, error) {
	var sizes []int
	for i, n := range bytes {
		switch {
		case n < 4 || n%4 != 0 || n > 4*tuneMost:
			return nil, fmt.Errorf("a payload of %d bytes cannot be tuned: give whole float32 values, at most %d bytes", n, 4*tuneMost)
		case i > 0 && n <= bytes[i-1]:
			return nil, fmt.Errorf("payloads of %d and %d bytes are not in rising order", bytes[i-1], n)
		}
		sizes = append(sizes, int(n))
	}
	return sizes, nil
}

func tune(ctx context.Context, s tuneSettings) (*tuned, error) {
	ranks := s.ranks
	allowed, err := allowedCPUs()
	if err != nil {
		return nil, err
	}
	box, err := boxKey()
	if err != nil {
		return nil, err
	}
	t := rankTune{Box: box, Dedicated: len(allowed) >= ranks, RequireFast: s.requireFast, Sizes: s.sizes}
	if t.Bindings, err = hostBindings(ranks, allowed); err != nil {
		return nil, err
	}
	if !s.again {
		t.Verdict = cachedVerdict(ranks)
	}
	result, err := t.run(ctx, ranks, true)
	if err != nil || !result.HugePages {
		return result, err
	}
	t.Verdict = &result.Verdict
	result.SmallPages, err = t.run(ctx, ranks, false)
	return result, err
}

// probePaths finds the verdict on the paths of a group that may not fall back: without one
// nobody knows that the first choice can be had. It takes about a second, each time
// where the verdict cannot be kept.
func probePaths(ctx context.Context, ranks int) (*collectives.Verdict, error) {
	box, err := boxKey()
	if err != nil {
		return nil, err
	}
	allowed, err := allowedCPUs()
	if err != nil {
		return nil, err
	}
	bindings, err := hostBindings(ranks, allowed)
	if err != nil {
		return nil, err
	}
	result, err := rankTune{Box: box, ProbeOnly: true, Bindings: bindings}.run(ctx, ranks, false)
	if err != nil {
		return nil, fmt.Errorf("probe the paths between %d ranks: %w", ranks, err)
	}
	_, _ = saveCache("verdict", ranks, result.Verdict.Write) // a service may have no folder that it may write
	return &result.Verdict, nil
}

// run tunes a group on huge pages, where they can be had, or on small ones.
func (t rankTune) run(ctx context.Context, ranks int, hugePages bool) (*tuned, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	config, err := json.Marshal(t)
	if err != nil {
		return nil, err
	}
	printed, err := collectives.RunProcesses(ctx, ranks, tuneMost, hugePages, func(ctx context.Context, rank int) *exec.Cmd {
		return exec.CommandContext(ctx, exe, "rank", "tune", strconv.Itoa(rank), string(config))
	})
	if err != nil {
		return nil, err
	}
	var result tuned
	if err := json.Unmarshal(printed, &result); err != nil {
		return nil, fmt.Errorf("rank 0 printed %q: %w", printed, err)
	}
	return &result, nil
}

// newRankTune is a rank process of octet tune.
func newRankTune() *cobra.Command {
	return newRankMeasurement("tune", func(t rankTune, group *transport.Group, rank int) error {
		result, err := tuneRank(group, rank, t)
		if err != nil || rank != 0 {
			return err
		}
		return json.NewEncoder(os.Stdout).Encode(result)
	})
}

func tuneRank(group *transport.Group, rank int, t rankTune) (*tuned, error) {
	runtime.LockOSThread() // for the life of the process
	if err := t.Bindings[rank].Bind(); err != nil {
		return nil, fmt.Errorf("bind rank %d: %w", rank, err)
	}
	link, err := group.Attach(rank, transport.Polling{Dedicated: t.Dedicated})
	if err != nil {
		return nil, err
	}
	comm, err := collectives.New(link, collectives.Config{Dedicated: t.Dedicated})
	if err != nil {
		return nil, err
	}
	result := &tuned{Probed: t.Verdict == nil, HugePages: group.HugePages()}
	if result.Probed {
		result.Verdict, err = comm.Probe(collectives.Probe{Box: t.Box})
	} else {
		result.Verdict = *t.Verdict
	}
	if err != nil {
		return nil, err
	}
	if t.ProbeOnly {
		return result, nil
	}
	policy := collectives.Policy{
		Shape:   collectives.Shape{Ranks: group.Ranks(), Coherent: true},
		Verdict: &result.Verdict, Dedicated: t.Dedicated, HugePages: group.HugePages(), RequireFast: t.RequireFast,
	}
	result.Plan, result.Measurements, err = comm.Tune(collectives.Tune{Policy: policy, Sizes: t.Sizes, Width: tuneWidth})
	result.Plan.Box = t.Box
	return result, err
}

// save keeps the verdict and the plans, each kind of slab's its own, and says where.
func (t *tuned) save(ranks int) (path string, err error) {
	if _, err := saveCache("verdict", ranks, t.Verdict.Write); err != nil {
		return "", err
	}
	if t.SmallPages != nil {
		if _, err := t.SmallPages.save(ranks); err != nil {
			return "", err
		}
	}
	return saveCache(planKind(t.HugePages), ranks, t.Plan.Write)
}

func printTuned(cmd *cobra.Command, result *tuned, path string) error {
	if wantJSON(cmd) {
		return printJSON(cmd, result)
	}
	out := cmd.OutOrStdout()
	since := "probed now"
	if !result.Probed {
		since = "probed earlier since the box booted"
	}
	fmt.Fprintf(out, "%s, %s\n\n", result.Verdict.Summary(), since)
	if result.HugePages {
		fmt.Fprintln(out, "slabs on huge pages, as of models with rows of 4096 values and more:")
	}
	fmt.Fprint(out, result.Plan.Explain())
	if small := result.SmallPages; small != nil {
		fmt.Fprintf(out, "\nslabs on small pages, as of other models:\n%s", small.Plan.Explain())
	}
	if path != "" {
		fmt.Fprintf(out, "\nwritten to %s\n", filepath.Dir(path))
	}
	return nil
}
