package modeltest

import (
	"errors"
	"math"
	"runtime"
	"sync"
	"testing"

	"github.com/octet-run/octet/kernels"
	"github.com/octet-run/octet/model"
)

// Rank is one member of a test group. It implements layers.Reducer with
// goroutines, a barrier and a sum along the fixed binary tree.
type Rank struct {
	Backend kernels.Backend
	Shard   model.Shard
	group   *group
	results [2]kernels.Tensor // the last two, as the contract allows
	calls   int
}

type group struct {
	mu      sync.Mutex
	turn    sync.Cond
	ranks   int
	arrived int
	phase   int
	broken  bool
	shared  []kernels.Tensor // what each rank brought to the current call
}

// Run runs fn once per rank, at the same time, and fails the test with what
// the ranks return. A rank that fails releases the others.
func Run(t *testing.T, ranks int, newBackend func() (kernels.Backend, error), fn func(r *Rank) error) {
	t.Helper()
	g := &group{ranks: ranks, shared: make([]kernels.Tensor, ranks)}
	g.turn.L = &g.mu
	errs := make([]error, ranks)
	var done sync.WaitGroup
	for i := range ranks {
		done.Go(func() {
			defer g.leave(&errs[i])
			errs[i] = errors.New("stopped: another rank failed")
			b, err := newBackend()
			if err != nil {
				errs[i] = err
				return
			}
			defer b.Close()
			errs[i] = fn(&Rank{Backend: b, Shard: model.Shard{Rank: i, Ranks: ranks}, group: g})
		})
	}
	done.Wait()
	for i, err := range errs {
		if err != nil {
			t.Errorf("rank %d of %d: %v", i, ranks, err)
		}
	}
	if t.Failed() {
		t.FailNow()
	}
}

func (g *group) leave(err *error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if *err != nil {
		g.broken = true
		g.turn.Broadcast()
	}
}

// wait is a barrier. It ends the goroutine when the group is broken.
func (g *group) wait() {
	g.mu.Lock()
	defer g.mu.Unlock()
	phase := g.phase
	g.arrived++
	if g.arrived == g.ranks {
		g.arrived = 0
		g.phase++
		g.turn.Broadcast()
	}
	for g.phase == phase && !g.broken {
		g.turn.Wait()
	}
	if g.phase == phase {
		g.mu.Unlock()
		defer g.mu.Lock()
		runtime.Goexit()
	}
}

// Rank is the member's index.
func (r *Rank) Rank() int { return r.Shard.Rank }

// Size is the number of members.
func (r *Rank) Size() int { return r.Shard.Ranks }

func matrix(rows, cols int) kernels.Tensor {
	return kernels.HostTensor(kernels.F32, rows, cols, make([]float32, rows*cols))
}

// Partial is fresh memory full of NaN, so that an element nobody writes shows.
func (r *Rank) Partial(rows, width int) kernels.Tensor {
	t := matrix(rows, width)
	for i := range rows {
		row := t.F32Row(i)
		for j := range row {
			row[j] = float32(math.NaN())
		}
	}
	return t
}

// AllReduce sums along ((0+1)+(2+3))+((4+5)+(6+7)). The result of the call
// before the last is poisoned, as reused memory would be.
func (r *Rank) AllReduce(partial kernels.Tensor) kernels.Tensor {
	g := r.group
	g.shared[r.Rank()] = partial
	g.wait()
	sum := matrix(partial.Rows, partial.Cols)
	for i := range sum.Rows {
		copy(sum.F32Row(i), treeSum(g.shared, i))
	}
	g.wait()
	return r.keep(sum)
}

func (r *Rank) keep(result kernels.Tensor) kernels.Tensor {
	old := &r.results[r.calls%2]
	for i := range old.Rows {
		row := old.F32Row(i)
		for j := range row {
			row[j] = float32(math.NaN())
		}
	}
	*old = result
	r.calls++
	return result
}

func treeSum(parts []kernels.Tensor, row int) []float32 {
	level := make([][]float32, len(parts))
	for i := range parts {
		level[i] = parts[i].F32Row(row)
	}
	for len(level) > 1 {
		var next [][]float32
		for i := 0; i+1 < len(level); i += 2 {
			sum := make([]float32, len(level[i]))
			for j := range sum {
				sum[j] = level[i][j] + level[i+1][j]
			}
			next = append(next, sum)
		}
		if len(level)%2 == 1 {
			next = append(next, level[len(level)-1])
		}
		level = next
	}
	return level[0]
}

// AllReduceAddNorm composes the sum with the backend's kernel.
func (r *Rank) AllReduceAddNorm(partial, residual, weight kernels.Tensor, eps float32) kernels.Tensor {
	sum := r.AllReduce(partial)
	normed := matrix(partial.Rows, partial.Cols)
	r.Backend.AddRMSNorm(normed, residual, sum, weight, eps)
	r.calls--
	return r.keep(normed)
}

// GatherToRoot puts the ranks' columns side by side.
func (r *Rank) GatherToRoot(shard kernels.Tensor, widths []int) kernels.Tensor {
	g := r.group
	g.shared[r.Rank()] = shard
	g.wait()
	var out kernels.Tensor
	if r.Rank() == 0 {
		total := 0
		for _, w := range widths {
			total += w
		}
		out = matrix(shard.Rows, total)
		at := 0
		for s, w := range widths {
			for i := range shard.Rows {
				copy(out.F32Row(i)[at:at+w], g.shared[s].F32Row(i))
			}
			at += w
		}
	}
	g.wait()
	return out
}

// Broadcast copies root's rows to every rank.
func (r *Rank) Broadcast(t kernels.Tensor, root int) {
	g := r.group
	g.shared[r.Rank()] = t
	g.wait()
	if r.Rank() != root {
		for i := range t.Rows {
			copy(t.ByteRow(i), g.shared[root].ByteRow(i))
		}
	}
	g.wait()
}
