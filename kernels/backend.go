package kernels

// Backend is one rank's device. See the package comment for the contract.
//
// Activations are tensors of dtype Activation(). Every dst is fully written.
// dst never overlaps a source unless the method says so. Tensors may be empty.
type Backend interface {
	Name() string
	Activation() DType

	// Alloc returns zeroed memory that lives until Close.
	Alloc(d DType, rows, cols int) (Tensor, error)
	// Upload makes host weights usable by the device. A CPU returns the argument.
	Upload(host Tensor) (Tensor, error)
	// BeginPass starts a pass over b: scratch of the last pass is free again.
	BeginPass(b *Batch)
	// Scratch returns memory that is valid until the next BeginPass, not zeroed.
	Scratch(d DType, rows, cols int) Tensor
	// Download copies t to host memory after everything enqueued, in row order.
	Download(dst []byte, t Tensor) error
	// Sync waits for everything enqueued and returns the first error since the last Sync.
	Sync() error
	Close() error

	// Embed writes dst[t] = table[Batch.Tokens[t]-first], or zeros where that row
	// is not in the table (a vocabulary shard).
	Embed(dst, table Tensor, first int)
	// MatMul writes dst[t,o] = sum_i x[t,i] w[o,i] + bias[o]. dst is F32 for logits,
	// the router's and the head's, whatever Activation() is. w.In may be 0.
	MatMul(dst, x Tensor, w Matrix)
	// MatMuls is MatMul of each, at once or in any order: no Dst is the X of another.
	MatMuls(products []Product)
	// MatMulBlocks is the block-diagonal product used by absorbed MLA: with
	// o = w.Out/blocks and n = w.In, dst[t, b*o+j] = sum_i x[t, b*n+i] w[b*o+j, i].
	MatMulBlocks(dst, x Tensor, w Matrix, blocks int)
	// RMSNorm normalises each group of weight.Cols values of every row. dst may be x.
	RMSNorm(dst, x, weight Tensor, eps float32)
	// AddRMSNorm adds x to residual in place, then writes the norm of the sum to dst.
	AddRMSNorm(dst, residual, x, weight Tensor, eps float32)
	// Add writes dst = a + b. dst may be a or b.
	Add(dst, a, b Tensor)
	// Concat writes dst = [a | b] by columns.
	Concat(dst, a, b Tensor)
	// Copy writes dst = src.
	Copy(dst, src Tensor)
	// Rotate applies r in place to columns [offset, offset+r.Dim) of each of the
	// heads of headDim values in x, at Batch.Positions.
	Rotate(x Tensor, heads, headDim, offset int, r Rope)
	// StoreKV writes k and v rows to kv at Batch.Slots.
	StoreKV(kv KV, k, v Tensor)
	// MoveKV copies cache rows from[i] to to[i], in order (tree commit).
	MoveKV(kv KV, from, to []int32)
	// Attention writes softmax(scale q·k) v for every row over what Batch lets it
	// see. window > 0 limits it to the last window positions, itself included.
	Attention(dst, q Tensor, kv KV, h Heads, scale float32, window int)
	// LatentAttention is absorbed MLA: q is [t, heads*(latent+rope)], kv.K rows are
	// latent|rope, dst is [t, heads*latent], the weighted sum of latents.
	LatentAttention(dst, q Tensor, kv KV, heads, latent, rope int, scale float32)
	// SwiGLU writes dst = silu(gate) * up.
	SwiGLU(dst, gate, up Tensor)
	// Route fills ids (I32 [t, TopK]) and weights (F32 [t, TopK]) from router logits.
	Route(ids, weights, logits Tensor, r Router)
	// Experts adds to dst the weighted outputs of the chosen experts among
	// [first, first+len(gate)), in the order of ids; others are another rank's.
	Experts(dst, x, ids, weights Tensor, gate, up, down []Matrix, first int)
	// TopK writes the k largest of each row, largest first, the lower index first
	// on ties: values F32 [t, k], ids I32 [t, k].
	TopK(values, ids, x Tensor, k int)
	// LogSumExp writes log(sum(exp(x[t]))) to dst F32 [t, 1].
	LogSumExp(dst, x Tensor)
	// Gather writes dst[i] = x[rows[i]].
	Gather(dst, x Tensor, rows []int32)
}
