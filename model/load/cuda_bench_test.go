//go:build cuda

package load_test

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/octet-run/octet/kernels"
	"github.com/octet-run/octet/kernels/cuda"
	"github.com/octet-run/octet/model"
	"github.com/octet-run/octet/model/checkpoint"
	"github.com/octet-run/octet/model/kvcache"
	"github.com/octet-run/octet/model/layers"
	"github.com/octet-run/octet/model/load"
	"github.com/octet-run/octet/model/shapes"
)

// stopwatch times every operation of a pass alone, as a graph of repeats. Weights
// that fit the L2 cache look faster than they are in a pass.
type stopwatch struct {
	*cuda.Backend
	b     *testing.B
	took  map[string]time.Duration
	calls map[string]int
}

const stopwatchRepeats = 20

func (s *stopwatch) time(name string, op func()) {
	op()
	if s.took == nil {
		return
	}
	graph, err := s.Device().Capture(func() error {
		for range stopwatchRepeats {
			op()
		}
		return nil
	})
	if err != nil {
		s.b.Fatal(name, err)
	}
	var times []time.Duration
	for range 7 {
		t, err := s.Device().Time(graph.Launch)
		if err != nil {
			s.b.Fatal(name, err)
		}
		times = append(times, t)
	}
	if err := graph.Close(); err != nil {
		s.b.Fatal(err)
	}
	slices.Sort(times)
	s.took[name] += times[len(times)/2] / stopwatchRepeats
	s.calls[name]++
}

func (s *stopwatch) Embed(dst, table kernels.Tensor, first int) {
	s.time("embed", func() { s.Backend.Embed(dst, table, first) })
}

func (s *stopwatch) MatMul(dst, x kernels.Tensor, w kernels.Matrix) {
	s.time(fmt.Sprintf("matmul %d %dx%d (%.1f MB)", w.Format, w.Out, w.In, float64(w.Bytes())/1e6), func() { s.Backend.MatMul(dst, x, w) })
}

func (s *stopwatch) MatMulBlocks(dst, x kernels.Tensor, w kernels.Matrix, n int) {
	s.time(fmt.Sprintf("blocks %d of %dx%d (%.1f MB)", n, w.Out, w.In, float64(w.Bytes())/1e6), func() { s.Backend.MatMulBlocks(dst, x, w, n) })
}

func (s *stopwatch) RMSNorm(dst, x, w kernels.Tensor, eps float32) {
	s.time(fmt.Sprintf("norm %d", w.Cols), func() { s.Backend.RMSNorm(dst, x, w, eps) })
}

func (s *stopwatch) AddRMSNorm(dst, r, x, w kernels.Tensor, eps float32) {
	s.time("add, norm", func() { s.Backend.AddRMSNorm(dst, r, x, w, eps) })
}

func (s *stopwatch) Add(dst, x, y kernels.Tensor) { s.time("add", func() { s.Backend.Add(dst, x, y) }) }

func (s *stopwatch) Concat(dst, x, y kernels.Tensor) {
	s.time("concat", func() { s.Backend.Concat(dst, x, y) })
}

func (s *stopwatch) Copy(dst, src kernels.Tensor) {
	s.time("copy", func() { s.Backend.Copy(dst, src) })
}

func (s *stopwatch) Rotate(x kernels.Tensor, heads, headDim, offset int, r kernels.Rope) {
	s.time(fmt.Sprintf("rotate %d heads", heads), func() { s.Backend.Rotate(x, heads, headDim, offset, r) })
}

func (s *stopwatch) StoreKV(kv kernels.KV, k, v kernels.Tensor) {
	s.time("store", func() { s.Backend.StoreKV(kv, k, v) })
}

func (s *stopwatch) Attention(dst, q kernels.Tensor, kv kernels.KV, h kernels.Heads, scale float32, window int) {
	s.time("attention", func() { s.Backend.Attention(dst, q, kv, h, scale, window) })
}

func (s *stopwatch) LatentAttention(dst, q kernels.Tensor, kv kernels.KV, heads, latent, rope int, scale float32) {
	s.time("latent attention", func() { s.Backend.LatentAttention(dst, q, kv, heads, latent, rope, scale) })
}

func (s *stopwatch) SwiGLU(dst, gate, up kernels.Tensor) {
	s.time("swiglu", func() { s.Backend.SwiGLU(dst, gate, up) })
}

func (s *stopwatch) Route(ids, weights, logits kernels.Tensor, r kernels.Router) {
	s.time("route", func() { s.Backend.Route(ids, weights, logits, r) })
}

func (s *stopwatch) Experts(dst, x, ids, weights kernels.Tensor, gate, up, down []kernels.Matrix, first int) {
	s.time("experts", func() { s.Backend.Experts(dst, x, ids, weights, gate, up, down, first) })
}

// BenchmarkOperationsOnADevice shows where the time of a pass goes: a shard of
// Kimi-K2.5 and of Llama-3-8B, the first layers only.
func BenchmarkOperationsOnADevice(b *testing.B) {
	if cuda.Count() == 0 {
		b.Skip("no CUDA device on this machine")
	}
	for _, m := range []struct {
		shape  string
		layers int
		shard  model.Shard
	}{{"kimi-k2.5", 3, model.Shard{Ranks: 8}}, {"llama-3-8b", 2, model.Shard{Ranks: 1}}} {
		timeOperations(b, m.shape, m.layers, m.shard)
	}
}

func timeOperations(b *testing.B, shape string, count int, shard model.Shard) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	data, err := shapes.Config(shape)
	if err != nil {
		b.Fatal(err)
	}
	fields, err := model.ParseFields(shape, data)
	if err != nil {
		b.Fatal(err)
	}
	c, err := model.ParseConfig(fields)
	if err != nil {
		b.Fatal(err)
	}
	c.Layers = count
	backend, err := cuda.New(cuda.Config{})
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := backend.Close(); err != nil {
			b.Error(err)
		}
	}()
	s := &stopwatch{Backend: backend, b: b}
	const context = 1024
	o := model.Options{Blocks: context/kernels.BlockTokens + 8, MaxPositions: context + 64, MaxRows: 64}
	target, _, err := load.Target(checkpoint.Synthetic(1), c, shard, o, s, layers.Alone{Backend: s, As: shard}, checkpoint.LoadConfig{})
	if err != nil {
		b.Fatal(err)
	}
	sequence := kvcache.New(o.Blocks).NewSequence()
	pass := func(rows int, keep bool) {
		ids := make([]int32, rows)
		for i := range ids {
			ids[i] = int32(i*7919%1000 + 1)
		}
		var batch kernels.Batch
		if err := sequence.Append(&batch, ids); err != nil {
			b.Fatal(err)
		}
		target.Logits(target.Forward(&batch).Hidden, nil)
		if err := s.Sync(); err != nil {
			b.Fatal(err)
		}
		if keep {
			sequence.Commit(rows)
		} else {
			sequence.Rollback()
		}
	}
	for range context / 64 {
		pass(64, true)
	}
	for _, rows := range []int{1, 4, 16} {
		s.took, s.calls = map[string]time.Duration{}, map[string]int{}
		pass(rows, false)
		fmt.Printf("%s, %d layers, rank %d of %d, T = %d: us a call, calls\n", shape, count, shard.Rank, shard.Ranks, rows)
		for _, name := range slices.SortedFunc(maps.Keys(s.took), func(x, y string) int { return int(s.took[y] - s.took[x]) }) {
			fmt.Printf("  %-40s %8.2f %4d\n", name, s.took[name].Seconds()*1e6/float64(s.calls[name]), s.calls[name])
		}
		s.took = nil
	}
}
