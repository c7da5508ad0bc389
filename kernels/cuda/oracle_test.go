//go:build cuda

package cuda

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"unsafe"

	"github.com/octet-run/octet/kernels"
	"github.com/octet-run/octet/kernels/cpu"
)

// oracle runs each operation on the GPU and on the CPU with the same values,
// which are bf16 on the one and the same numbers as f32 on the other.
type oracle struct {
	*rand.Rand
	t   *testing.T
	gpu *Backend
	cpu *cpu.Backend
}

// twin is one tensor on both.
type twin struct{ gpu, cpu kernels.Tensor }

func newOracle(t *testing.T) *oracle {
	t.Helper()
	needDevices(t, 1)
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	gpu, err := New(Config{ScratchBytes: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	ref, err := cpu.New(cpu.Config{Threads: 4})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := gpu.Close(); err != nil {
			t.Error(err)
		}
		if err := ref.Close(); err != nil {
			t.Error(err)
		}
	})
	return &oracle{rand.New(rand.NewPCG(1, 2)), t, gpu, ref}
}

func (o *oracle) upload(host kernels.Tensor) kernels.Tensor {
	o.t.Helper()
	t, err := o.gpu.Upload(host)
	if err != nil {
		o.t.Fatal(err)
	}
	return t
}

// values is a random activation.
func (o *oracle) values(rows, cols int) twin {
	o.t.Helper()
	narrow, full := make([]uint16, max(1, rows*cols)), make([]float32, max(1, rows*cols))
	for i := range narrow {
		narrow[i] = bf16(float32(o.NormFloat64()))
		full[i] = wide(narrow[i])
	}
	return twin{o.upload(kernels.HostTensor(kernels.BF16, rows, cols, narrow)), kernels.HostTensor(kernels.F32, rows, cols, full)}
}

// same uploads a host tensor as it is.
func (o *oracle) same(host kernels.Tensor) twin { return twin{o.upload(host), host} }

// empty is an activation to write to, poisoned on the GPU.
func (o *oracle) empty(d kernels.DType, rows, cols int) twin {
	poison := make([]uint32, max(1, rows*cols))
	for i := range poison {
		poison[i] = 0xffffffff
	}
	host := kernels.DType(kernels.F32)
	if d == kernels.I32 {
		host = d
	}
	return twin{o.upload(kernels.HostTensor(d, rows, cols, poison)), kernels.HostTensor(host, rows, cols, make([]float32, max(1, rows*cols)))}
}

func (o *oracle) download(t kernels.Tensor) []float32 {
	o.t.Helper()
	raw := make([]byte, max(1, t.Rows*t.Cols*t.DType.Bytes()))
	if err := o.gpu.Download(raw, t); err != nil {
		o.t.Fatal(err)
	}
	out := make([]float32, t.Rows*t.Cols)
	for i := range out {
		if t.DType == kernels.BF16 {
			out[i] = wide(*(*uint16)(unsafe.Pointer(&raw[2*i])))
		} else {
			out[i] = *(*float32)(unsafe.Pointer(&raw[4*i]))
		}
	}
	return out
}

// close compares by the relative error of the whole tensor.
func (o *oracle) close(what string, got twin, tolerance float64) {
	o.t.Helper()
	if err := o.cpu.Sync(); err != nil {
		o.t.Fatalf("%s: cpu: %v", what, err)
	}
	values := o.download(got.gpu)
	var difference, norm float64
	for r := range got.cpu.Rows {
		for c, want := range got.cpu.F32Row(r) {
			d := float64(values[r*got.cpu.Cols+c]) - float64(want)
			difference += d * d
			norm += float64(want) * float64(want)
		}
	}
	if e := math.Sqrt(difference / max(norm, 1e-30)); !(e <= tolerance) {
		o.t.Errorf("%s: relative error %.2g, want at most %.2g", what, e, tolerance)
	}
}

