package rank

import (
	"fmt"
	"time"
	"unsafe"

	"github.com/octet-run/octet/collectives"
	"github.com/octet-run/octet/kernels"
	"github.com/octet-run/octet/kernels/cpu"
	"github.com/octet-run/octet/model/layers"
)

// reducer is a CPU rank's layers.Reducer: tensors of float32 over the shared
// slabs. The first error sticks; from then on results are memory of the right
// shape and no meaning, and the engine finds the error when the pass ends.
type reducer struct {
	comm *collectives.Communicator
	// widened holds the norm weights in float32, by where they are stored.
	widened map[unsafe.Pointer][]float32
	// record tells the supervisor which operation the engine thread has run.
	record func(operation uint64)
	// wait is told when an operation begins, waited how long it took: mostly waiting
	// for other ranks.
	wait   func()
	waited func(time.Duration)
	// broken is told of the first error; nil: nobody is.
	broken func()
	// spent is this round's time in collectives so far.
	spent spent
	err   error
}

var (
	_ layers.ResidualHolder = (*reducer)(nil)
	_ groupReducer          = (*reducer)(nil)
)

// groupReducer is a layers.Reducer as its engine sees it.
type groupReducer interface {
	layers.Reducer
	// join begins an epoch and part ends it.
	join(comm *collectives.Communicator, at Place) error
	part() error
	communicator() *collectives.Communicator
	// prove tries every path between the ranks' slabs.
	prove() error
	// hash is the rolling hash of all operations of the epoch.
	hash() uint64
	// failure is the round's first error so far, soFar the time in collectives; take
	// returns and clears both.
	failure() error
	soFar() spent
	take() (spent, error)
}

func newReducer() *reducer { return &reducer{widened: map[unsafe.Pointer][]float32{}} }

// join begins an epoch.
func (r *reducer) join(comm *collectives.Communicator, at Place) error {
	r.comm, r.record, r.wait, r.waited, r.broken = comm, at.Record, at.Wait, at.Waited, at.Broken
	return nil
}

// part ends it: there is no communicator.
func (r *reducer) part() error {
	r.comm, r.record, r.wait, r.waited, r.broken = nil, nil, nil, nil, nil
	r.spent, r.err = spent{}, nil
	return nil
}

func (r *reducer) communicator() *collectives.Communicator { return r.comm }
func (r *reducer) hash() uint64                            { return r.comm.OpHash() }
func (r *reducer) failure() error                          { return r.err }
func (r *reducer) soFar() spent                            { return r.spent }

func (r *reducer) prove() error {
	defer r.leave(r.enter())
	return r.comm.Prove()
}

func (r *reducer) Rank() int { return r.comm.Rank() }
func (r *reducer) Size() int { return r.comm.Size() }

// Partial is slab memory for a partial sum.
func (r *reducer) Partial(rows, width int) kernels.Tensor {
	slab, err := r.comm.Partial(rows, width)
	return r.matrix(slab, rows, width, err)
}

// Residual is memory for a residual stream that all ranks have in common.
func (r *reducer) Residual(rows, width int) kernels.Tensor {
	shared := r.comm.Residual(rows, width)
	if shared == nil {
		return kernels.Tensor{}
	}
	return kernels.HostTensor(kernels.F32, rows, width, shared)
}

// AllReduce sums the ranks' partials.
func (r *reducer) AllReduce(partial kernels.Tensor) kernels.Tensor {
	if r.err != nil {
		return r.matrix(nil, partial.Rows, partial.Cols, nil)
	}
	defer r.leave(r.enter())
	sum, err := r.comm.AllReduce(flat(partial), partial.Rows, partial.Cols)
	return r.matrix(sum, partial.Rows, partial.Cols, err)
}

// AllReduceAddNorm sums, adds to the residual and normalises.
func (r *reducer) AllReduceAddNorm(partial, residual, weight kernels.Tensor, eps float32) kernels.Tensor {
	if r.err != nil {
		return r.matrix(nil, partial.Rows, partial.Cols, nil)
	}
	defer r.leave(r.enter())
	normed, err := r.comm.AllReduceAddNorm(flat(partial), partial.Rows, partial.Cols, flat(residual), r.widen(weight), eps)
	return r.matrix(normed, partial.Rows, partial.Cols, err)
}

// GatherToRoot collects column shards at rank 0.
func (r *reducer) GatherToRoot(shard kernels.Tensor, widths []int) kernels.Tensor {
	total := 0
	for _, w := range widths {
		total += w
	}
	if r.Rank() != 0 {
		total = 0
	}
	if r.err != nil {
		return r.matrix(nil, shard.Rows, total, nil)
	}
	defer r.leave(r.enter())
	whole, err := r.comm.GatherToRoot(flat(shard), shard.Rows, widths)
	return r.matrix(whole, shard.Rows, total, err)
}

// Broadcast copies root's elements to every rank.
func (r *reducer) Broadcast(t kernels.Tensor, root int) {
	if r.err != nil {
		return
	}
	defer r.leave(r.enter())
	if err := r.comm.Broadcast(flat(t), root); err != nil {
		r.fail(err)
	}
}

// widen is a norm weight in float32. It is converted once.
func (r *reducer) widen(weight kernels.Tensor) []float32 {
	if weight.DType == kernels.F32 {
		return flat(weight)
	}
	scale, known := r.widened[weight.Host]
	if !known {
		scale = make([]float32, weight.Cols)
		cpu.Widen(scale, weight, 0)
		r.widened[weight.Host] = scale
	}
	return scale
}

// entry is when a collective began, and the skew of all before it.
type entry struct {
	start time.Time
	skew  time.Duration
}

// enter and leave time a collective; leave records it.
func (r *reducer) enter() entry {
	e := entry{start: time.Now(), skew: r.comm.Skew()}
	r.wait()
	return e
}

func (r *reducer) leave(e entry) {
	skew := r.comm.Skew() - e.skew
	r.spent.inside += time.Since(e.start)
	r.spent.skew += skew
	r.waited(skew)
	r.record(r.comm.OpHash())
}

// spent is time in collectives: all of it, and the part in which others had not come.
type spent struct{ inside, skew time.Duration }

func (r *reducer) fail(err error) {
	if r.err != nil {
		return
	}
	r.err = err
	if r.broken != nil {
		r.broken()
	}
}

// take returns and clears the round's error and the time spent.
func (r *reducer) take() (spent, error) {
	total, err := r.spent, r.err
	r.spent, r.err = spent{}, nil
	return total, err
}

// matrix views data, or fresh memory once something failed.
func (r *reducer) matrix(data []float32, rows, cols int, err error) kernels.Tensor {
	if err != nil {
		r.fail(err)
	}
	if r.err != nil {
		data = make([]float32, rows*cols)
	}
	return kernels.HostTensor(kernels.F32, rows, cols, data)
}

// flat is a tensor whose rows lie one behind the other, as 32-bit elements.
func flat(t kernels.Tensor) []float32 {
	if t.Empty() {
		return nil
	}
	if t.Stride != t.Cols && t.Rows > 1 {
		panic(fmt.Sprintf("rank: a collective over rows of %d elements that lie %d apart", t.Cols, t.Stride))
	}
	if t.DType != kernels.F32 && t.DType != kernels.I32 {
		panic(fmt.Sprintf("rank: a collective over %v", t.DType))
	}
	whole := t
	whole.Cols = t.Rows * t.Cols
	whole.DType = kernels.F32
	return whole.F32Row(0)
}
