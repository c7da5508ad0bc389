package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/octet-run/octet/collectives"
	"github.com/octet-run/octet/collectives/topology"
	"github.com/octet-run/octet/collectives/transport"
	"github.com/octet-run/octet/internal/version"
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
	var ranks int
	var requireFast, dry, probe bool
	cmd := &cobra.Command{
		Use:   "tune",
		Short: "Probe every path, time every algorithm, and write the plan that groups of this size use here",
		Long: "Correctness comes first: a path that delivers wrong data is refused, however fast, and every algorithm's\n" +
			"result is verified before it is timed. The plan holds until the machine boots again or the program changes.",
		Example: "  octet tune --ranks 8\n  octet tune --ranks 4 --dry-run --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if ranks < 1 || ranks > transport.MaxRanks {
				return usagef("--ranks %d: a group has 1 to %d ranks", ranks, transport.MaxRanks)
			}
			if _, err := cachePath("plan", ranks); err != nil && !dry {
				return refusedError{err} // before anything is measured
			}
			result, err := tune(cmd.Context(), ranks, requireFast, probe)
			if err != nil {
				return interrupted(cmd.Context(), err)
			}
			path := ""
			if !dry {
				if _, err := saveCache("verdict", ranks, result.Verdict.Write); err != nil {
					return err
				}
				if path, err = saveCache(planKind(result.HugePages), ranks, result.Plan.Write); err != nil {
					return err
				}
				if small := result.SmallPages; small != nil {
					if _, err := saveCache(planKind(false), ranks, small.Plan.Write); err != nil {
						return err
					}
				}
			}
			return printTuned(cmd, result, path)
		},
	}
	cmd.Flags().IntVar(&ranks, "ranks", 8, "number of rank processes, 1 to 8")
	cmd.Flags().BoolVar(&requireFast, "require-fast", false, "fail where the fast path cannot be had")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "print the plan and write nothing")
	cmd.Flags().BoolVar(&probe, "probe", false, "probe the paths again, though their verdict is known since the box booted")
	return cmd
}

func tune(ctx context.Context, ranks int, requireFast, again bool) (*tuned, error) {
	allowed, err := allowedCPUs()
	if err != nil {
		return nil, err
	}
	box, err := boxKey()
	if err != nil {
		return nil, err
	}
	t := rankTune{Box: box, Dedicated: len(allowed) >= ranks, RequireFast: requireFast}
	if t.Bindings, err = hostBindings(ranks, allowed); err != nil {
		return nil, err
	}
	if !again {
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
	result.Plan, result.Measurements, err = comm.Tune(collectives.Tune{Policy: policy, Width: tuneWidth})
	result.Plan.Box = t.Box
	return result, err
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

// boxKey names what a plan holds for: this boot of this machine, its devices and
// driver, and this build.
func boxKey() (string, error) {
	box, err := topology.Discover("/sys")
	if err != nil {
		return "", err
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", err
	}
	allowed, err := allowedCPUs()
	if err != nil {
		return "", err
	}
	built, err := builtAt() // builds of one version differ while it is developed
	if err != nil {
		return "", err
	}
	h := fnv.New64a()
	fmt.Fprintln(h, strings.TrimSpace(string(boot)), box.CPU, allowed, box.Driver, version.String(), built)
	for _, gpu := range box.GPUs() {
		fmt.Fprintln(h, gpu.Address, gpu.Name)
	}
	return fmt.Sprintf("%016x", h.Sum64()), nil
}

func builtAt() (time.Time, error) {
	exe, err := os.Executable()
	if err != nil {
		return time.Time{}, err
	}
	info, err := os.Stat(exe)
	if err != nil {
		return time.Time{}, err
	}
	return info.ModTime().UTC(), nil
}

func cachePath(kind string, ranks int) (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("there is no folder to keep the %s in: set HOME or XDG_CACHE_HOME", kind)
	}
	return filepath.Join(dir, "octet", fmt.Sprintf("%s-%d.json", kind, ranks)), nil
}

// saveCache writes a plan or a verdict whole or not at all.
func saveCache(kind string, ranks int, write func(io.Writer) error) (string, error) {
	path, err := cachePath(kind, ranks)
	if err != nil {
		return "", err
	}
	var buf bytes.Buffer
	if err := write(&buf); err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", err
	}
	fresh := fmt.Sprintf("%s.%d", path, os.Getpid())
	if err := os.WriteFile(fresh, buf.Bytes(), 0o644); err != nil {
		return "", err
	}
	return path, os.Rename(fresh, path)
}

// planKind is the name of tuned plans for slabs on huge or small pages: what is the
// fastest depends on them.
func planKind(hugePages bool) string {
	if hugePages {
		return "plan-huge-pages"
	}
	return "plan"
}

// cachedPlan is the tuned plan for groups of so many ranks with such slabs, false
// where none was tuned here.
func cachedPlan(ranks int, hugePages bool) (collectives.Plan, bool) {
	plan, err := readCache(planKind(hugePages), ranks, collectives.ReadPlan)
	if err != nil || plan.Shape.Ranks != ranks {
		return collectives.Plan{}, false
	}
	key, err := boxKey()
	return plan, err == nil && key == plan.Box
}

// cachedVerdict is what the last probe of this box found, nil where there was none
// since it booted, or its devices or this program changed.
func cachedVerdict(ranks int) *collectives.Verdict {
	verdict, err := readCache("verdict", ranks, collectives.ReadVerdict)
	if err != nil {
		return nil
	}
	if key, err := boxKey(); err != nil || !verdict.HoldsFor(key, ranks) {
		return nil
	}
	return &verdict
}

func readCache[T any](kind string, ranks int, read func(io.Reader) (T, error)) (T, error) {
	var none T
	path, err := cachePath(kind, ranks)
	if err != nil {
		return none, err
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return none, err
	}
	return read(bytes.NewReader(data))
}

// planFor is the plan of a group: the tuned one if it can still be had, or the
// policy's own, on the verdict if there is one.
func planFor(ranks int, dedicated, hugePages, requireFast bool, verdict *collectives.Verdict) (collectives.Plan, error) {
	policy := collectives.Policy{
		Shape: collectives.Shape{Ranks: ranks, Coherent: true}, Verdict: verdict,
		Dedicated: dedicated, HugePages: hugePages, RequireFast: requireFast,
	}
	if plan, found := cachedPlan(ranks, hugePages); found && policy.Holds(plan) == nil {
		return plan, nil
	}
	plan, err := policy.Plan(nil)
	if err != nil && requireFast {
		return plan, refusedError{err}
	}
	return plan, err
}
