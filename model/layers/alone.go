package layers

import "github.com/octet-run/octet/kernels"

// Alone is the Reducer of a group of one: a partial sum is the sum. Results are
// valid until the backend's next pass.
type Alone struct {
	Backend kernels.Backend
}

var _ Reducer = Alone{}

// Rank is 0.
func (Alone) Rank() int { return 0 }

// Size is 1.
func (Alone) Size() int { return 1 }

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
