package cpu

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/octet-run/octet/kernels"
)

func newBackend(t testing.TB, c Config) *Backend {
	t.Helper()
	b, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// source makes random tensors, with a stride beyond their width.
type source struct{ *rand.Rand }

func newSource(seed uint64) source { return source{rand.New(rand.NewPCG(seed, 1))} }

func (s source) f32(rows, cols int) kernels.Tensor {
	stride := cols + s.IntN(5)
	data := make([]float32, max(rows*stride, 1))
	for i := range data {
		data[i] = float32(s.NormFloat64())
	}
	t := kernels.HostTensor(kernels.F32, rows, cols, data)
	t.Stride = stride
	return t
}

func (s source) i32(rows, cols, n int) kernels.Tensor {
	data := make([]int32, max(rows*cols, 1))
	for i := range data {
		data[i] = int32(s.IntN(n))
	}
	return kernels.HostTensor(kernels.I32, rows, cols, data)
}

func (s source) plain(d kernels.DType, rows, cols int) kernels.Tensor {
	wide := s.f32(rows, cols)
	if d == kernels.F32 {
		return wide
	}
	t := kernels.HostTensor(d, rows, cols, make([]uint16, max(rows*wide.Stride, 1)))
	t.Stride = wide.Stride
	for r := range rows {
		narrow(t, r, wide.F32Row(r))
	}
	return t
}

// matrices has one matrix of every format and of about the shape asked for.
func (s source) matrices(out, in int) map[string]kernels.Matrix {
	in32 := max(32, in/32*32)
	packed := s.i32(out, in32/8, math.MaxInt32)
	for i := range out {
		for j, v := range packed.I32Row(i) {
			packed.I32Row(i)[j] = v<<1 | int32(s.IntN(2))
		}
	}
	bytes := make([]uint8, max(out*in, 1))
	for i := range bytes {
		for bytes[i] = uint8(s.Uint32()); bytes[i]&0x7f == 0x7f; bytes[i]++ {
		}
	}
	rowPhase, colPhase := s.IntN(128), s.IntN(2)*s.IntN(128)
	blocks := func(n, phase int) int { return (n + phase + 127) / 128 }
	return map[string]kernels.Matrix{
		"bf16": {Out: out, In: in, Data: s.plain(kernels.BF16, out, in), Bias: s.plain(kernels.BF16, 1, out)},
		"f16":  {Out: out, In: in, Data: s.plain(kernels.F16, out, in)},
		"f32":  {Out: out, In: in, Data: s.plain(kernels.F32, out, in), Bias: s.plain(kernels.F32, 1, out)},
		"int4": {
			Format: kernels.INT4Group, Out: out, In: in32, Data: packed,
			Scale: s.plain(kernels.BF16, out, in32/32),
		},
		"int4 f32 scale": {
			Format: kernels.INT4Group, Out: out, In: in32, Data: packed,
			Scale: s.plain(kernels.F32, out, in32/32), Bias: s.plain(kernels.F16, 1, out),
		},
		"fp8": {
			Format: kernels.FP8Block, Out: out, In: in, Data: kernels.HostTensor(kernels.F8E4M3, out, in, bytes),
			Scale:    s.f32(blocks(out, rowPhase), blocks(in, colPhase)),
			RowPhase: rowPhase, ColPhase: colPhase,
		},
	}
}

// weight is one dequantised weight, straight from the format's definition.
func weight(m kernels.Matrix, o, i int) float64 {
	switch m.Format {
	case kernels.INT4Group:
		word := uint32(m.Data.I32Row(o)[i/8])
		return float64(int(word>>(i%8*4)&15)-8) * float64(loadF32(m.Scale, o, i/32))
	case kernels.FP8Block:
		b := m.Data.ByteRow(o)[i]
		v := math.Ldexp(float64(b&7)/8+1, int(b>>3&15)-7)
		if b>>3&15 == 0 {
			v = math.Ldexp(float64(b&7)/8, -6)
		}
		if b&0x80 != 0 {
			v = -v
		}
		return v * float64(m.Scale.F32Row((m.RowPhase + o) / 128)[(m.ColPhase+i)/128])
	}
	return float64(loadF32(m.Data, o, i))
}

// near fails unless got is within tol of want, relative to size.
func near(t testing.TB, what string, got float32, want, size, tol float64) {
	t.Helper()
	if !(math.Abs(float64(got)-want) <= tol*size) {
		t.Fatalf("%s: got %v, want %v (size %v)", what, got, want, size)
	}
}

func sameBits(t testing.TB, what string, got, want kernels.Tensor) {
	t.Helper()
	for r := range want.Rows {
		for c, w := range want.F32Row(r) {
			if g := got.F32Row(r)[c]; math.Float32bits(g) != math.Float32bits(w) {
				t.Fatalf("%s [%d,%d]: got %v (%#x), want %v (%#x)", what, r, c, g, math.Float32bits(g), w, math.Float32bits(w))
			}
		}
	}
}
