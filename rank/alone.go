package rank

import (
	"github.com/octet-run/octet/kernels"
	"github.com/octet-run/octet/model"
	"github.com/octet-run/octet/model/layers"
)

// alone is the layers.Reducer of a rank that is timed without the others: its own
// partial sums are the sums, and the rest of the arithmetic is done.
type alone struct {
	backend kernels.Backend
	shard   model.Shard
}

var _ layers.Reducer = (*alone)(nil)

func (a *alone) Rank() int { return a.shard.Rank }
func (a *alone) Size() int { return a.shard.Ranks }

// Partial is scratch of the pass.
func (a *alone) Partial(rows, width int) kernels.Tensor {
	return a.backend.Scratch(a.backend.Activation(), rows, width)
}

// AllReduce has nothing to add.
func (a *alone) AllReduce(partial kernels.Tensor) kernels.Tensor { return partial }

// AllReduceAddNorm adds the partial to the residual and normalises.
func (a *alone) AllReduceAddNorm(partial, residual, weight kernels.Tensor, eps float32) kernels.Tensor {
	normed := a.backend.Scratch(residual.DType, residual.Rows, residual.Cols)
	a.backend.AddRMSNorm(normed, residual, partial, weight, eps)
	return normed
}

// GatherToRoot has no columns but the rank's own.
func (a *alone) GatherToRoot(shard kernels.Tensor, _ []int) kernels.Tensor { return shard }

// Broadcast has nobody to send to.
func (a *alone) Broadcast(kernels.Tensor, int) {}
