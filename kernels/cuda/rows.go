//go:build cuda

package cuda

import (
	"github.com/octet-run/octet/kernels"
)

// matrix2D is src/rows.cu's view of a tensor.
type matrix2D struct {
	data               uint64
	rows, cols, stride uint32
	dtype              uint32
}

func view(t kernels.Tensor) matrix2D {
	return matrix2D{uint64(t.Device), uint32(t.Rows), uint32(t.Cols), uint32(t.Stride), uint32(t.DType)}
}

// same reports whether the tensors are activations of one shape.
func (b *Backend) same(op string, first kernels.Tensor, rest ...kernels.Tensor) bool {
	for _, t := range rest {
		if !b.ok(op, t.Rows == first.Rows && t.Cols == first.Cols && t.DType == first.DType, "%v [%d, %d] beside %v [%d, %d]",
			t.DType, t.Rows, t.Cols, first.DType, first.Rows, first.Cols) {
			return false
		}
	}
	return b.ok(op, first.DType == kernels.BF16, "activations are %v, not bf16", first.DType) && !first.Empty()
}

const rowThreads = 256

// vectors reports whether every row begins at a multiple of 16 bytes.
func vectors(list ...kernels.Tensor) bool {
	for _, t := range list {
		if t.Device%16 != 0 || t.Stride*t.DType.Bytes()%16 != 0 {
			return false
		}
	}
	return true
}

// wideGrid covers rows of cols elements, some elements a thread.
func wideGrid(rows, cols int) grid {
	return grid{x: max(1, min((cols+rowThreads-1)/rowThreads, 64)), y: rows, threads: rowThreads}
}

type embedParams struct {
	dst, table matrix2D
	tokens     uint64
	first      int32
	_          uint32
}

// Embed writes dst[t] = table[Batch.Tokens[t]-first], or zeros.
func (b *Backend) Embed(dst, table kernels.Tensor, first int) {
	if !b.ok("Embed", dst.Rows == b.batch.rows && dst.Cols == table.Cols && dst.DType == kernels.BF16,
		"dst is %v [%d, %d] for %d tokens of %d values", dst.DType, dst.Rows, dst.Cols, b.batch.rows, table.Cols) || dst.Empty() {
		return
	}
	params := embedParams{dst: view(dst), table: view(table), tokens: uint64(b.batch.tokens), first: int32(first)}
	run(b, "rows", "embed", grid{x: dst.Rows, y: 1, threads: rowThreads}, &params)
}

// inverse is src/norm.cuh's InverseCols, 1/n in two floats.
type inverse struct{ high, rest float32 }

func inverseOf(n int) inverse {
	exact := 1 / float64(n)
	high := float32(exact)
	return inverse{high, float32(exact - float64(high))}
}

type normParams struct {
	dst, x, residual matrix2D
	weight           uint64
	inverseCols      inverse
	weightType, cols uint32
	eps              float32
	wholeWords       uint32
}

// maxNorm is src/rows.cu's MAX_NORM.
const maxNorm = 16384

// RMSNorm normalises each group of weight.Cols values of every row.
func (b *Backend) RMSNorm(dst, x, weight kernels.Tensor, eps float32) {
	b.norm("RMSNorm", dst, kernels.Tensor{}, x, weight, eps)
}

// AddRMSNorm adds x to residual in place, then writes the norm of the sum to dst.
func (b *Backend) AddRMSNorm(dst, residual, x, weight kernels.Tensor, eps float32) {
	if b.same("AddRMSNorm", dst, residual) {
		b.norm("AddRMSNorm", dst, residual, x, weight, eps)
	}
}

func (b *Backend) norm(op string, dst, residual, x, weight kernels.Tensor, eps float32) {
	if !b.ok(op, weight.Cols > 0 && weight.Cols <= maxNorm && x.Cols%weight.Cols == 0, "rows of %d values, weight of %d: at most %d",
		x.Cols, weight.Cols, maxNorm) || !b.same(op, dst, x) {
		return
	}
	params := normParams{
		dst: view(dst), x: view(x), residual: view(residual), weight: uint64(weight.Device),
		inverseCols: inverseOf(weight.Cols), weightType: uint32(weight.DType), cols: uint32(weight.Cols), eps: eps,
	}
	if weight.Cols%8 == 0 && weight.DType == kernels.BF16 && vectors(dst, x, residual, weight) {
		params.wholeWords = 1
	}
	threads := min(1024, max(64, (weight.Cols/8+31)&^31))
	run(b, "rows", "rms_norm", grid{x: x.Rows, y: x.Cols / weight.Cols, threads: threads}, &params)
}

// Add writes dst = x + y. dst may be either.
func (b *Backend) Add(dst, x, y kernels.Tensor) {
	if b.same("Add", dst, x, y) {
		run(b, "rows", "add_rows", wideGrid(dst.Rows, dst.Cols), &[3]matrix2D{view(dst), view(x), view(y)})
	}
}

