package layers

import (
	"github.com/octet-run/octet/kernels"
	"github.com/octet-run/octet/model"
)

// Alone is the Reducer of a group of one: a partial sum is the sum. Results are
// valid until the backend's next pass.
type Alone struct {
	Backend kernels.Backend
	// As is the rank whose part of the work is done, the others' left out: what a
	// benchmark of one rank's compute wants. Zero is rank 0 of 1.
	As model.Shard
}

var _ Reducer = Alone{}

// Rank is As.Rank.
func (a Alone) Rank() int { return a.As.Rank }

// Size is As.Ranks, or 1.
func (a Alone) Size() int { return max(1, a.As.Ranks) }

// Partial returns scratch memory.
func (a Alone) Partial(rows, width int) kernels.Tensor {
	return a.Backend.Scratch(a.Backend.Activation(), rows, width)
}

// AllReduce returns partial.
func (Alone) AllReduce(partial kernels.Tensor) kernels.Tensor { return partial }

// AllReduceAddNorm adds partial to residual, in place, and returns the norm.
func (a Alone) AllReduceAddNorm(partial, residual, weight kernels.Tensor, eps float32) kernels.Tensor {
	normed := a.Partial(partial.Rows, partial.Cols)
	a.Backend.AddRMSNorm(normed, residual, partial, weight, eps)
	return normed
}

// GatherToRoot returns shard.
func (Alone) GatherToRoot(shard kernels.Tensor, _ []int) kernels.Tensor { return shard }

// Broadcast does nothing.
func (Alone) Broadcast(kernels.Tensor, int) {}
