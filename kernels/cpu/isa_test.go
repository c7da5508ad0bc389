package cpu

import (
	"fmt"
	"math"
	"testing"

	"go.uber.org/goleak"

	"github.com/octet-run/octet/kernels"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// everyISA runs f for each instruction set of this machine, alone and in a team.
func everyISA(t *testing.T, f func(t *testing.T, b *Backend)) {
	for isa := Generic; isa <= Detect(); isa++ {
		for _, threads := range []int{1, 3} {
			t.Run(fmt.Sprintf("%v/%d", isa, threads), func(t *testing.T) {
				b := newBackend(t, Config{ISA: isa, Threads: threads})
				f(t, b)
				if err := b.Sync(); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}

func TestMatMulHasTheBitsOfTheOracleInEveryInstructionSet(t *testing.T) {
	everyISA(t, func(t *testing.T, b *Backend) {
		s := newSource(11)
		for i := range 20 {
			rows, out, in := s.IntN(9), s.IntN(50), s.IntN(600)
			if i == 0 {
				rows, out, in = 4, 500, 1100 // several units of a team
			}
			for name, w := range s.matrices(out, in) {
				x, got, want := s.f32(rows, w.In), s.f32(rows, w.Out), s.f32(rows, w.Out)
				b.MatMul(got, x, w)
				oracleMatMul(want, x, w)
				sameBits(t, fmt.Sprintf("%s [%d, %d] x [%d, %d]", name, rows, w.In, w.Out, w.In), got, want)
			}
		}
	})
}

func TestMatMulRowsDoNotDependOnTheirCompany(t *testing.T) {
	everyISA(t, func(t *testing.T, b *Backend) {
		s := newSource(12)
		for name, w := range s.matrices(61, 333) {
			x, all, one := s.f32(37, w.In), s.f32(37, w.Out), s.f32(1, w.Out)
			b.MatMul(all, x, w)
			for r := range 37 {
				b.MatMul(one, x.RowRange(r, r+1), w)
				sameBits(t, name, one, all.RowRange(r, r+1))
			}
		}
	})
}

func TestVectorFunctionsHaveTheBitsOfTheOracle(t *testing.T) {
	everyISA(t, func(t *testing.T, b *Backend) {
		s := newSource(13)
		for range 200 {
			n := s.IntN(100)
			row := func(t kernels.Tensor) []float32 { return t.F32Row(0) }
			x, y, z, got, want := s.f32(1, n), s.f32(1, n), s.f32(1, n), s.f32(1, n), s.f32(1, n)
			for i := range n {
				if s.IntN(20) == 0 { // far ends of exp
					row(x)[i] *= 100
					row(y)[i] = float32(math.Inf(-1))
				}
			}
			a, c := float32(s.NormFloat64()), float32(s.NormFloat64())
			check := func(what string) { t.Helper(); sameBits(t, what, got, want) }
			number := func(what string, g, w float32) {
				t.Helper()
				if math.Float32bits(g) != math.Float32bits(w) {
					t.Fatalf("%s of %d values: got %v, want %v", what, n, g, w)
				}
			}
			reset := func() { copy(row(got), row(z)); copy(row(want), row(z)) }

			b.add(row(got), row(x), row(z))
			oracleAdd(row(want), row(x), row(z))
			check("add")
			b.scaleMul(row(got), row(x), row(z), a)
			oracleScaleMul(row(want), row(x), row(z), a)
			check("scaleMul")
			b.swiglu(row(got), row(x), row(z))
			oracleSwiGLU(row(want), row(x), row(z))
			check("swiglu")
			reset()
			b.scale(row(got), a)
			oracleScale(row(want), a)
			check("scale")
			reset()
			b.axpy(row(got), a, row(x))
			oracleAxpy(row(want), a, row(x))
			check("axpy")
			reset()
			b.merge(row(got), a, row(x), c)
			oracleMerge(row(want), a, row(x), c)
			check("merge")
			for _, d := range []kernels.DType{kernels.BF16, kernels.F16} {
				narrowed := s.plain(d, 1, n)
				Widen(row(got), narrowed, 0)
				for i := range n {
					row(want)[i] = loadF32(narrowed, 0, i)
				}
				check("widen")
			}
			number("max", b.max(row(x)), oracleMax(row(x)))
			number("sumSquares", b.sumSquares(row(x)), oracleSumSquares(row(x)))
			number("sumExp", b.sumExp(row(y), a), oracleSumExp(row(y), a))
			copy(row(got), row(y))
			copy(row(want), row(y))
			number("expSum", b.expSum(row(got), 0.3, a), oracleExpSum(row(want), 0.3, a))
			check("expSum")
		}
	})
}

// Everything at once gives the bits of one thing after the other.
func TestAddTreeNormRowIsSumThenAddThenNorm(t *testing.T) {
	s := newSource(15)
	for range 200 {
		n, width := 1+s.IntN(8), 1+s.IntN(3*NormSegment)
		var srcs [][]float32
		for range n {
			srcs = append(srcs, s.f32(1, width+s.IntN(3)).F32Row(0))
		}
		residual, weight := s.f32(1, width), s.f32(1, width)
		want, wantNormed := s.f32(1, width), s.f32(1, width)
		SumTree(want.F32Row(0), srcs)
		Add(want.F32Row(0), want.F32Row(0), residual.F32Row(0))
		NormRow(wantNormed.F32Row(0), want.F32Row(0), weight.F32Row(0), 1e-5)
		summed, normed := s.f32(1, width), s.f32(1, width)
		copy(summed.F32Row(0), residual.F32Row(0))
		AddTree(summed.F32Row(0), srcs)
		sameBits(t, "AddTree", summed, want)
		AddTreeNormRow(normed.F32Row(0), residual.F32Row(0), srcs, weight.F32Row(0), 1e-5)
		sameBits(t, "residual", residual, want)
		sameBits(t, "normed", normed, wantNormed)

		width = min(width, NormSegment)
		var segment [maxSumTree][]float32
		copy(segment[:], srcs)
		for i := range srcs {
			segment[i] = srcs[i][:width]
		}
		got, oracle := s.f32(1, width), s.f32(1, width)
		copy(oracle.F32Row(0), got.F32Row(0))
		a, b := addTree(got.F32Row(0), &segment, n), oracleAddTree(oracle.F32Row(0), segment[:n])
		sameBits(t, "addTree", got, oracle)
		if math.Float32bits(a) != math.Float32bits(b) {
			t.Errorf("squares of %d vectors of %d: %v, the oracle has %v", n, width, a, b)
		}
	}
}

func TestSumTreeAddsPairwise(t *testing.T) {
	s := newSource(14)
	for range 100 {
		n, width := 1+s.IntN(8), s.IntN(70)
		var srcs [][]float32
		for range n {
			srcs = append(srcs, s.f32(1, width).F32Row(0))
		}
		got, want := s.f32(1, width), s.f32(1, width)
		SumTree(got.F32Row(0), srcs)
		oracleSumTree(want.F32Row(0), srcs)
		sameBits(t, "sum", got, want)
		for i := range width {
			x := func(j int) float32 { return srcs[j][i] }
			switch n {
			case 3:
				want.F32Row(0)[i] = (x(0) + x(1)) + x(2)
			case 6:
				want.F32Row(0)[i] = ((x(0) + x(1)) + (x(2) + x(3))) + (x(4) + x(5))
			case 7:
				want.F32Row(0)[i] = ((x(0) + x(1)) + (x(2) + x(3))) + ((x(4) + x(5)) + x(6))
			case 8:
				want.F32Row(0)[i] = ((x(0) + x(1)) + (x(2) + x(3))) + ((x(4) + x(5)) + (x(6) + x(7)))
			}
		}
		sameBits(t, "tree", got, want)
	}
}

func TestNormRowHasTheBitsOfRMSNorm(t *testing.T) {
	s := newSource(15)
	b := newBackend(t, Config{ISA: Generic})
	x, w, got, want := s.f32(1, 1300), s.f32(1, 1300), s.f32(1, 1300), s.f32(1, 1300)
	b.RMSNorm(want, x, w, 1e-6)
	NormRow(got.F32Row(0), x.F32Row(0), w.F32Row(0), 1e-6)
	sameBits(t, "norm", got, want)
}

func TestShapeErrorsSurfaceAtSync(t *testing.T) {
	s := newSource(16)
	b := newBackend(t, Config{})
	b.Add(s.f32(2, 3), s.f32(2, 3), s.f32(2, 4))
	if err := b.Sync(); err == nil {
		t.Fatal("no error for rows of different width")
	}
	if err := b.Sync(); err != nil {
		t.Fatalf("error reported twice: %v", err)
	}
}

func TestScratchHasTheSameAddressesInEveryPass(t *testing.T) {
	b := newBackend(t, Config{})
	var first []kernels.Tensor
	for pass := range 3 {
		b.BeginPass(&kernels.Batch{})
		for i, cols := range []int{7, 5 << 20, 100, 0, 3} {
			got := b.Scratch(kernels.F32, 1, cols)
			if pass == 0 {
				first = append(first, got)
			} else if got != first[i] {
				t.Fatalf("pass %d, request %d: %+v, was %+v", pass, i, got, first[i])
			}
		}
	}
}
