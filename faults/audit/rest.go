package audit

import "maps"

// Rest is what a process holds when nothing runs.
type Rest struct {
	Goroutines int
	Files      int
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
		{"open files", before.Files, after.Files},
		{"child processes", before.Children, after.Children},
		{"KV blocks", before.Blocks, after.Blocks},
	} {
		a.check(AtRest, c.has <= c.had, "%d %s are left, there were %d", c.has, c.what, c.had)
	}
	left := maps.Clone(after.Shared)
	maps.DeleteFunc(left, func(name string, _ bool) bool { return before.Shared[name] })
	a.check(AtRest, len(left) == 0, "shared memory is left: %v", left)
}

// Growth holds the memory at the end of a long run against that after its
// beginning: it may vary by a quarter and some.
func (a *Audit) Growth(what string, early, late uint64) {
	const slack = 16 << 20
	a.check(AtRest, late <= early+early/4+slack, "%s grew from %d to %d MiB", what, early>>20, late>>20)
}
