package cpu

import "github.com/octet-run/octet/kernels"

// RMSNorm normalises each group of weight.Cols values of every row. dst may be x.
func (b *Backend) RMSNorm(dst, x, weight kernels.Tensor, eps float32) {
	if !b.same("RMSNorm", dst, x) || !b.groups("RMSNorm", x.Cols, weight) {
		return
	}
	w := b.weightRow(weight)
	for t := range x.Rows {
		b.normGroups(dst.F32Row(t), x.F32Row(t), w, eps)
	}
}

// AddRMSNorm adds x to residual in place, then writes the norm of the sum to
// dst: the arithmetic of Add, then RMSNorm.
func (b *Backend) AddRMSNorm(dst, residual, x, weight kernels.Tensor, eps float32) {
	if !b.same("AddRMSNorm", dst, residual, x) || !b.groups("AddRMSNorm", x.Cols, weight) {
		return
	}
	w := b.weightRow(weight)
	for t := range x.Rows {
		sum := residual.F32Row(t)
		b.add(sum, sum, x.F32Row(t))
		b.normGroups(dst.F32Row(t), sum, w, eps)
	}
}

func (b *Backend) normGroups(dst, x, w []float32, eps float32) {
	for lo := 0; lo < len(x); lo += len(w) {
		hi := lo + len(w)
		b.scaleMul(dst[lo:hi], x[lo:hi], w, InverseRMS(b.squares(x[lo:hi]), len(w), eps))
	}
}

// squares adds the squares of x: lanes within a segment, segments in order.
func (b *Backend) squares(x []float32) float32 {
	var total float32
	for lo := 0; lo < len(x); lo += NormSegment {
		total += b.sumSquares(x[lo:min(lo+NormSegment, len(x))])
	}
	return total
}

// weightRow is the one row of a weight as F32, valid for this call.
func (b *Backend) weightRow(w kernels.Tensor) []float32 {
	if w.DType == kernels.F32 {
		return w.F32Row(0)
	}
	b.work.reset()
	wide, err := takeTensor(&b.work, kernels.F32, 1, w.Cols)
	if err != nil {
		b.fail(err)
		return make([]float32, w.Cols)
	}
	row := wide.F32Row(0)
	Widen(row, w, 0)
	return row
}
