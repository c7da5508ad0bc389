package cpu

import (
	"fmt"
	"testing"

	"github.com/octet-run/octet/kernels"
)

// BenchmarkExperts is one layer of one of eight ranks of Kimi-K2.5: eight of the
// experts, INT4, cut by width. Every row has its own experts, the worst case.
func BenchmarkExperts(b *testing.B) {
	const hidden, width, topK, most = 7168, 256, 8, 6
	var gate, up, down []kernels.Matrix
	for range topK * most {
		gate = append(gate, benchMatrix(b, "int4", width, hidden))
		up = append(up, benchMatrix(b, "int4", width, hidden))
		down = append(down, benchMatrix(b, "int4", hidden, width))
	}
	s := newSource(60)
	for isa := AVX2; isa <= Detect(); isa++ {
		for _, rows := range []int{1, 2, most} {
			b.Run(fmt.Sprintf("%v/rows=%d", isa, rows), func(b *testing.B) {
				c := newBackend(b, Config{ISA: isa})
				x, dst, weights := s.f32(rows, hidden), s.f32(rows, hidden), s.f32(rows, topK)
				ids := s.i32(rows, topK, 1)
				for r := range rows {
					for i := range topK {
						ids.I32Row(r)[i] = int32(r*topK + i)
					}
				}
				reportMedian(b, float64(rows)*topK*3*2*hidden*width, func() { c.Experts(dst, x, ids, weights, gate, up, down, 0) })
			})
		}
	}
}
