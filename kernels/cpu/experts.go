package cpu

import "github.com/octet-run/octet/kernels"

// expertRows is how many rows Experts takes at a time, which bounds its memory.
const expertRows = 128

// Experts adds to dst the weighted outputs of the chosen experts among
// [first, first+len(gate)), in the order of ids; others are another rank's.
func (b *Backend) Experts(dst, x, ids, weights kernels.Tensor, gate, up, down []kernels.Matrix, first int) {
	if len(gate) != len(up) || len(gate) != len(down) || ids.Rows != x.Rows || weights.Rows != x.Rows ||
		ids.Cols != weights.Cols || dst.Rows != x.Rows || dst.Cols != x.Cols {
		b.misfit("Experts", "x [%d, %d], dst [%d, %d], ids [%d, %d], %d gate, %d up, %d down matrices", x.Rows, x.Cols, dst.Rows, dst.Cols,
			ids.Rows, ids.Cols, len(gate), len(up), len(down))
		return
	}
	for lo := 0; lo < x.Rows && len(gate) > 0; lo += expertRows {
		hi := min(lo+expertRows, x.Rows)
		b.expertBlock(dst.RowRange(lo, hi), x.RowRange(lo, hi), ids.RowRange(lo, hi), weights.RowRange(lo, hi), gate, up, down, first)
	}
}

// expertBlock runs each expert once over all rows that chose it, so its weights
// are read once, and then adds up each row's outputs in the order of its ids.
func (b *Backend) expertBlock(dst, x, ids, weights kernels.Tensor, gate, up, down []kernels.Matrix, first int) {
	b.work.reset()
	rows, width := x.Rows, gate[0].Out
	in := b.workTensor(kernels.F32, rows, x.Cols)
	g := b.workTensor(kernels.F32, rows, width)
	u := b.workTensor(kernels.F32, rows, width)
	out := b.workTensor(kernels.F32, rows*ids.Cols, x.Cols) // [row*TopK + choice, hidden]
	tmp := b.workTensor(kernels.F32, rows, x.Cols)
	places := b.workTensor(kernels.I32, 1, rows*ids.Cols)
	if b.err != nil {
		return
	}
	for e := range gate {
		found := places.I32Row(0)[:0]
		for t := range rows {
			for c, id := range ids.I32Row(t) {
				if int(id) == first+e {
					found = append(found, int32(t*ids.Cols+c))
				}
			}
		}
		n := len(found)
		if n == 0 {
			continue
		}
		for i, place := range found {
			copy(in.F32Row(i), x.F32Row(int(place)/ids.Cols))
		}
		b.multiplyBoth(g.RowRange(0, n), u.RowRange(0, n), in.RowRange(0, n), gate[e], up[e])
		for i := range n {
			b.swiglu(g.F32Row(i), g.F32Row(i), u.F32Row(i))
		}
		b.multiply(tmp.RowRange(0, n), g.RowRange(0, n), down[e])
		for i, place := range found {
			copy(out.F32Row(int(place)), tmp.F32Row(i))
		}
	}
	for t := range rows {
		for c, id := range ids.I32Row(t) {
			if e := int(id) - first; e >= 0 && e < len(gate) {
				b.axpy(dst.F32Row(t), weights.F32Row(t)[c], out.F32Row(t*ids.Cols+c))
			}
		}
	}
}

// workTensor is memory within the current call, which has reset b.work.
func (b *Backend) workTensor(d kernels.DType, rows, cols int) kernels.Tensor {
	t, err := takeTensor(&b.work, d, rows, cols)
	if err != nil {
		b.fail(err)
	}
	return t
}