func (o *oracle) matrix(format string, out, in int) (gpu, ref kernels.Matrix) {
	o.t.Helper()
	m := kernels.Matrix{Out: out, In: in}
	switch format {
	case "bf16", "bf16 bias", "f32":
		data := make([]uint16, out*in)
		for i := range data {
			data[i] = bf16(float32(o.NormFloat64()))
		}
		m.Data = kernels.HostTensor(kernels.BF16, out, in, data)
		if format == "f32" {
			full := make([]float32, out*in)
			for i := range full {
				full[i] = wide(data[i])
			}
			m.Data = kernels.HostTensor(kernels.F32, out, in, full)
		}
		if format == "bf16 bias" {
			m.Bias = kernels.HostTensor(kernels.BF16, 1, out, randomBF16(out, o.Uint64(), 0))
		}
	case "fp8", "fp8 shifted":
		m.Format = kernels.FP8Block
		if format == "fp8 shifted" {
			m.RowPhase, m.ColPhase = 40, 24
		}
		data := make([]byte, out*in)
		for i := range data {
			for data[i] = byte(o.Uint32()); data[i]&0x7f == 0x7f; data[i]++ {
			}
		}
		rows, cols := (m.RowPhase+out+127)/128, (m.ColPhase+in+127)/128
		scale := make([]float32, rows*cols)
		for i := range scale {
			scale[i] = float32(0.5 + o.Float64())
		}
		m.Data, m.Scale = kernels.HostTensor(kernels.F8E4M3, out, in, data), kernels.HostTensor(kernels.F32, rows, cols, scale)
	case "int4":
		m.Format = kernels.INT4Group
		data := make([]uint32, out*in/8)
		for i := range data {
			data[i] = o.Uint32()
		}
		m.Data = kernels.HostTensor(kernels.I32, out, in/8, data)
		m.Scale = kernels.HostTensor(kernels.BF16, out, in/32, randomBF16(out*in/32, o.Uint64(), 0))
	}
	gpu = m
	gpu.Data, gpu.Scale, gpu.Bias = o.upload(m.Data), o.upload(m.Scale), o.upload(m.Bias)
	return gpu, m
}

// begin starts a pass of rows that have no sequence.
func (o *oracle) begin(rows, vocabulary, positions int) {
	b := &kernels.Batch{}
	for range rows {
		b.Tokens = append(b.Tokens, int32(o.IntN(vocabulary)))
		b.Positions = append(b.Positions, int32(o.IntN(positions)))
		b.Slots = append(b.Slots, 0)
	}
	o.gpu.BeginPass(b)
	o.cpu.BeginPass(b)
}

var matmulFormats = []string{"bf16", "bf16 bias", "f32", "fp8", "fp8 shifted", "int4"}

func TestMatMulEqualsTheOracle(t *testing.T) {
	o := newOracle(t)
	for _, format := range matmulFormats {
		for _, shape := range [][2]int{{16, 32}, {48, 128}, {40, 64}, {256, 1024}, {128, 2176}} {
			w, ref := o.matrix(format, shape[0], shape[1])
			for _, rows := range []int{1, 5, 8, 13, 30, 64, 70} {
				x := o.values(rows, shape[1])
				for _, d := range []kernels.DType{kernels.BF16, kernels.F32} {
					dst := o.empty(d, rows, shape[0])
					o.gpu.MatMul(dst.gpu, x.gpu, w)
					o.cpu.MatMul(dst.cpu, x.cpu, ref)
					o.close(fmt.Sprintf("%s %v by %d rows into %v", format, shape, rows, d), dst, 5e-3)
				}
			}
		}
	}
}

func TestProductsOfOneInputHaveTheBitsOfEach(t *testing.T) {
	o := newOracle(t)
	for _, in := range []int{96, 2176} {
		for _, formats := range [][]string{
			{"bf16", "bf16 bias"}, {"bf16", "bf16", "bf16"}, {"bf16", "int4", "bf16", "bf16", "bf16", "bf16"}, {"fp8", "fp8"}, {"f32", "bf16"},
		} {
			for _, rows := range []int{1, 5, 16, 40, 70} {
				x := o.values(rows, in)
				var joint []kernels.Product
				var alone []twin
				for i, format := range formats {
					if in%128 != 0 && (format == "int4" || format == "fp8") {
						format = "bf16"
					}
					w, _ := o.matrix(format, 16*(1+o.IntN(160)), in)
					d := []kernels.DType{kernels.BF16, kernels.F32}[i%2]
					joint = append(joint, kernels.Product{Dst: o.empty(d, rows, w.Out).gpu, X: x.gpu, W: w})
					alone = append(alone, o.empty(d, rows, w.Out))
				}
				o.gpu.MatMuls(joint)
				for i, p := range joint {
					o.gpu.MatMul(alone[i].gpu, p.X, p.W)
					if !slices.Equal(o.download(p.Dst), o.download(alone[i].gpu)) {
						t.Errorf("%v, %d rows of %d: product %d is another one beside others", formats, rows, in, i)
					}
				}
			}
		}
	}
}

