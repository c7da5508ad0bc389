package cpu

import (
	"testing"

	"github.com/octet-run/octet/kernels"
)

func TestPassesDoNotAllocate(t *testing.T) {
	for _, threads := range []int{1, 2} {
		b := newBackend(t, Config{Threads: threads})
		s := newSource(30)
		sc := newScene(s, kernels.F32, 160, 160, 20, 400)
		rows := len(sc.batch.Slots)
		h := kernels.Heads{Query: 4, Dim: 80, ValueDim: 80, KV: 2, KVOf: []int32{0, 0, 1, 1}}
		const width = 320 // beyond the small integers that an interface holds for free
		w := s.matrices(width, width)
		table, norm := s.plain(kernels.BF16, 64, width), s.plain(kernels.BF16, 1, width)
		rope := kernels.Rope{Cos: s.f32(500, 8), Sin: s.f32(500, 8), Dim: 16}
		router := kernels.Router{Experts: 8, TopK: 2, Sigmoid: true, Groups: 2, TopGroups: 1, Bias: s.f32(1, 8)}
		k, v, logits := s.f32(rows, 160), s.f32(rows, 160), s.f32(rows, 8)
		ids, weights := s.i32(rows, 2, 8), s.f32(rows, 2)
		gate := []kernels.Matrix{w["bf16"], w["int4"], w["fp8"]}
		joint := make([]kernels.Product, len(gate))
		pass := func() {
			b.BeginPass(sc.batch)
			x, y, z := b.Scratch(kernels.F32, rows, width), b.Scratch(kernels.F32, rows, width), b.Scratch(kernels.F32, rows, width)
			b.Embed(x, table, 0)
			b.RMSNorm(y, x, norm, 1e-5)
			for _, m := range gate {
				b.MatMul(z, y, m)
			}
			for i, m := range gate {
				joint[i] = kernels.Product{Dst: b.Scratch(kernels.F32, rows, width), X: y, W: m}
			}
			b.MatMuls(joint)
			b.Rotate(z, 4, 80, 16, rope)
			b.StoreKV(sc.kv, k, v)
			b.Attention(y, z, sc.kv, h, 0.25, 0)
			b.AddRMSNorm(z, x, y, norm, 1e-5)
			b.Route(ids, weights, logits, router)
			b.Experts(y, z, ids, weights, gate, gate, gate, 0)
			b.SwiGLU(z, y, x)
			b.LogSumExp(b.Scratch(kernels.F32, rows, 1), z)
			b.TopK(weights, ids, z, 2)
		}
		if n := testing.AllocsPerRun(20, pass); n > 0 {
			t.Errorf("%d threads: %v allocations a pass", threads, n)
		}
		if err := b.Sync(); err != nil {
			t.Fatal(err)
		}
	}
}
