package audit

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// Rest is what a process holds when nothing runs.
type Rest struct {
	Goroutines int
	Files      []string // what is open
	Children   int
	Blocks     int // KV blocks in use
	Bytes      uint64
	// Shared are the names of files of shared memory.
	Shared map[string]bool
}

// Rest holds what is left against what there was before.
func (a *Audit) Rest(before, after Rest) {
	for _, c := range []struct {
		what     string
		had, has int
	}{
		{"goroutines", before.Goroutines, after.Goroutines},
		{"child processes", before.Children, after.Children},
		{"KV blocks", before.Blocks, after.Blocks},
	} {
		a.check(AtRest, c.has <= c.had, "%d %s are left, there were %d", c.has, c.what, c.had)
	}
	a.check(AtRest, len(after.Files) <= len(before.Files), "%d open files are left, there were %d; new are %s", len(after.Files),
		len(before.Files), strings.Join(newIn(before.Files, after.Files), ", "))
	left := maps.Clone(after.Shared)
	maps.DeleteFunc(left, func(name string, _ bool) bool { return before.Shared[name] })
	a.check(AtRest, len(left) == 0, "shared memory is left: %v", left)
}

// newIn lists what is in after and not, or not as often, in before.
func newIn(before, after []string) (list []string) {
	before = slices.Clone(before)
	for _, name := range after {
		if i := slices.Index(before, name); i >= 0 {
			before = slices.Delete(before, i, i+1)
		} else {
			list = append(list, name)
		}
	}
	return list
}

// Level is what processes hold in the middle of a run.
type Level struct {
	Bytes      uint64 `json:"bytes"`
	Goroutines int    `json:"goroutines"`
	Files      int    `json:"files"`
	// Segments are mappings of shared memory.
	Segments int `json:"segments"`
}

// LevelOf is the median of several, each part by itself: work comes and goes.
func LevelOf(levels []Level) Level {
	return Level{
		Bytes:      median(levels, func(l Level) uint64 { return l.Bytes }),
		Goroutines: median(levels, func(l Level) int { return l.Goroutines }),
		Files:      median(levels, func(l Level) int { return l.Files }),
		Segments:   median(levels, func(l Level) int { return l.Segments }),
	}
}

func median[T cmp.Ordered](levels []Level, part func(Level) T) T {
	parts := make([]T, len(levels))
	for i, l := range levels {
		parts[i] = part(l)
	}
	slices.Sort(parts)
	return parts[len(parts)/2]
}

// Growth holds the level at the end of a long run against that after its beginning:
// it may vary by a quarter and some.
func (a *Audit) Growth(what string, early, late Level) {
	const slackBytes, slack = 16 << 20, 8
	a.check(AtRest, late.Bytes <= early.Bytes+early.Bytes/4+slackBytes, "%s grew from %d to %d MiB", what, early.Bytes>>20, late.Bytes>>20)
	for _, c := range []struct {
		part      string
		had, have int
	}{
		{"goroutines", early.Goroutines, late.Goroutines},
		{"open files", early.Files, late.Files},
		{"mappings of shared memory", early.Segments, late.Segments},
	} {
		a.check(AtRest, c.have <= c.had+c.had/4+slack, "%s went from %d %s to %d", what, c.had, c.part, c.have)
	}
}
