package cpu

import "github.com/octet-run/octet/kernels"

// Embed writes dst[t] = table[Tokens[t]-first], or zeros where that row is
// another rank's.
func (b *Backend) Embed(dst, table kernels.Tensor, first int) {
	if dst.Rows != len(b.batch.Tokens) || dst.Cols != table.Cols {
		b.misfit("Embed", "dst is [%d, %d] for %d tokens of %d values", dst.Rows, dst.Cols, len(b.batch.Tokens), table.Cols)
		return
	}
	if d := table.DType; d != kernels.F32 && d != kernels.BF16 && d != kernels.F16 {
		b.misfit("Embed", "table of %v: f32, bf16 or f16", d)
		return
	}
	for t, token := range b.batch.Tokens {
		row := dst.F32Row(t)
		if r := int(token) - first; r >= 0 && r < table.Rows {
			Widen(row, table, r)
		} else {
			clear(row)
		}
	}
}

// Concat writes dst = [x | y] by columns.
func (b *Backend) Concat(dst, x, y kernels.Tensor) {
	if dst.Rows != x.Rows || dst.Rows != y.Rows || dst.Cols != x.Cols+y.Cols {
		b.misfit("Concat", "[%d, %d] and [%d, %d] into [%d, %d]", x.Rows, x.Cols, y.Rows, y.Cols, dst.Rows, dst.Cols)
		return
	}
	for t := range dst.Rows {
		row := dst.F32Row(t)
		copy(row, x.F32Row(t))
		copy(row[x.Cols:], y.F32Row(t))
	}
}

// Copy writes dst = src.
func (b *Backend) Copy(dst, src kernels.Tensor) {
	if dst.Rows != src.Rows || dst.Cols != src.Cols || dst.DType != src.DType {
		b.misfit("Copy", "%v [%d, %d] into %v [%d, %d]", src.DType, src.Rows, src.Cols, dst.DType, dst.Rows, dst.Cols)
		return
	}
	for t := range dst.Rows {
		copy(dst.ByteRow(t), src.ByteRow(t))
	}
}

// Gather writes dst[i] = x[rows[i]].
func (b *Backend) Gather(dst, x kernels.Tensor, rows []int32) {
	if dst.Rows != len(rows) || dst.Cols != x.Cols || dst.DType != x.DType {
		b.misfit("Gather", "%d rows of %v [%d, %d] into %v [%d, %d]", len(rows), x.DType, x.Rows, x.Cols, dst.DType, dst.Rows, dst.Cols)
		return
	}
	for i, r := range rows {
		copy(dst.ByteRow(i), x.ByteRow(int(r)))
	}
}

// StoreKV writes k and v rows to kv at Batch.Slots, in the dtype of the cache.
func (b *Backend) StoreKV(kv kernels.KV, k, v kernels.Tensor) {
	if k.Rows > len(b.batch.Slots) || k.Cols != kv.K.Cols || v.Cols != kv.V.Cols {
		b.misfit("StoreKV", "%d rows of %d and %d values for %d slots of %d and %d", k.Rows, k.Cols, v.Cols, len(b.batch.Slots), kv.K.Cols, kv.V.Cols)
		return
	}
	for t := range k.Rows {
		slot := int(b.batch.Slots[t])
		narrow(kv.K, slot, k.F32Row(t))
		if v.Cols > 0 {
			narrow(kv.V, slot, v.F32Row(t))
		}
	}
}

// MoveKV copies cache rows from[i] to to[i], in order.
func (b *Backend) MoveKV(kv kernels.KV, from, to []int32) {
	if len(from) != len(to) {
		b.misfit("MoveKV", "%d rows to %d places", len(from), len(to))
		return
	}
	for i := range from {
		copy(kv.K.ByteRow(int(to[i])), kv.K.ByteRow(int(from[i])))
		if !kv.V.Empty() {
			copy(kv.V.ByteRow(int(to[i])), kv.V.ByteRow(int(from[i])))
		}
	}
}

// Rotate applies r in place to columns [offset, offset+r.Dim) of each head.
func (b *Backend) Rotate(x kernels.Tensor, heads, headDim, offset int, r kernels.Rope) {
	if x.Cols != heads*headDim || offset+r.Dim > headDim || x.Rows > len(b.batch.Positions) {
		b.misfit("Rotate", "[%d, %d] as %d heads of %d, rotating %d from %d", x.Rows, x.Cols, heads, headDim, r.Dim, offset)
		return
	}
	half := r.Dim / 2
	next, step := half, 1 // from the first of a pair to the second, and to the next pair
	if r.Interleaved {
		next, step = 1, 2
	}
	for t := range x.Rows {
		pos := int(b.batch.Positions[t])
		if pos < 0 || pos >= r.Cos.Rows {
			b.misfit("Rotate", "position %d of a table of %d", pos, r.Cos.Rows)
			return
		}
		cos, sin, row := r.Cos.F32Row(pos), r.Sin.F32Row(pos), x.F32Row(t)
		for h := range heads {
			head := row[h*headDim+offset:]
			for i := range half {
				a, c := head[i*step], head[i*step+next]
				// The conversions forbid a fused multiply-add.
				head[i*step] = float32(a*cos[i]) - float32(c*sin[i])
				head[i*step+next] = float32(c*cos[i]) + float32(a*sin[i])
			}
		}
	}
}