// SwiGLU writes dst = silu(gate) * up.
func (b *Backend) SwiGLU(dst, gate, up kernels.Tensor) {
	if b.same("SwiGLU", dst, gate, up) {
		run(b, "rows", "swiglu", wideGrid(dst.Rows, dst.Cols), &[3]matrix2D{view(dst), view(gate), view(up)})
	}
}

type copyParams struct {
	dst, src             uint64
	dstStride, srcStride uint64
	to, from             uint64
	bytes, count         uint32
}

// copyRows copies rows of dst's width; to and from index rows, or are 0.
func (b *Backend) copyRows(dst, src kernels.Tensor, rows int, to, from uintptr) {
	size := dst.DType.Bytes()
	if rows == 0 || dst.Cols == 0 || !b.ok("copy", dst.Cols*size%2 == 0, "rows of %d bytes", dst.Cols*size) {
		return
	}
	params := copyOf(dst, src, to, from)
	run(b, "rows", "copy_rows", wideGrid(rows, dst.Cols*size/2), &params)
}

func copyOf(dst, src kernels.Tensor, to, from uintptr) copyParams {
	size := dst.DType.Bytes()
	return copyParams{
		dst: uint64(dst.Device), src: uint64(src.Device), dstStride: uint64(dst.Stride * size), srcStride: uint64(src.Stride * size),
		to: uint64(to), from: uint64(from), bytes: uint32(dst.Cols * size),
	}
}

// Concat writes dst = [x | y] by columns.
func (b *Backend) Concat(dst, x, y kernels.Tensor) {
	if !b.ok("Concat", dst.Rows == x.Rows && dst.Rows == y.Rows && dst.Cols == x.Cols+y.Cols && x.DType == dst.DType && y.DType == dst.DType,
		"[%d, %d] and [%d, %d] into [%d, %d]", x.Rows, x.Cols, y.Rows, y.Cols, dst.Rows, dst.Cols) {
		return
	}
	b.copyRows(dst.ColRange(0, x.Cols), x, x.Rows, 0, 0)
	b.copyRows(dst.ColRange(x.Cols, dst.Cols), y, y.Rows, 0, 0)
}

// Copy writes dst = src.
func (b *Backend) Copy(dst, src kernels.Tensor) {
	if b.ok("Copy", dst.Rows == src.Rows && dst.Cols == src.Cols && dst.DType == src.DType, "%v [%d, %d] into %v [%d, %d]",
		src.DType, src.Rows, src.Cols, dst.DType, dst.Rows, dst.Cols) {
		b.copyRows(dst, src, dst.Rows, 0, 0)
	}
}

// Gather writes dst[i] = x[rows[i]].
func (b *Backend) Gather(dst, x kernels.Tensor, rows []int32) {
	if !b.ok("Gather", dst.Rows == len(rows) && dst.Cols == x.Cols && dst.DType == x.DType, "%d rows of %v [%d, %d] into %v [%d, %d]",
		len(rows), x.DType, x.Rows, x.Cols, dst.DType, dst.Rows, dst.Cols) || len(rows) == 0 {
		return
	}
	list := b.workspace("gather", 4*len(rows))
	b.send(list, rows)
	b.copyRows(dst, x, len(rows), 0, list)
}

// StoreKV writes k and v rows to kv at Batch.Slots.
func (b *Backend) StoreKV(kv kernels.KV, k, v kernels.Tensor) {
	if !b.ok("StoreKV", k.Rows <= b.batch.rows && k.Cols == kv.K.Cols && v.Cols == kv.V.Cols && k.DType == kv.K.DType,
		"%d rows of %v %d and %d values for %d slots of %v %d and %d", k.Rows, k.DType, k.Cols, v.Cols, b.batch.rows, kv.K.DType,
		kv.K.Cols, kv.V.Cols) {
		return
	}
	if k.Rows == 0 || !b.ok("StoreKV", k.Cols*k.DType.Bytes()%2 == 0 && v.Cols*v.DType.Bytes()%2 == 0, "rows of %v %d and %d", k.DType,
		k.Cols, v.Cols) {
		return
	}
	g := wideGrid(k.Rows, max(k.Cols, v.Cols)*k.DType.Bytes()/2)
	g.z = 2
	run(b, "rows", "store_rows", g, &[2]copyParams{copyOf(kv.K, k, b.batch.slots, 0), copyOf(kv.V, v, b.batch.slots, 0)})
}

// MoveKV copies cache rows from[i] to to[i], in order (tree commit).
func (b *Backend) MoveKV(kv kernels.KV, from, to []int32) {
	if !b.ok("MoveKV", len(from) == len(to), "%d rows to %d places", len(from), len(to)) || len(from) == 0 {
		return
	}
	list := b.workspace("move", 8*len(from))
	b.send(list, from)
	b.send(list+uintptr(4*len(from)), to)
	for _, t := range []kernels.Tensor{kv.K, kv.V} {
		if t.Empty() {
			continue
		}
		size := t.DType.Bytes()
		params := copyParams{
			dst: uint64(t.Device), src: uint64(t.Device), dstStride: uint64(t.Stride * size), srcStride: uint64(t.Stride * size),
			to: uint64(list) + uint64(4*len(from)), from: uint64(list), bytes: uint32(t.Cols * size), count: uint32(len(from)),
		}
		run(b, "rows", "move_rows", grid{x: 1, y: 1, threads: rowThreads}, &params)
	}
}

