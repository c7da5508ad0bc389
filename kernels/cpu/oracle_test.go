package cpu

import (
	"math"
	"math/big"
	"slices"
	"testing"

	"github.com/octet-run/octet/kernels"
)

func TestFusedMultiplyAddRoundsOnce(t *testing.T) {
	s := newSource(1)
	exact := func(x, y, z float32) float32 {
		a, b, c := new(big.Float).SetPrec(500).SetFloat64(float64(x)), big.NewFloat(float64(y)), big.NewFloat(float64(z))
		f, _ := a.Mul(a, b).Add(a, c).Float32()
		return f
	}
	for range 200000 {
		// Few mantissa bits and a wide range of exponents provoke ties and subnormals.
		draw := func(bits uint, exps int) float32 {
			return float32(math.Ldexp(float64(s.IntN(1<<bits)+1)*float64(1-2*s.IntN(2)), s.IntN(exps)-exps/2))
		}
		x, y, z := draw(24, 60), draw(13, 60), draw(24, 100)
		if s.IntN(4) == 0 {
			x, y, z = draw(12, 130), draw(12, 130), draw(12, 270)
		}
		got, want := fma32(x, y, z), exact(x, y, z)
		if got != want {
			t.Fatalf("fma32(%v, %v, %v) = %v, want %v", x, y, z, got, want)
		}
	}
}

func TestHalfPrecisionRoundTrips(t *testing.T) {
	for h := range 1 << 16 {
		f := f16ToF32(uint16(h))
		if got := f32ToF16(f); f == f && got != uint16(h) {
			t.Fatalf("f16 %#x became %v, then %#x", h, f, got)
		}
		f = bf16ToF32(uint16(h))
		if got := f32ToBF16(f); f == f && got != uint16(h) {
			t.Fatalf("bf16 %#x became %v, then %#x", h, f, got)
		}
	}
}

func TestExpIsAccurate(t *testing.T) {
	for x := float32(-86); x < 88; x += 0.00317 {
		want := math.Exp(float64(x))
		near(t, "exp", expf(x), want, want, 3e-7)
	}
}

func TestMatMulComputesTheProductOfEveryFormat(t *testing.T) {
	b := newBackend(t, Config{})
	s := newSource(2)
	for range 40 {
		rows, out, in := s.IntN(11), s.IntN(40), s.IntN(700)
		for name, w := range s.matrices(out, in) {
			x, dst := s.f32(rows, w.In), s.f32(rows, w.Out)
			b.MatMul(dst, x, w)
			for r := range rows {
				for o := range w.Out {
					var want, size float64
					for i, v := range x.F32Row(r) {
						want += float64(v) * weight(w, o, i)
						size += math.Abs(float64(v) * weight(w, o, i))
					}
					if !w.Bias.Empty() {
						want += float64(loadF32(w.Bias, 0, o))
						size++
					}
					near(t, name, dst.F32Row(r)[o], want, size, 1e-6)
				}
			}
		}
		if err := b.Sync(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestMatMulsAreTheProductsOneByOne(t *testing.T) {
	s := newSource(6)
	for _, threads := range []int{1, 2, 3} {
		b := newBackend(t, Config{Threads: threads})
		for range 10 {
			rows, in := s.IntN(9), s.IntN(900)
			var joint []kernels.Product
			var alone []kernels.Tensor
			for range 1 + s.IntN(3) {
				for _, w := range s.matrices(s.IntN(300), in) {
					x := s.f32(rows, w.In)
					joint = append(joint, kernels.Product{Dst: s.f32(rows, w.Out), X: x, W: w})
					alone = append(alone, s.f32(rows, w.Out))
				}
			}
			b.MatMuls(joint)
			for i, p := range joint {
				b.MatMul(alone[i], p.X, p.W)
				for r := range rows {
					if !slices.Equal(p.Dst.F32Row(r), alone[i].F32Row(r)) {
						t.Fatalf("%d threads: product %d of %d, %v %dx%d, is another one beside others", threads, i, len(joint), p.W.Format, p.W.Out, p.W.In)
					}
				}
			}
			if err := b.Sync(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestMatMulBlocksIsBlockDiagonal(t *testing.T) {
	b := newBackend(t, Config{})
	s := newSource(3)
	for range 20 {
		blocks, rows := 1+s.IntN(4), 1+s.IntN(5)
		for name, w := range s.matrices(blocks*(1+s.IntN(90)), 1+s.IntN(300)) {
			x, dst := s.f32(rows, blocks*w.In), s.f32(rows, w.Out)
			b.MatMulBlocks(dst, x, w, blocks)
			for r := range rows {
				for o := range w.Out {
					var want, size float64
					for i := range w.In {
						v := float64(x.F32Row(r)[o/(w.Out/blocks)*w.In+i]) * weight(w, o, i)
						want, size = want+v, size+math.Abs(v)
					}
					if !w.Bias.Empty() {
						want, size = want+float64(loadF32(w.Bias, 0, o)), size+1
					}
					near(t, name, dst.F32Row(r)[o], want, size, 1e-6)
				}
			}
		}
	}
}

func TestRMSNormNormalisesEachGroup(t *testing.T) {
	b := newBackend(t, Config{})
	s := newSource(4)
	for range 50 {
		rows, width, groups := s.IntN(4), 1+s.IntN(1500), 1+s.IntN(3)
		x, w, dst := s.f32(rows, width*groups), s.plain(kernels.BF16, 1, width), s.f32(rows, width*groups)
		b.RMSNorm(dst, x, w, 1e-5)
		for r := range rows {
			for g := range groups {
				row := x.F32Row(r)[g*width : (g+1)*width]
				var sum float64
				for _, v := range row {
					sum += float64(v) * float64(v)
				}
				for i, v := range row {
					want := float64(v) / math.Sqrt(sum/float64(width)+1e-5) * float64(loadF32(w, 0, i))
					near(t, "norm", dst.F32Row(r)[g*width+i], want, math.Abs(want), 1e-6)
				}
			}
		}
		residual, delta, sum, normed := s.f32(rows, width*groups), s.f32(rows, width*groups), s.f32(rows, width*groups), s.f32(rows, width*groups)
		b.Add(sum, residual, delta)
		b.RMSNorm(normed, sum, w, 1e-5)
		b.AddRMSNorm(dst, residual, delta, w, 1e-5)
		sameBits(t, "residual", residual, sum)
		sameBits(t, "AddRMSNorm", dst, normed)
	}
}
