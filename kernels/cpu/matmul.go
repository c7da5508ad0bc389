package cpu

import "github.com/octet-run/octet/kernels"

// MatMul writes dst[t,o] = sum_i x[t,i] w[o,i] + bias[o].
func (b *Backend) MatMul(dst, x kernels.Tensor, w kernels.Matrix) {
	if !b.fits("MatMul", dst, x, w, 1) {
		return
	}
	oracleMatMul(dst, x, w)
}

// MatMulBlocks is the block-diagonal product: with o = w.Out/blocks and n = w.In,
// dst[t, c*o+j] = sum_i x[t, c*n+i] w[c*o+j, i].
func (b *Backend) MatMulBlocks(dst, x kernels.Tensor, w kernels.Matrix, blocks int) {
	if !b.fits("MatMulBlocks", dst, x, w, blocks) {
		return
	}
	out := w.Out / blocks
	for c := range blocks {
		oracleMatMul(dst.ColRange(c*out, (c+1)*out), x.ColRange(c*w.In, (c+1)*w.In), rowsOf(w, c*out, (c+1)*out))
	}
}

func (b *Backend) fits(op string, dst, x kernels.Tensor, w kernels.Matrix, blocks int) bool {
	return b.ok(op, blocks > 0 && w.Out%blocks == 0 && dst.Rows == x.Rows && dst.Cols == w.Out && x.Cols == blocks*w.In,
		"x [%d, %d] times w [%d, %d] in %d blocks into [%d, %d]", x.Rows, x.Cols, w.Out, w.In, blocks, dst.Rows, dst.Cols) &&
		b.ok(op, dst.DType == kernels.F32 && x.DType == kernels.F32, "%v to %v: activations are f32", x.DType, dst.DType)
}
