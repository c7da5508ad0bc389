package cpu

import (
	"fmt"
	"testing"

	"github.com/octet-run/octet/kernels"
)

// Weights far beyond the caches, so that every product streams from memory.
func BenchmarkMatMulFromMemory(b *testing.B) {
	benchmarkMatMul(b, 8192, 7168, []int{1, 2, 4, 6, 8, 16}, []string{"bf16"})
}

// Weights that fit the second-level cache: the cost of computing.
func BenchmarkMatMulFromCache(b *testing.B) {
	benchmarkMatMul(b, 128, 2048, []int{1, 2, 4, 6, 8, 16}, []string{"bf16", "fp8", "int4", "f32"})
}

func benchmarkMatMul(b *testing.B, out, in int, rows []int, names []string) {
	s := newSource(20)
	for _, name := range names {
		w := benchMatrix(name, out, in)
		for isa := AVX2; isa <= Detect(); isa++ {
			for _, threads := range []int{1, 2} {
				for _, t := range rows {
					b.Run(fmt.Sprintf("%s/%v/threads=%d/rows=%d", name, isa, threads, t), func(b *testing.B) {
						c := newBackend(b, Config{ISA: isa, Threads: threads})
						x, dst := s.f32(t, in), s.f32(t, out)
						c.MatMul(dst, x, w)
						b.SetBytes(int64(w.Bytes()))
						for b.Loop() {
							c.MatMul(dst, x, w)
						}
					})
				}
			}
		}
	}
}

// benchMatrix is cheap to make: its values do not matter.
func benchMatrix(name string, out, in int) kernels.Matrix {
	switch name {
	case "bf16":
		return kernels.Matrix{Out: out, In: in, Data: kernels.HostTensor(kernels.BF16, out, in, make([]uint16, out*in))}
	case "f32":
		return kernels.Matrix{Out: out, In: in, Data: kernels.HostTensor(kernels.F32, out, in, make([]float32, out*in))}
	case "fp8":
		return kernels.Matrix{
			Format: kernels.FP8Block, Out: out, In: in, Data: kernels.HostTensor(kernels.F8E4M3, out, in, make([]uint8, out*in)),
			Scale: kernels.HostTensor(kernels.F32, (out+127)/128, (in+127)/128, make([]float32, (out+127)/128*((in+127)/128))),
		}
	}
	return kernels.Matrix{
		Format: kernels.INT4Group, Out: out, In: in, Data: kernels.HostTensor(kernels.I32, out, in/8, make([]int32, out*in/8)),
		Scale: kernels.HostTensor(kernels.BF16, out, in/32, make([]uint16, out*in/32)),
	}
}
