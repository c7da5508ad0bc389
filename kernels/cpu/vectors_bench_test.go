package cpu

import (
	"fmt"
	"testing"
)

// BenchmarkSumTree adds the partial rows of a verify pass: 7168 values a row.
func BenchmarkSumTree(b *testing.B) {
	s := newSource(50)
	for _, ranks := range []int{2, 4, 8} {
		for _, values := range []int{7168, 6 * 7168} {
			b.Run(fmt.Sprintf("ranks=%d/values=%d", ranks, values), func(b *testing.B) {
				var srcs [][]float32
				for range ranks {
					srcs = append(srcs, s.f32(1, values).F32Row(0))
				}
				dst := s.f32(1, values).F32Row(0)
				b.SetBytes(int64(4 * values * (ranks + 1)))
				for b.Loop() {
					SumTree(dst, srcs)
				}
			})
		}
	}
}

func BenchmarkNormRow(b *testing.B) {
	s := newSource(51)
	x, w, dst := s.f32(1, 7168).F32Row(0), s.f32(1, 7168).F32Row(0), s.f32(1, 7168).F32Row(0)
	b.SetBytes(4 * 7168)
	for b.Loop() {
		NormRow(dst, x, w, 1e-6)
	}
}

func BenchmarkSwiGLU(b *testing.B) {
	s := newSource(52)
	c := newBackend(b, Config{})
	gate, up, dst := s.f32(1, 2048), s.f32(1, 2048), s.f32(1, 2048)
	b.SetBytes(4 * 2048)
	for b.Loop() {
		c.SwiGLU(dst, gate, up)
	}
}

// BenchmarkTopK is the best of a shard of a large vocabulary.
func BenchmarkTopK(b *testing.B) {
	s := newSource(53)
	c := newBackend(b, Config{})
	x, values, ids := s.f32(1, 20480), s.f32(1, 10), s.i32(1, 10, 1)
	b.SetBytes(4 * 20480)
	for b.Loop() {
		c.TopK(values, ids, x, 10)
	}
}