func TestMatMulBlocksEqualsTheOracle(t *testing.T) {
	o := newOracle(t)
	const blocks = 4
	for _, format := range []string{"bf16", "f32"} {
		w, ref := o.matrix(format, blocks*64, 128)
		for _, rows := range []int{1, 9, 64} {
			x, dst := o.values(rows, blocks*128), o.empty(kernels.BF16, rows, blocks*64)
			o.gpu.MatMulBlocks(dst.gpu, x.gpu, w, blocks)
			o.cpu.MatMulBlocks(dst.cpu, x.cpu, ref, blocks)
			o.close(fmt.Sprintf("%s, %d rows", format, rows), dst, 5e-3)
		}
	}
}

// TestStreamedProductsHaveTheBitsOfTiles compares the two ways of src/matmul.cu.
func TestStreamedProductsHaveTheBitsOfTiles(t *testing.T) {
	o := newOracle(t)
	for _, format := range []string{"bf16", "bf16 bias", "fp8", "int4"} {
		for _, shape := range [][2]int{{16, 128}, {48, 128}, {4096, 1024}, {6144, 2176}, {128, 4224}} {
			w, _ := o.matrix(format, shape[0], shape[1])
			for _, rows := range []int{1, 3, 8, 13, 16, 30, 64, 70} {
				x := o.values(rows, shape[1])
				tiles, streamed := o.empty(kernels.F32, rows, shape[0]), o.empty(kernels.F32, rows, shape[0])
				o.gpu.skinny(productOf(tiles.gpu, x.gpu, w, w.Out))
				for range 3 { // the later ones start before the earlier have ended
					o.gpu.MatMul(streamed.gpu, x.gpu, w)
				}
				if !slices.Equal(o.download(tiles.gpu), o.download(streamed.gpu)) {
					t.Errorf("%s %v by %d rows: the bits differ", format, shape, rows)
				}
			}
		}
	}
}

// TestARowsBitsDoNotDependOnItsCompany runs the same row alone and among others.
func TestARowsBitsDoNotDependOnItsCompany(t *testing.T) {
	o := newOracle(t)
	for _, format := range matmulFormats {
		w, _ := o.matrix(format, 128, 1024)
		x := o.values(64, 1024)
		all := o.empty(kernels.F32, 64, 128)
		o.gpu.MatMul(all.gpu, x.gpu, w)
		want := o.download(all.gpu)
		for _, rows := range []int{1, 7, 16, 31} {
			for lo := 0; lo < 64; lo += 21 {
				n := min(rows, 64-lo)
				part := o.empty(kernels.F32, n, 128)
				o.gpu.MatMul(part.gpu, x.gpu.RowRange(lo, lo+n), w)
				if got := o.download(part.gpu); !slices.Equal(got, want[lo*128:][:n*128]) {
					t.Errorf("%s: rows %d to %d of 64 differ from the same rows in a pass of their own", format, lo, lo+n)
				}
			}
		}
	}
}

