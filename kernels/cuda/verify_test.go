//go:build cuda

package cuda

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"testing"
	"time"

	"gorgonia.org/cu"

	"github.com/octet-run/octet/kernels"
)

// shape is a Llama's, with bf16 weights.
type shape struct {
	layers, hidden, heads, kvHeads, headDim, width, vocabulary int
}

var llama8B = shape{layers: 32, hidden: 4096, heads: 32, kvHeads: 8, headDim: 128, width: 14336, vocabulary: 128256}

type verifyLayer struct {
	qkv, o, gate, up, down kernels.Matrix
	kv                     kernels.KV
}

// verifyBench is a model of random weights, all copies of one random block.
type verifyBench struct {
	*Backend
	t       testing.TB
	shape   shape
	block   uintptr // random values
	norm    kernels.Tensor
	rope    kernels.Rope
	layers  []verifyLayer
	head    kernels.Matrix
	heads   kernels.Heads
	context int
}

const blockBytes = 64 << 20

func (v *verifyBench) must(err error) {
	v.t.Helper()
	if err != nil {
		v.t.Fatal(err)
	}
}

func (v *verifyBench) random(out, in int) kernels.Matrix {
	t, err := v.Alloc(kernels.BF16, out, in)
	v.must(err)
	for at := 0; at < t.ByteLen(); at += blockBytes {
		v.must(cu.MemcpyDtoD(cu.DevicePtr(t.Device+uintptr(at)), cu.DevicePtr(v.block), int64(min(blockBytes, t.ByteLen()-at))))
	}
	return kernels.Matrix{Out: out, In: in, Data: t}
}

func newVerifyBench(t testing.TB, s shape, context int) *verifyBench {
	b, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	v := &verifyBench{Backend: b, t: t, shape: s, context: context}
	t.Cleanup(func() { v.must(b.Close()) })
	values := make([]uint16, blockBytes/2)
	for i, r := range randomBF16(len(values)/64, 1, 1) {
		for j := range 64 {
			values[i*64+j] = r&0x807f | uint16(116+(r>>3+uint16(j)*5)%8)<<7 // around 2^-9
		}
	}
	v.block, err = b.device.Alloc(blockBytes)
	v.must(err)
	v.must(b.device.Write(v.block, bytesOf(values)))
	ones := make([]uint16, s.hidden)
	for i := range ones {
		ones[i] = 0x3f80
	}
	v.norm, err = b.Upload(kernels.HostTensor(kernels.BF16, 1, s.hidden, ones))
	v.must(err)
	v.rope.Dim = s.headDim
	positions := context + 64
	v.rope.Cos, err = b.Alloc(kernels.F32, positions, s.headDim/2)
	v.must(err)
	v.rope.Sin, err = b.Alloc(kernels.F32, positions, s.headDim/2)
	v.must(err)
	v.heads = kernels.Heads{Query: s.heads, Dim: s.headDim, ValueDim: s.headDim, KV: s.kvHeads}
	for h := range s.heads {
		v.heads.KVOf = append(v.heads.KVOf, int32(h*s.kvHeads/s.heads))
	}
	slots := positions + 2*kernels.BlockTokens
	for range s.layers {
		v.layers = append(v.layers, verifyLayer{
			qkv: v.random((s.heads+2*s.kvHeads)*s.headDim, s.hidden), o: v.random(s.hidden, s.heads*s.headDim),
			gate: v.random(s.width, s.hidden), up: v.random(s.width, s.hidden), down: v.random(s.hidden, s.width),
			kv: kernels.KV{K: v.random(slots, s.kvHeads*s.headDim).Data, V: v.random(slots, s.kvHeads*s.headDim).Data},
		})
	}
	v.head = v.random(s.vocabulary, s.hidden)
	return v
}

// batch is one sequence with a chain of rows after its context.
func (v *verifyBench) batch(rows int) *kernels.Batch {
	s := kernels.Sequence{Rows: rows, Committed: v.context}
	for p := range (v.context + kernels.BlockTokens - 1) / kernels.BlockTokens {
		s.Blocks = append(s.Blocks, int32(p))
	}
	b := &kernels.Batch{Sequences: []kernels.Sequence{s}}
	for r := range rows {
		b.Tokens = append(b.Tokens, int32(r))
		b.Positions = append(b.Positions, int32(v.context+r))
		b.Slots = append(b.Slots, int32(len(s.Blocks)*kernels.BlockTokens+r))
	}
	return b
}

// pass enqueues one forward pass over the rows of residual.
func (v *verifyBench) pass(residual kernels.Tensor) kernels.Tensor {
	s, rows := v.shape, residual.Rows
	act := func(cols int) kernels.Tensor { return v.Scratch(kernels.BF16, rows, cols) }
	normed, zero := act(s.hidden), act(s.hidden)
	v.RMSNorm(normed, residual, v.norm, 1e-5)
	last := zero
	qCols, kvCols := s.heads*s.headDim, s.kvHeads*s.headDim
	for i := range v.layers {
		l := &v.layers[i]
		if i > 0 {
			v.AddRMSNorm(normed, residual, last, v.norm, 1e-5)
		}
		qkv, attended, out := act(qCols+2*kvCols), act(qCols), act(s.hidden)
		v.MatMul(qkv, normed, l.qkv)
		q, k := qkv.ColRange(0, qCols), qkv.ColRange(qCols, qCols+kvCols)
		v.Rotate(q, s.heads, s.headDim, 0, v.rope)
		v.Rotate(k, s.kvHeads, s.headDim, 0, v.rope)
		v.StoreKV(l.kv, k, qkv.ColRange(qCols+kvCols, qCols+2*kvCols))
		v.Attention(attended, q, l.kv, v.heads, float32(1/math.Sqrt(float64(s.headDim))), 0)
		v.MatMul(out, attended, l.o)
		v.AddRMSNorm(normed, residual, out, v.norm, 1e-5)
		gate, up, down := act(s.width), act(s.width), act(s.hidden)
		v.MatMul(gate, normed, l.gate)
		v.MatMul(up, normed, l.up)
		v.SwiGLU(gate, gate, up)
		v.MatMul(down, gate, l.down)
		last = down
	}
	v.AddRMSNorm(normed, residual, last, v.norm, 1e-5)
	logits := v.Scratch(kernels.F32, rows, s.vocabulary)
	v.MatMul(logits, normed, v.head)
	return logits
}

