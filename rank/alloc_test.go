package rank

import "testing"

// A pass is the same calls again and again: programs are compiled, norms widened
// and scratch taken by the first one.
func TestAPassAllocatesNothing(t *testing.T) {
	e := newGroup(t, pairConfig(t), 1).engines[0]
	sequence := e.cache.NewSequence()
	defer sequence.Release()
	if err := sequence.Append(&e.batch, []int32{1, 2, 3, 4}); err != nil {
		t.Fatal(err)
	}
	pass := func() { e.target.Forward(&e.batch) }
	pass()
	if n := testing.AllocsPerRun(20, pass); n > 0 {
		t.Errorf("%v allocations a pass", n)
	}
	if _, err := e.reducer.take(); err != nil {
		t.Fatal(err)
	}
}