func TestRowOperationsEqualTheOracle(t *testing.T) {
	o := newOracle(t)
	for _, rows := range []int{1, 7, 64} {
		for _, cols := range []int{64, 128, 1000, 7168} {
			name := fmt.Sprintf("[%d, %d] ", rows, cols)
			x, y := o.values(rows, cols), o.values(rows, cols)
			weight := o.same(kernels.HostTensor(kernels.BF16, 1, cols, randomBF16(cols, 1, 1)))
			dst := o.empty(kernels.BF16, rows, cols)
			o.gpu.RMSNorm(dst.gpu, x.gpu, weight.gpu, 1e-6)
			o.cpu.RMSNorm(dst.cpu, x.cpu, weight.cpu, 1e-6)
			o.close(name+"RMSNorm", dst, 4e-3)
			o.gpu.AddRMSNorm(dst.gpu, y.gpu, x.gpu, weight.gpu, 1e-6)
			o.cpu.AddRMSNorm(dst.cpu, y.cpu, x.cpu, weight.cpu, 1e-6)
			o.close(name+"AddRMSNorm residual", y, 4e-3)
			o.close(name+"AddRMSNorm", dst, 6e-3)
			o.gpu.Add(dst.gpu, x.gpu, x.gpu)
			o.cpu.Add(dst.cpu, x.cpu, x.cpu)
			o.close(name+"Add", dst, 4e-3)
			o.gpu.SwiGLU(dst.gpu, x.gpu, x.gpu)
			o.cpu.SwiGLU(dst.cpu, x.cpu, x.cpu)
			o.close(name+"SwiGLU", dst, 4e-3)
			both := o.empty(kernels.BF16, rows, 2*cols)
			o.gpu.Concat(both.gpu, x.gpu, x.gpu)
			o.cpu.Concat(both.cpu, x.cpu, x.cpu)
			o.close(name+"Concat", both, 0)
			pick := []int32{int32(rows - 1), 0, int32(rows / 2)}
			few := o.empty(kernels.BF16, 3, cols)
			o.gpu.Gather(few.gpu, x.gpu, pick)
			o.cpu.Gather(few.cpu, x.cpu, pick)
			o.close(name+"Gather", few, 0)
			sum := o.empty(kernels.F32, rows, 1)
			o.gpu.LogSumExp(sum.gpu, x.gpu)
			o.cpu.LogSumExp(sum.cpu, x.cpu)
			o.close(name+"LogSumExp", sum, 1e-5)
			o.topK(name, x, 6)
		}
	}
}

func (o *oracle) topK(name string, x twin, k int) {
	o.t.Helper()
	values, ids := o.empty(kernels.F32, x.gpu.Rows, k), o.empty(kernels.I32, x.gpu.Rows, k)
	o.gpu.TopK(values.gpu, ids.gpu, x.gpu, k)
	o.cpu.TopK(values.cpu, ids.cpu, x.cpu, k)
	o.close(name+"TopK values", values, 0)
	o.sameIDs(name+"TopK ids", ids)
}

func (o *oracle) sameIDs(what string, ids twin) {
	o.t.Helper()
	got := o.download(ids.gpu)
	for r := range ids.cpu.Rows {
		for c, want := range ids.cpu.I32Row(r) {
			if id := int32(math.Float32bits(got[r*ids.cpu.Cols+c])); id != want {
				o.t.Errorf("%s: [%d, %d] = %d, want %d", what, r, c, id, want)
				return
			}
		}
	}
}

func TestEmbedAndRotateEqualTheOracle(t *testing.T) {
	o := newOracle(t)
	const vocabulary, positions = 100, 300
	table := o.values(vocabulary, 96)
	for _, rows := range []int{1, 33} {
		o.begin(rows, 2*vocabulary, positions)
		dst := o.empty(kernels.BF16, rows, 96)
		o.gpu.Embed(dst.gpu, table.gpu, 50)
		o.cpu.Embed(dst.cpu, table.cpu, 50)
		o.close("Embed", dst, 0)
		for _, interleaved := range []bool{false, true} {
			const heads, headDim, offset, dim = 6, 48, 16, 32
			cos, sin := make([]float32, positions*dim/2), make([]float32, positions*dim/2)
			for i := range cos {
				s, c := math.Sincos(o.Float64() * 7)
				cos[i], sin[i] = float32(c), float32(s)
			}
			c := o.same(kernels.HostTensor(kernels.F32, positions, dim/2, cos))
			s := o.same(kernels.HostTensor(kernels.F32, positions, dim/2, sin))
			x := o.values(rows, heads*headDim)
			o.gpu.Rotate(x.gpu, heads, headDim, offset, kernels.Rope{Cos: c.gpu, Sin: s.gpu, Dim: dim, Interleaved: interleaved})
			o.cpu.Rotate(x.cpu, heads, headDim, offset, kernels.Rope{Cos: c.cpu, Sin: s.cpu, Dim: dim, Interleaved: interleaved})
			o.close(fmt.Sprintf("Rotate, interleaved %v", interleaved), x, 4e-3)
		}
	}
}

