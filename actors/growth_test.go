package actors

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/octet-run/octet/actors/round"
)

// What is counted is what a process owns: descriptors, mappings, goroutines and live
// memory. Resident memory says little: the collector's pace, the race detector and
// the allocator move it by megabytes.

// cost is what a process holds, but for memory.
type cost struct{ files, maps, goroutines int }

func costOf(t *testing.T, g *Group, rank int) cost {
	t.Helper()
	health, err := g.Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	process := "/proc/self"
	if pid := pids(g)[rank]; pid != 0 {
		process = fmt.Sprintf("/proc/%d", pid)
	}
	files, err := os.ReadDir(process + "/fd")
	if err != nil {
		t.Fatal(err)
	}
	maps, err := os.ReadFile(process + "/maps")
	if err != nil {
		t.Fatal(err)
	}
	return cost{files: len(files), maps: strings.Count(string(maps), "octet-"), goroutines: int(health[rank].GetGoroutines())}
}

// liveSlot is a slot whose outcome is the live memory of rank 0's process.
const liveSlot = 7

// liveKiB is what the collector cannot free. Stacks come in large pieces; they are
// counted as goroutines.
func liveKiB() int32 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // what finalizers held in the first
	runtime.ReadMemStats(&m)
	return int32(m.HeapAlloc >> 10)
}

// growth is what a series gains from each value to the next, in that half of it which
// gains less: what grows once, such as a table that doubles, is no leak.
func growth(series []int32) float64 {
	half := len(series) / 2
	return min(slope(series[:half]), slope(series[half:]))
}

// slope is the median over the slopes of a series' pairs, which stray values do not
// move.
func slope(series []int32) float64 {
	var slopes []float64
	for i := range series {
		for k := range i {
			slopes = append(slopes, float64(series[i]-series[k])/float64(i-k))
		}
	}
	slices.Sort(slopes)
	return slopes[len(slopes)/2]
}

// loses has ranks 1 and 2 die in turn and returns the live memory, in KiB, of rank
// 0's process and of this one in every epoch.
func loses(t *testing.T, g *Group, times int) (survivor, parent []int32) {
	t.Helper()
	for range times {
		next := g.Epoch() + 1
		g.Signal(1+int(next)%2, unix.SIGKILL)
		serves(t, g, next)
		result, err := g.Do(t.Context(), &round.Round{Epoch: next, Entries: []round.Entry{{Kind: round.Decode, Slot: liveSlot, Tokens: []int32{1}}}})
		if err != nil {
			t.Fatal(err)
		}
		survivor, parent = append(survivor, result.Outcomes[0].Tokens[0]), append(parent, liveKiB())
	}
	return survivor, parent
}

// most is the live memory in KiB that an epoch may leave behind, for noise: half of
// what the negative control does.
const most = leaks >> 10 / 2

func TestReformationsCostNothing(t *testing.T) {
	times, warm := 50, 5
	if testing.Short() {
		times = 20
	}
	both(t, func(t *testing.T, launcher Launcher) {
		config := patient(3)
		config.Launcher = launcher
		g := start(t, config)
		loses(t, g, warm)
		before, files := costOf(t, g, 0), openFiles(t)
		survivor, parent := loses(t, g, times-warm)
		if grown := growth(survivor); grown > most {
			t.Errorf("each epoch leaves %.1f KiB in the survivor: %v", grown, survivor)
		}
		if grown := growth(parent); grown > most {
			t.Errorf("each epoch leaves %.1f KiB in the supervisor: %v", grown, parent)
		}
		var after cost
		if !waitFor(func() bool { // goroutines of the last epoch may be on their way out
			after = costOf(t, g, 0)
			return after.files <= before.files && after.maps <= before.maps && after.goroutines <= before.goroutines
		}) {
			t.Errorf("the survivor holds %+v, after %d of %d losses %+v", after, warm, times, before)
		}
		settled(t, files)
		if s := g.Status().Ranks; s[0].Restarts != 0 || s[1].Restarts+s[2].Restarts != times {
			t.Errorf("status is %+v", s)
		}
	})
}

// Negative control: a survivor that keeps a little of every epoch is found out.
func TestALeakOfAFewKilobytesAnEpochIsSeen(t *testing.T) {
	both(t, func(t *testing.T, launcher Launcher) {
		config := patient(3)
		config.Launcher = launcher
		config.EngineConfig = encode(plan{Rank: 0, Round: 1 << 40, Do: "leak"})
		g := start(t, config)
		var survivor []int32
		// What earlier tests and the start have left may be freed meanwhile, and hide it.
		for range 4 {
			if survivor, _ = loses(t, g, 16); growth(survivor) > most {
				return
			}
		}
		t.Errorf("%d KiB are lost in every epoch, %.1f KiB are seen: %v", leaks>>10, growth(survivor), survivor)
	})
}
