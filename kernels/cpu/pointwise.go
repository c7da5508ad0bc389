package cpu

import (
	"math"

	"github.com/octet-run/octet/kernels"
)

// Add writes dst = x + y. dst may be either.
func (b *Backend) Add(dst, x, y kernels.Tensor) {
	if !b.same("Add", dst, x, y) {
		return
	}
	for t := range dst.Rows {
		b.add(dst.F32Row(t), x.F32Row(t), y.F32Row(t))
	}
}

// SwiGLU writes dst = silu(gate) * up.
func (b *Backend) SwiGLU(dst, gate, up kernels.Tensor) {
	if !b.same("SwiGLU", dst, gate, up) {
		return
	}
	for t := range dst.Rows {
		b.swiglu(dst.F32Row(t), gate.F32Row(t), up.F32Row(t))
	}
}

// LogSumExp writes log(sum(exp(x[t]))) to dst F32 [t, 1]. A row without values
// yields -Inf.
func (b *Backend) LogSumExp(dst, x kernels.Tensor) {
	if dst.Rows != x.Rows || dst.Cols != 1 {
		b.misfit("LogSumExp", "dst is [%d, %d] for %d rows", dst.Rows, dst.Cols, x.Rows)
		return
	}
	for t := range x.Rows {
		dst.F32Row(t)[0] = b.logSumExp(x.F32Row(t))
	}
}

func (b *Backend) logSumExp(x []float32) float32 {
	m := b.max(x)
	if math.IsInf(float64(m), -1) {
		return m
	}
	return float32(float64(m) + math.Log(float64(b.sumExp(x, m))))
}