// sequences is a random batch: chains and trees over committed prefixes, with
// rows of earlier passes beside them.
func (o *oracle) sequences(blocks int) *kernels.Batch {
	b := &kernels.Batch{}
	free := o.Perm(blocks)
	take := func() int32 { v := int32(free[0]); free = free[1:]; return v }
	for n := range 3 {
		s := kernels.Sequence{First: len(b.Tokens), Rows: 1 + o.IntN(20), Committed: o.IntN(900)}
		for range (s.Committed + kernels.BlockTokens - 1) / kernels.BlockTokens {
			s.Blocks = append(s.Blocks, take())
		}
		if n > 0 {
			for range o.IntN(10) {
				s.Scratch = append(s.Scratch, take()*kernels.BlockTokens+int32(o.IntN(kernels.BlockTokens)))
			}
			var seen []uint64
			for j := range len(s.Scratch) + s.Rows {
				mask := uint64(1) << j
				if j > 0 && o.IntN(3) > 0 {
					mask |= seen[o.IntN(j)]
				}
				seen = append(seen, mask)
			}
			s.Ancestors = seen[len(s.Scratch):]
		}
		for range s.Rows {
			b.Tokens = append(b.Tokens, 0)
			b.Positions = append(b.Positions, 0)
			b.Slots = append(b.Slots, take()*kernels.BlockTokens+int32(o.IntN(kernels.BlockTokens)))
		}
		b.Sequences = append(b.Sequences, s)
	}
	return b
}

// cache is a cache of the same values on both.
func (o *oracle) cache(slots, cols int) twin { return o.values(slots, cols) }

func TestAttentionEqualsTheOracle(t *testing.T) {
	o := newOracle(t)
	const blocks = 400
	for _, h := range []kernels.Heads{
		{Query: 8, Dim: 128, ValueDim: 128, KV: 2, KVOf: []int32{0, 0, 0, 0, 1, 1, 1, 1}},
		{Query: 3, Dim: 16, ValueDim: 16, KV: 2, KVOf: []int32{0, 1, 1}},
		{Query: 2, Dim: 192, ValueDim: 128, KV: 2, KVOf: []int32{0, 1}},
		{Query: 6, Dim: 96, ValueDim: 96, KV: 1, KVOf: make([]int32, 6)},
	} {
		for _, window := range []int{0, 300} {
			b := o.sequences(blocks)
			o.gpu.BeginPass(b)
			o.cpu.BeginPass(b)
			rows, slots := len(b.Tokens), blocks*kernels.BlockTokens
			k, v := o.cache(slots, h.KV*h.Dim), o.cache(slots, h.KV*h.ValueDim)
			newK, newV := o.values(rows, h.KV*h.Dim), o.values(rows, h.KV*h.ValueDim)
			gpuKV, cpuKV := kernels.KV{K: k.gpu, V: v.gpu}, kernels.KV{K: k.cpu, V: v.cpu}
			o.gpu.StoreKV(gpuKV, newK.gpu, newV.gpu)
			o.cpu.StoreKV(cpuKV, newK.cpu, newV.cpu)
			q, dst := o.values(rows, h.Query*h.Dim), o.empty(kernels.BF16, rows, h.Query*h.ValueDim)
			scale := float32(1 / math.Sqrt(float64(h.Dim)))
			o.gpu.Attention(dst.gpu, q.gpu, gpuKV, h, scale, window)
			o.cpu.Attention(dst.cpu, q.cpu, cpuKV, h, scale, window)
			o.close(fmt.Sprintf("%d heads of %d, window %d", h.Query, h.Dim, window), dst, 5e-3)
			from, to := []int32{5, 9, 17, 17}, []int32{3, 5, 9, 40}
			o.gpu.MoveKV(gpuKV, from, to)
			o.cpu.MoveKV(cpuKV, from, to)
			o.close("keys after StoreKV and MoveKV", k, 0)
			o.close("values after StoreKV and MoveKV", v, 0)
		}
	}
}

