package cpu

import "github.com/octet-run/octet/kernels"

const (
	blockSize = 128 // FP8Block: rows and columns that share a scale
	groupSize = 32  // INT4Group: columns that share a scale
)

// oracleMatMul writes dst[t,o] = sum_i x[t,i] w[o,i] + bias[o].
func oracleMatMul(dst, x kernels.Tensor, w kernels.Matrix) {
	for t := range x.Rows {
		row, out := x.F32Row(t), dst.F32Row(t)
		for o := range w.Out {
			out[o] = oracleDot(w, o, row)
			if !w.Bias.Empty() {
				out[o] += loadF32(w.Bias, 0, o)
			}
		}
	}
}

// oracleDot is output o of w for one row x.
func oracleDot(w kernels.Matrix, o int, x []float32) float32 {
	switch {
	case w.Format == kernels.INT4Group:
		return oracleDotINT4(w.Data.I32Row(o), w.Scale, o, x)
	case w.Format == kernels.FP8Block:
		return oracleDotFP8(w, o, x)
	case w.Data.DType == kernels.BF16:
		return oracleDotBF16(w.Data.U16Row(o), x)
	case w.Data.DType == kernels.F16:
		return oracleDotF16(w.Data.U16Row(o), x)
	}
	return oracleDotF32(w.Data.F32Row(o), x)
}

func oracleDotBF16(w []uint16, x []float32) float32 {
	var lanes [16]float32
	for k, v := range w {
		l := k % 32 / 2
		lanes[l] = fma32(bf16ToF32(v), x[k], lanes[l])
	}
	return sum16(&lanes)
}

func oracleDotF16(w []uint16, x []float32) float32 {
	var lanes [16]float32
	for k, v := range w {
		lanes[k%16] = fma32(f16ToF32(v), x[k], lanes[k%16])
	}
	return sum16(&lanes)
}

func oracleDotF32(w, x []float32) float32 {
	var lanes [16]float32
	for k, v := range w {
		lanes[k%16] = fma32(v, x[k], lanes[k%16])
	}
	return sum16(&lanes)
}

// oracleDotINT4 sums the eight products of a packed word before it scales them:
// the words of one scale are in adjacent lanes.
func oracleDotINT4(packed []int32, scale kernels.Tensor, o int, x []float32) float32 {
	var lanes [16]float32
	for i, word := range packed {
		var sum float32
		for j := range 8 {
			nibble := float32(int(uint32(word)>>(4*j)&15) - 8)
			sum = fma32(nibble, x[8*i+j], sum)
		}
		lanes[i%16] = fma32(sum, loadF32(scale, o, 8*i/groupSize), lanes[i%16])
	}
	return sum16(&lanes)
}

func oracleDotFP8(w kernels.Matrix, o int, x []float32) float32 {
	var lanes [16]float32
	row := w.Data.ByteRow(o)
	scaleRow := (w.RowPhase + o) / blockSize
	for lo := 0; lo < w.In; {
		block := (w.ColPhase + lo) / blockSize
		hi := min((block+1)*blockSize-w.ColPhase, w.In)
		var sum [16]float32
		for k := lo; k < hi; k++ {
			l := (w.ColPhase + k) % 16
			sum[l] = fma32(f8Small(row[k]), x[k], sum[l])
		}
		scale := loadF32(w.Scale, scaleRow, block) * f8Scale
		for l := range lanes {
			lanes[l] = fma32(sum[l], scale, lanes[l])
		}
		lo = hi
	}
	return sum16(&lanes)
}

// rowsOf is the part of w that yields outputs [lo, hi).
func rowsOf(w kernels.Matrix, lo, hi int) kernels.Matrix {
	w.Out = hi - lo
	w.Data = w.Data.RowRange(lo, hi)
	switch w.Format {
	case kernels.INT4Group:
		w.Scale = w.Scale.RowRange(lo, hi)
	case kernels.FP8Block:
		first := (w.RowPhase + lo) / blockSize
		last := (w.RowPhase + hi + blockSize - 1) / blockSize
		w.Scale = w.Scale.RowRange(first, max(first, last))
		w.RowPhase = (w.RowPhase + lo) % blockSize
	}
	if !w.Bias.Empty() {
		w.Bias = w.Bias.ColRange(lo, hi)
	}
	return w
}