type rotateParams struct {
	x                                  matrix2D
	cos, sin, positions                uint64
	tableStride, headDim, offset, half uint32
	next, step                         uint32
}

// Rotate applies r in place to columns [offset, offset+r.Dim) of each head.
func (b *Backend) Rotate(x kernels.Tensor, heads, headDim, offset int, r kernels.Rope) {
	if !b.ok("Rotate", x.Cols == heads*headDim && offset+r.Dim <= headDim && x.Rows <= b.batch.rows && x.DType == kernels.BF16 &&
		r.Cos.DType == kernels.F32 && r.Sin.Stride == r.Cos.Stride, "%v [%d, %d] as %d heads of %d, rotating %d from %d", x.DType, x.Rows,
		x.Cols, heads, headDim, r.Dim, offset) || x.Empty() || r.Dim == 0 {
		return
	}
	next, step := r.Dim/2, 1
	if r.Interleaved {
		next, step = 1, 2
	}
	params := rotateParams{
		x: view(x), cos: uint64(r.Cos.Device), sin: uint64(r.Sin.Device), positions: uint64(b.batch.positions),
		tableStride: uint32(r.Cos.Stride), headDim: uint32(headDim), offset: uint32(offset), half: uint32(r.Dim / 2),
		next: uint32(next), step: uint32(step),
	}
	run(b, "rows", "rotate", grid{x: x.Rows, y: heads, threads: min(256, (r.Dim/2+31)&^31)}, &params)
}

type topKParams struct {
	values, ids, x matrix2D
	k              uint64
}

// TopK writes the k largest of each row, largest first, the lower index first on ties.
func (b *Backend) TopK(values, ids, x kernels.Tensor, k int) {
	if !b.ok("TopK", k > 0 && values.Rows == x.Rows && ids.Rows == x.Rows && values.Cols == k && ids.Cols == k,
		"k = %d, values [%d, %d], ids [%d, %d] for %d rows", k, values.Rows, values.Cols, ids.Rows, ids.Cols, x.Rows) || x.Rows == 0 {
		return
	}
	params := topKParams{view(values), view(ids), view(x), uint64(k)}
	run(b, "rows", "top_k", grid{x: x.Rows, y: 1, threads: 1024}, &params)
}

// LogSumExp writes log(sum(exp(x[t]))) to dst F32 [t, 1].
func (b *Backend) LogSumExp(dst, x kernels.Tensor) {
	if b.ok("LogSumExp", dst.Rows == x.Rows && dst.Cols == 1, "dst is [%d, %d] for %d rows", dst.Rows, dst.Cols, x.Rows) && x.Rows > 0 {
		run(b, "rows", "log_sum_exp", grid{x: x.Rows, y: 1, threads: 1024}, &[2]matrix2D{view(dst), view(x)})
	}
}

// The bounds of src/rows.cu's route.
const maxExperts, maxGroups, maxChosen = 1024, 64, 64

type routeParams struct {
	ids, weights, logits    matrix2D
	bias                    uint64
	biasType, experts, topK uint32
	groups, topGroups       uint32
	sigmoid, normalize      uint32
	scale                   float32
}

// Route fills ids (I32 [t, TopK]) and weights (F32 [t, TopK]) from router logits.
func (b *Backend) Route(ids, weights, logits kernels.Tensor, r kernels.Router) {
	groups := max(r.Groups, 1)
	if !b.ok("Route", logits.Cols == r.Experts && ids.Cols == r.TopK && weights.Cols == r.TopK && r.TopK <= r.Experts &&
		ids.Rows == logits.Rows && weights.Rows == logits.Rows && r.Experts%groups == 0 && r.Experts <= maxExperts &&
		groups <= maxGroups && r.TopK <= maxChosen, "logits [%d, %d], ids [%d, %d], weights [%d, %d] for %d of %d experts in %d groups",
		logits.Rows, logits.Cols, ids.Rows, ids.Cols, weights.Rows, weights.Cols, r.TopK, r.Experts, groups) || logits.Rows == 0 {
		return
	}
	flag := func(v bool) uint32 {
		if v {
			return 1
		}
		return 0
	}
	scale := r.Scale
	if scale == 0 {
		scale = 1
	}
	params := routeParams{
		ids: view(ids), weights: view(weights), logits: view(logits), bias: uint64(r.Bias.Device), biasType: uint32(r.Bias.DType),
		experts: uint32(r.Experts), topK: uint32(r.TopK), groups: uint32(groups), topGroups: uint32(r.TopGroups),
		sigmoid: flag(r.Sigmoid), normalize: flag(r.Normalize), scale: scale,
	}
	run(b, "rows", "route", grid{x: logits.Rows, y: 1, threads: 256}, &params)
}