func TestLatentAttentionEqualsTheOracle(t *testing.T) {
	o := newOracle(t)
	const blocks = 400
	for _, d := range [][3]int{{8, 512, 64}, {3, 32, 16}} {
		heads, latent, rope := d[0], d[1], d[2]
		b := o.sequences(blocks)
		o.gpu.BeginPass(b)
		o.cpu.BeginPass(b)
		k := o.cache(blocks*kernels.BlockTokens, latent+rope)
		q, dst := o.values(len(b.Tokens), heads*(latent+rope)), o.empty(kernels.BF16, len(b.Tokens), heads*latent)
		o.gpu.LatentAttention(dst.gpu, q.gpu, kernels.KV{K: k.gpu}, heads, latent, rope, 0.05)
		o.cpu.LatentAttention(dst.cpu, q.cpu, kernels.KV{K: k.cpu}, heads, latent, rope, 0.05)
		o.close(fmt.Sprintf("latent %v", d), dst, 5e-3)
	}
}

func TestRoutingEqualsTheOracle(t *testing.T) {
	o := newOracle(t)
	for _, r := range []kernels.Router{
		{Experts: 64, TopK: 8, Normalize: true},
		{Experts: 64, TopK: 4, Sigmoid: true, Normalize: true, Scale: 2.5, Groups: 8, TopGroups: 3},
		{Experts: 64, TopK: 6, Sigmoid: true, Scale: 2},
		{Experts: 384, TopK: 8, Sigmoid: true, Normalize: true, Scale: 2.8},
		{Experts: 1000, TopK: 64},
	} {
		bias := o.same(kernels.HostTensor(kernels.F32, 1, r.Experts, make([]float32, r.Experts)))
		for i := range bias.cpu.F32Row(0) {
			bias.cpu.F32Row(0)[i] = float32(o.Float64())
		}
		bias.gpu = o.upload(bias.cpu)
		for _, rows := range []int{1, 40} {
			logits := o.values(rows, r.Experts)
			// No two logits of a row are equal: ties are the CPU's business.
			for t := range rows {
				for i := range logits.cpu.F32Row(t) {
					logits.cpu.F32Row(t)[i] += float32(i) * 1e-3
				}
			}
			logits.gpu = o.upload(logits.cpu)
			gpu, ref := r, r
			if r.Sigmoid {
				gpu.Bias, ref.Bias = bias.gpu, bias.cpu
			}
			ids, weights := o.empty(kernels.I32, rows, r.TopK), o.empty(kernels.F32, rows, r.TopK)
			o.gpu.Route(ids.gpu, weights.gpu, logits.gpu, gpu)
			o.cpu.Route(ids.cpu, weights.cpu, logits.cpu, ref)
			o.sameIDs(fmt.Sprintf("%+v ids", r), ids)
			o.close("routing weights", weights, 1e-5)
		}
	}
}

func TestExpertsEqualTheOracle(t *testing.T) {
	o := newOracle(t)
	const count, first, all, topK = 5, 3, 12, 4
	for _, format := range []string{"bf16", "fp8", "int4", "f32"} {
		for _, shape := range [][2]int{{256, 128}, {256, 64}, {1408, 1280}} { // hidden, width
			var gpu, ref [3][]kernels.Matrix
			for part := range 3 {
				for range count {
					out, in := shape[1], shape[0]
					if part == 2 {
						out, in = in, out
					}
					g, r := o.matrix(format, out, in)
					gpu[part], ref[part] = append(gpu[part], g), append(ref[part], r)
				}
			}
			for _, rows := range []int{1, 12, 40} {
				x, dst := o.values(rows, shape[0]), o.values(rows, shape[0])
				ids := make([]int32, rows*topK)
				weights := make([]float32, rows*topK)
				for r := range rows {
					for c, id := range o.Perm(all)[:topK] {
						ids[r*topK+c], weights[r*topK+c] = int32(id), float32(o.Float64())
					}
				}
				i := o.same(kernels.HostTensor(kernels.I32, rows, topK, ids))
				w := o.same(kernels.HostTensor(kernels.F32, rows, topK, weights))
				o.gpu.Experts(dst.gpu, x.gpu, i.gpu, w.gpu, gpu[0], gpu[1], gpu[2], first)
				o.cpu.Experts(dst.cpu, x.cpu, i.cpu, w.cpu, ref[0], ref[1], ref[2], first)
				o.close(fmt.Sprintf("%s experts %v, %d rows", format, shape, rows), dst, 1e-2)
			}
		}
	}
}
