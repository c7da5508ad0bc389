package cpu

import (
	"fmt"
	"runtime"
	"slices"
	"testing"

	"github.com/octet-run/octet/kernels"
)

// One sequence over a long context: a row, a tree, a piece of a prompt. The
// metrics are of the thread's processor time.
func BenchmarkAttention(b *testing.B) {
	const context, dim, query, kvHeads = 4000, 128, 8, 2
	h := kernels.Heads{Query: query, Dim: dim, ValueDim: dim, KV: kvHeads, KVOf: []int32{0, 0, 0, 0, 1, 1, 1, 1}}
	for _, d := range []kernels.DType{kernels.F32, kernels.BF16} {
		for isa := AVX2; isa <= Detect(); isa++ {
			for _, rows := range []int{1, 16, 128} {
				b.Run(fmt.Sprintf("%v/%v/rows=%d", d, isa, rows), func(b *testing.B) {
					c, s := newBackend(b, Config{ISA: isa}), newSource(40)
					batch := chainBatch(context, rows)
					kv := kernels.KV{K: s.plain(d, context+256, kvHeads*dim), V: s.plain(d, context+256, kvHeads*dim)}
					q, dst := s.f32(rows, query*dim), s.f32(rows, query*dim)
					c.BeginPass(batch)
					reportMedian(b, float64(rows)*context*query*dim*4, func() { c.Attention(dst, q, kv, h, 0.1, 0) })
				})
			}
		}
	}
}

func BenchmarkLatentAttention(b *testing.B) {
	const context, heads, latent, rope = 4000, 16, 512, 64
	for isa := AVX2; isa <= Detect(); isa++ {
		for _, rows := range []int{1, 6} {
			b.Run(fmt.Sprintf("%v/rows=%d", isa, rows), func(b *testing.B) {
				c, s := newBackend(b, Config{ISA: isa}), newSource(41)
				kv := kernels.KV{K: s.f32(context+256, latent+rope)}
				q, dst := s.f32(rows, heads*(latent+rope)), s.f32(rows, heads*latent)
				c.BeginPass(chainBatch(context, rows))
				reportMedian(b, float64(rows)*context*heads*(2*latent+rope)*2, func() { c.LatentAttention(dst, q, kv, heads, latent, rope, 0.1) })
			})
		}
	}
}

// chainBatch is rows new tokens after a context in consecutive pages.
func chainBatch(context, rows int) *kernels.Batch {
	batch := &kernels.Batch{Sequences: []kernels.Sequence{{Rows: rows, Committed: context}}}
	for i := range rows {
		batch.Slots = append(batch.Slots, int32(context+i))
	}
	for p := 0; p < context; p += kernels.BlockTokens {
		batch.Sequences[0].Blocks = append(batch.Sequences[0].Blocks, int32(p/kernels.BlockTokens))
	}
	return batch
}

func reportMedian(b *testing.B, flops float64, f func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	f()
	var seconds []float64
	for b.Loop() {
		seconds = append(seconds, timed(1, f))
	}
	slices.Sort(seconds)
	median := seconds[len(seconds)/2]
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median*1e6, "us")
	b.ReportMetric(flops/median/1e9, "GFLOPS")
}