// bytes is what a pass must read and write at least: weights, cache, logits.
func (v *verifyBench) bytes(rows int) int {
	n := v.head.Bytes() + 4*rows*v.shape.vocabulary
	for i := range v.layers {
		l := &v.layers[i]
		n += l.qkv.Bytes() + l.o.Bytes() + l.gate.Bytes() + l.up.Bytes() + l.down.Bytes()
		n += 2 * 2 * (v.context + rows) * v.shape.kvHeads * v.shape.headDim
	}
	return n
}

func (v *verifyBench) median(enqueue func() error) time.Duration {
	var times []time.Duration
	for range 11 {
		t, err := v.device.Time(enqueue)
		v.must(err)
		times = append(times, t)
	}
	slices.Sort(times)
	return times[len(times)/2]
}

// BenchmarkVerifyPass times a captured verify pass of the shape of Llama-3-8B
// against the time that its bytes take at the measured read bandwidth.
func BenchmarkVerifyPass(b *testing.B) {
	needDevices(b, 1)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	v := newVerifyBench(b, llama8B, 1024)
	rate, err := v.device.ReadBandwidth()
	v.must(err)
	fmt.Printf("Llama-3-8B shape, bf16, 1024 tokens of context; reads alone: %.2f TB/s\n", rate/1e12)
	for _, rows := range []int{1, 4, 8, 16, 32, 64} {
		v.BeginPass(v.batch(rows))
		residual := v.Scratch(kernels.BF16, rows, v.shape.hidden)
		v.Copy(residual, kernels.Tensor{DType: kernels.BF16, Rows: rows, Cols: v.shape.hidden, Stride: v.shape.hidden, Device: v.block})
		free := v.scratch.mark()
		v.pass(residual)
		v.must(v.Sync())
		v.scratch.restore(free)
		graph, err := v.device.Capture(func() error { v.pass(residual); return v.err })
		v.must(err)
		took, floor := v.median(graph.Launch), float64(v.bytes(rows))/rate
		fmt.Printf("T = %2d: %6.2f ms, floor %5.2f ms, ratio %.2f\n", rows, took.Seconds()*1e3, floor*1e3, took.Seconds()/floor)
		v.must(graph.Close())
	}
	v.breakdown()
}

// breakdown times the products of one layer alone.
func (v *verifyBench) breakdown() {
	for _, rows := range []int{1, 16, 64} {
		v.BeginPass(v.batch(rows))
		line := fmt.Sprintf("T = %2d, us (TB/s):", rows)
		for _, w := range []struct {
			name string
			of   func(*verifyLayer) kernels.Matrix
		}{
			{"qkv", func(l *verifyLayer) kernels.Matrix { return l.qkv }},
			{"o", func(l *verifyLayer) kernels.Matrix { return l.o }},
			{"gate", func(l *verifyLayer) kernels.Matrix { return l.gate }},
			{"down", func(l *verifyLayer) kernels.Matrix { return l.down }},
		} {
			m := w.of(&v.layers[0])
			x, dst := v.Scratch(kernels.BF16, rows, m.In), v.Scratch(kernels.BF16, rows, m.Out)
			graph, err := v.device.Capture(func() error {
				for i := range v.layers {
					v.MatMul(dst, x, w.of(&v.layers[i]))
				}
				return v.err
			})
			v.must(err)
			each := v.median(graph.Launch).Seconds() / float64(len(v.layers))
			line += fmt.Sprintf("  %s %.1f (%.2f)", w.name, each*1e6, float64(m.Bytes())/each/1e12)
			v.must(graph.Close())
		}
		fmt.Println(line)
		dst, q := v.Scratch(kernels.BF16, rows, 4096), v.Scratch(kernels.BF16, rows, 4096)
		graph, err := v.device.Capture(func() error {
			for i := range v.layers {
				v.Attention(dst, q, v.layers[i].kv, v.heads, 0.1, 0)
			}
			return v.err
		})
		v.must(err)
		fmt.Printf("        attention %.1f us\n", v.median(graph.Launch).Seconds()/float64(len(v.layers))*1e6)
		v.must(graph.Close())
	}
	latent := newAttentionBench(v.Backend, v.t, attentionShape{heads: latentHeads(8, 512, 64), latent: 512}, 64, v.context)
	for _, rows := range []int{1, 4, 16} {
		fmt.Printf("T = %2d, attention of 8 heads of 512+64: %.1f us\n", rows, latent.time(latent.batch(rows)))
	}
}
