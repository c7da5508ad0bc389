package main

import (
	"bytes"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/octet-run/octet/collectives"
	"github.com/octet-run/octet/collectives/topology"
	"github.com/octet-run/octet/internal/version"
)

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
