package cpu

import (
	"math"

	"github.com/octet-run/octet/kernels"
)

// NormSegment is how many squares RMSNorm sums in lanes; the sums of segments
// are then added in order. Whoever computes norms in pieces (a fused all-reduce)
// cuts at multiples of it and gets the same bits.
const NormSegment = 512

// RMSNorm normalises each group of weight.Cols values of every row. dst may be x.
func (b *Backend) RMSNorm(dst, x, weight kernels.Tensor, eps float32) {
	if !b.same("RMSNorm", dst, x) || !b.ok("RMSNorm", weight.Cols > 0 && x.Cols%weight.Cols == 0,
		"rows of %d values, weight of %d", x.Cols, weight.Cols) {
		return
	}
	w := b.weightRow(weight)
	for t := range x.Rows {
		normGroups(dst.F32Row(t), x.F32Row(t), w, eps)
	}
}

// AddRMSNorm adds x to residual in place, then writes the norm of the sum to
// dst: the arithmetic of Add, then RMSNorm.
func (b *Backend) AddRMSNorm(dst, residual, x, weight kernels.Tensor, eps float32) {
	if !b.same("AddRMSNorm", dst, residual, x) || !b.ok("AddRMSNorm", weight.Cols > 0 && x.Cols%weight.Cols == 0,
		"rows of %d values, weight of %d", x.Cols, weight.Cols) {
		return
	}
	w := b.weightRow(weight)
	for t := range x.Rows {
		sum := residual.F32Row(t)
		oracleAdd(sum, sum, x.F32Row(t))
		normGroups(dst.F32Row(t), sum, w, eps)
	}
}

func normGroups(dst, x, w []float32, eps float32) {
	for lo := 0; lo < len(x); lo += len(w) {
		group := x[lo : lo+len(w)]
		inv := InverseRMS(sumSquares(group), len(w), eps)
		oracleScaleMul(dst[lo:lo+len(w)], group, w, inv)
	}
}

// sumSquares adds the squares of x: lanes within a segment, segments in order.
func sumSquares(x []float32) float32 {
	var total float32
	for lo := 0; lo < len(x); lo += NormSegment {
		total += oracleSumSquares(x[lo:min(lo+NormSegment, len(x))])
	}
	return total
}

// InverseRMS is 1/sqrt(squares/n + eps), rounded once from float64.
func InverseRMS(squares float32, n int, eps float32) float32 {
	return float32(1 / math.Sqrt(float64(squares)/float64(n)+float64(eps)))
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
	widen(row, w, 0)
	return row
}
