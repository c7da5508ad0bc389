package layers

import "github.com/octet-run/octet/kernels"

// Reducer is all that layers see of collectives. Calls enqueue on the rank's
// stream; the first error surfaces when the stream ends, so that a pass can be
// captured. Every rank of the group makes the same calls in the same order.
type Reducer interface {
	Rank() int
	Size() int
	// Partial returns slab memory for a [rows, width] partial sum. The producer
	// writes straight into it. It is valid until the reduction it is passed to.
	Partial(rows, width int) kernels.Tensor
	// AllReduce returns the sum over ranks of their partials, valid until the
	// next call but one.
	AllReduce(partial kernels.Tensor) kernels.Tensor
	// AllReduceAddNorm adds the summed partial to residual, in place, and returns
	// the rows of the new residual normalised with weight.
	AllReduceAddNorm(partial, residual, weight kernels.Tensor, eps float32) (normed kernels.Tensor)
	// GatherToRoot collects the columns of every rank's shard in rank order.
	// widths[r] is the number of columns rank r brings. Rank 0 gets [rows,
	// sum(widths)], the others an empty tensor.
	GatherToRoot(shard kernels.Tensor, widths []int) kernels.Tensor
	// Broadcast copies root's tensor of 32-bit elements to every rank, in place.
	Broadcast(t kernels.Tensor, root int)
}

// ResidualHolder is a Reducer that can hold the residual stream of a pass itself,
// where its fused form then costs less.
type ResidualHolder interface {
	Reducer
	// Residual returns memory for a [rows, width] residual, or an empty tensor. It
	// is one memory for all ranks: they write equal values to it, after a reduction
	// of the same pass.
	Residual(rows, width int) kernels.Tensor
}
