package simulation

import (
	"flag"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/octet-run/octet/faults"
)

var (
	oneSeed = flag.Uint64("seed", 0, "run this seed alone and print what happens")
	seeds   = flag.Int("seeds", 1500, "how many seeds to run")
)

// simulate runs a seed under a script in a bubble.
func simulate(t *testing.T, seed uint64, script []faults.Fault) (report *Report) {
	t.Helper()
	var say func(string)
	if *oneSeed != 0 {
		say = func(line string) { t.Log(line) }
	}
	synctest.Test(t, func(*testing.T) { report = Run(seed, script, say) })
	return report
}

func script(t *testing.T, seed uint64) []faults.Fault {
	t.Helper()
	drawn, err := Script(seed)
	if err != nil {
		t.Fatal(err)
	}
	return drawn
}

// fail prints a seed that breaches an invariant, and the shortest script that does.
func fail(t *testing.T, r *Report) {
	t.Helper()
	shortest := Shrink(r.Faults, func(part []faults.Fault) bool {
		return len(simulate(t, r.Seed, part).Breaches) > 0
	})
	t.Errorf("seed %d breaches an invariant under:\n%s\nbreaches:\n%s\nthe shortest script that does:\n%s\nreplay with: go test ./internal/simulation -run TestSeeds -v -seed %d",
		r.Seed, Text(r.Faults), strings.Join(r.Breaches, "\n"), Text(shortest), r.Seed)
}

// TestSeeds runs seeds 1 to -seeds, or -seed alone; at most 400 in its short form.
func TestSeeds(t *testing.T) {
	if *oneSeed != 0 {
		if r := simulate(t, *oneSeed, script(t, *oneSeed)); len(r.Breaches) > 0 {
			fail(t, r)
		}
		return
	}
	count := uint64(*seeds)
	if testing.Short() {
		count = min(count, 400)
	}
	before := openFiles(t)
	var next atomic.Uint64
	totals := make([]Report, runtime.GOMAXPROCS(0))
	t.Run("all", func(t *testing.T) {
		for worker := range totals {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				for seed := next.Add(1); seed <= count && !t.Failed(); seed = next.Add(1) {
					r := simulate(t, seed, script(t, seed))
					if len(r.Breaches) > 0 {
						fail(t, r)
					}
					totals[worker].add(r)
				}
			})
		}
	})
	var all Report
	for i := range totals {
		all.add(&totals[i])
	}
	t.Logf("%d seeds: %d faults struck, %d epochs, %d rounds; %d requests complete, %d ended by a typed error",
		count, all.Struck, all.Epochs, all.Rounds, all.Completed, all.Refused)
	if after := openFiles(t); after > before {
		t.Errorf("%d files are open, %d before", after, before)
	}
}

func (r *Report) add(other *Report) {
	r.Struck += other.Struck
	r.Epochs += other.Epochs
	r.Rounds += other.Rounds
	r.Completed += other.Completed
	r.Refused += other.Refused
}

func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func TestASeedHasOneTrace(t *testing.T) {
	for seed := uint64(1); seed <= 60; seed++ {
		first := simulate(t, seed, script(t, seed))
		processors := runtime.GOMAXPROCS(1 + int(seed%3))
		second := simulate(t, seed, script(t, seed))
		runtime.GOMAXPROCS(processors)
		if first.Trace != second.Trace {
			t.Errorf("seed %d has trace %016x, then %016x", seed, first.Trace, second.Trace)
		}
		if other := simulate(t, seed+1000, script(t, seed+1000)); other.Trace == first.Trace {
			t.Errorf("seeds %d and %d have one trace", seed, seed+1000)
		}
	}
}

func TestWithoutFaultsEveryRequestCompletes(t *testing.T) {
	for seed := uint64(1); seed <= 60; seed++ {
		r := simulate(t, seed, nil)
		if len(r.Breaches) > 0 || r.Epochs != 1 {
			t.Errorf("seed %d: %d epochs; %v", seed, r.Epochs, r.Breaches)
		}
	}
}

func TestAScriptReadsAsItWasWritten(t *testing.T) {
	for seed := uint64(1); seed <= 300; seed++ {
		drawn := script(t, seed)
		again, err := faults.Parse(Text(drawn), 8)
		if err != nil {
			t.Fatal(err)
		}
		for i := range again.Faults {
			again.Faults[i].Line = 0
		}
		if !slices.Equal(drawn, again.Faults) {
			t.Errorf("seed %d: %v, read again %v", seed, drawn, again.Faults)
		}
	}
}

func TestShrinkFindsTheFaultsThatMatter(t *testing.T) {
	var all []faults.Fault
	for i := range uint64(12) {
		all = append(all, faults.Fault{Do: faults.Kill, When: faults.Trigger{Round: i + 1}})
	}
	for _, matter := range [][]uint64{{1}, {12}, {3, 4}, {2, 7, 11}, {}} {
		got := Shrink(all, func(part []faults.Fault) bool {
			for _, round := range matter {
				if !slices.ContainsFunc(part, func(f faults.Fault) bool { return f.When.Round == round }) {
					return false
				}
			}
			return true
		})
		var rounds []uint64
		for _, f := range got {
			rounds = append(rounds, f.When.Round)
		}
		if !slices.Equal(rounds, matter) {
			t.Errorf("shrunk to rounds %v, want %v", rounds, matter)
		}
	}
}
