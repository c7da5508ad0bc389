package cpu

import (
	"math"

	"github.com/octet-run/octet/kernels"
)

// The functions of this file are for collectives. They need no Backend, keep no
// state, may be used by many threads at once, and give the same bits in every
// instruction set, so each takes the best there is.

// maxSumTree is how many vectors SumTree adds: the ranks of a group.
const maxSumTree = 8

// SumTree writes the sum of 1 to 8 vectors to dst, which may be one of them, in
// the fixed tree ((0+1)+(2+3))+((4+5)+(6+7)); the last of an odd number at any
// level moves up. Every source is at least as long as dst.
func SumTree(dst []float32, srcs [][]float32) {
	if len(srcs) == 0 || len(srcs) > maxSumTree {
		panic("cpu: SumTree takes 1 to 8 vectors")
	}
	for _, src := range srcs {
		_ = src[:len(dst)]
	}
	sumTree(dst, srcs)
}

// Add writes dst = x + y over the length of dst, which may be either.
func Add(dst, x, y []float32) { add(dst, x[:len(dst)], y[:len(dst)]) }

// NormSegment is how many squares RMSNorm sums in lanes; the sums of segments
// are then added in order. Whoever computes norms in pieces (a fused all-reduce)
// cuts at multiples of it and gets the same bits.
const NormSegment = 512

// SegmentSquares is the sum of the squares of one segment: at most NormSegment
// values that begin at a multiple of it.
func SegmentSquares(x []float32) float32 { return sumSquares(x) }

// InverseRMS is 1/sqrt(squares/n + eps), rounded once from float64. squares is
// the sum of the segments' sums, added in order from zero.
func InverseRMS(squares float32, n int, eps float32) float32 {
	return float32(1 / math.Sqrt(float64(squares)/float64(n)+float64(eps)))
}

// Normalize writes dst = (x * inverseRMS) * weight over the length of dst.
func Normalize(dst, x, weight []float32, inverseRMS float32) {
	scaleMul(dst, x[:len(dst)], weight[:len(dst)], inverseRMS)
}

// NormRow normalises one row: the arithmetic of Backend.RMSNorm.
func NormRow(dst, x, weight []float32, eps float32) {
	var squares float32
	for lo := 0; lo < len(x); lo += NormSegment {
		squares += SegmentSquares(x[lo:min(lo+NormSegment, len(x))])
	}
	Normalize(dst, x, weight, InverseRMS(squares, len(x), eps))
}

// AddTree adds the tree sum of 1 to 8 vectors to dst: the arithmetic of SumTree, then
// Add. It returns the squares of the result as RMSNorm sums them. Every source is at
// least as long as dst.
func AddTree(dst []float32, srcs [][]float32) (squares float32) {
	if len(srcs) == 0 || len(srcs) > maxSumTree {
		panic("cpu: AddTree takes 1 to 8 vectors")
	}
	var segment [maxSumTree][]float32
	for lo := 0; lo < len(dst); lo += NormSegment {
		hi := min(lo+NormSegment, len(dst))
		for i, src := range srcs {
			segment[i] = src[lo:hi]
		}
		squares += addTree(dst[lo:hi], &segment, len(srcs))
	}
	return squares
}

// AddTreeNormRow adds the tree sum of 1 to 8 rows to residual, in place, and
// normalises the result into dst: the arithmetic of AddTree, then NormRow, without
// reading the row once more for its squares.
func AddTreeNormRow(dst, residual []float32, srcs [][]float32, weight []float32, eps float32) {
	Normalize(dst[:len(residual)], residual, weight, InverseRMS(AddTree(residual, srcs), len(residual), eps))
}

// Widen writes row r of a host tensor of any float type to dst, in float32.
func Widen(dst []float32, t kernels.Tensor, r int) {
	switch t.DType {
	case kernels.F32:
		copy(dst, t.F32Row(r))
	case kernels.BF16:
		widenBF16(dst, t.U16Row(r))
	case kernels.F16:
		widenF16(dst, t.U16Row(r))
	case kernels.F8E4M3:
		for i, v := range t.ByteRow(r) {
			dst[i] = f8ToF32(v)
		}
	}
}
