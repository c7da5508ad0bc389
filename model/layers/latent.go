package layers

import (
	"fmt"
	"math"

	"github.com/octet-run/octet/kernels"
	"github.com/octet-run/octet/model"
	"github.com/octet-run/octet/model/checkpoint"
)

// LatentAttention is one rank's heads of DeepSeek's multi-head latent attention,
// absorbed: the cache holds one latent and one rotated key per position, which
// every rank has; queries are carried into latent space and results out of it.
type LatentAttention struct {
	queryDown kernels.Matrix // zero when queries are projected directly
	queryNorm kernels.Tensor
	query     kernels.Matrix // per head: nope | rope
	latent    kernels.Matrix // latent | rope key
	norm      kernels.Tensor
	absorb    kernels.Matrix // per head, [latent+rope, nope+rope]: see absorbed
	value     kernels.Matrix // per head, [value, latent]
	out       kernels.Matrix
	joint     [2]kernels.Product // of what multiplies the input

	heads int // on this rank
	c     model.Latent
	eps   float32
	scale float32
	rope  kernels.Rope
	cache kernels.KV
}

// LatentConfig describes a latent attention in full, before sharding.
type LatentConfig struct {
	Name   string // of the module: PREFIX.self_attn
	Hidden int    // width of the output
	Input  int    // width of the input: hidden, or twice that in an EAGLE-3 layer
	Heads  int
	Eps    float32
	Rope   model.Rope
	model.Latent
}

// LoadLatentAttention takes the rank's heads; what leads to the latent is replicated.
func LoadLatentAttention(w *Weights, c LatentConfig) *LatentAttention {
	lo, hi := w.Shard.Split(c.Heads)
	width := c.Nope + c.Latent.Rope
	a := &LatentAttention{heads: hi - lo, c: c.Latent, eps: c.Eps, scale: c.softmaxScale()}
	linear := func(part string, out, in int, bias bool) Linear {
		return Linear{Name: c.Name + "." + part, Out: out, In: in, Bias: bias}
	}
	if c.QRank > 0 {
		a.queryDown = w.Whole(linear("q_a_proj", c.QRank, c.Input, c.Bias))
		a.queryNorm = w.Norm(c.Name+".q_a_layernorm", c.QRank)
		a.query = w.Rows(linear("q_b_proj", c.Heads*width, c.QRank, false), lo*width, hi*width)
	} else {
		a.query = w.Rows(linear("q_proj", c.Heads*width, c.Input, false), lo*width, hi*width)
	}
	a.latent = w.Whole(linear("kv_a_proj_with_mqa", c.KVRank+c.Latent.Rope, c.Input, c.Bias))
	a.norm = w.Norm(c.Name+".kv_a_layernorm", c.KVRank)
	perHead := c.Nope + c.Value
	stored := w.wide(linear("kv_b_proj", c.Heads*perHead, c.KVRank, false), lo*perHead, hi*perHead)
	a.absorb, a.value = absorbed(w, stored, c.Latent, a.heads)
	a.out = w.Columns(linear("o_proj", c.Hidden, c.Heads*c.Value, c.Bias), lo*c.Value, hi*c.Value)
	return a
}

// softmaxScale includes DeepSeek's correction for the sharper attention of a scaled rope.
func (c LatentConfig) softmaxScale() float32 {
	scale := 1 / math.Sqrt(float64(c.Nope+c.Latent.Rope))
	if c.Rope.MScaleAllDim != 0 {
		m := model.YarnScale(c.Rope.Factor, c.Rope.MScaleAllDim)
		scale *= m * m
	}
	return float32(scale)
}

// absorbed splits kv_b_proj, per head [nope|value, latent], into the two block
// matrices that absorbed attention multiplies by. The first is the transposed
// key half with an identity beside it, which carries the rotated part of a
// query through: one product yields latent | rope for every head.
func absorbed(w *Weights, stored kernels.Tensor, c model.Latent, heads int) (absorb, value kernels.Matrix) {
	in, out := c.Nope+c.Rope, c.KVRank+c.Rope
	absorb = kernels.Matrix{Out: heads * out, In: in, Data: w.Loader.Alloc(stored.DType, heads*out, in)}
	value = kernels.Matrix{Out: heads * c.Value, In: c.KVRank, Data: w.Loader.Alloc(stored.DType, heads*c.Value, c.KVRank)}
	if stored.Host != nil && absorb.Data.Host != nil && value.Data.Host != nil {
		for h := range heads {
			key := stored.RowRange(h*(c.Nope+c.Value), h*(c.Nope+c.Value)+c.Nope)
			block := absorb.Data.RowRange(h*out, (h+1)*out)
			transpose(block, key)
			identity(block.RowRange(c.KVRank, out).ColRange(c.Nope, in))
			for r := range c.Value {
				copy(value.Data.ByteRow(h*c.Value+r), stored.ByteRow(h*(c.Nope+c.Value)+c.Nope+r))
			}
		}
	}
	placed := w.Loader.Place(absorb.Data, value.Data)
	absorb.Data, value.Data = placed[0], placed[1]
	return absorb, value
}

// transpose writes src, [n, m], to the first n columns of the first m rows of dst.
func transpose(dst, src kernels.Tensor) {
	size := src.DType.Bytes()
	for r := range src.Rows {
		row := src.ByteRow(r)
		for col := range src.Cols {
			copy(dst.ByteRow(col)[r*size:(r+1)*size], row[col*size:])
		}
	}
}

// identity puts ones on the diagonal of zeroed memory.
func identity(t kernels.Tensor) {
	size := t.DType.Bytes()
	for i := range t.Rows {
		checkpoint.Ones(t.ByteRow(i)[i*size:(i+1)*size], t.DType)
	}
}

// wide takes outputs [lo, hi) of a linear layer on the host in a plain format:
// as stored, or dequantised to F32.
func (w *Weights) wide(l Linear, lo, hi int) kernels.Tensor {
	s := checkpoint.Slice{Tensor: l.Name + ".weight", Rows: l.Out, Cols: l.In, Axis: checkpoint.ByRows, Lo: lo, Hi: hi}
	switch w.method(l.Name) {
	case model.NoQuant:
		return w.Loader.Take(s, checkpoint.Floats()...)
	case model.FP8Blocks:
		return w.wideFP8(s)
	}
	w.Loader.Fail(fmt.Errorf("%s: %s is packed to INT4, which no published checkpoint does and Octet does not load", w.Loader.Dir(), l.Name))
	return kernels.Tensor{DType: kernels.BF16, Rows: hi - lo, Cols: l.In, Stride: l.In}
}

func (w *Weights) wideFP8(s checkpoint.Slice) kernels.Tensor {
	data := w.Loader.Take(s, kernels.F8E4M3)
	scales := w.wideScales(fp8Scale(s))
	out := w.Loader.Alloc(kernels.F32, data.Rows, data.Cols)
	if data.Host == nil || scales.Host == nil || out.Host == nil {
		return out
	}
	for r := range data.Rows {
		scale := scales.F32Row((s.Lo+r)/fp8Block - s.Lo/fp8Block)
		row := out.F32Row(r)
		for i, v := range floatsOf(data, r) {
			row[i] = v * scale[i/fp8Block]
		}
	}
	return out
}

// Attach gives the layer its rotary table and its cache of slots rows.
func (a *LatentAttention) Attach(b kernels.Backend, rope kernels.Rope, slots int) error {
	a.rope = rope
	var err error
	if a.cache.K, err = b.Alloc(b.Activation(), slots, a.c.KVRank+a.c.Rope); err != nil {
		return fmt.Errorf("allocate latents of %d slots: %w", slots, err)
	}
	return nil
}

// Forward writes the rank's partial sum of the attention over x to dst.
// dst: [rows, hidden], x: [rows, input].
func (a *LatentAttention) Forward(p Pass, dst, x kernels.Tensor) {
	b, c := p.Backend, a.c
	if a.heads == 0 {
		b.MatMul(dst, p.Scratch(0), a.out)
		return
	}
	query := &a.query
	if c.QRank > 0 {
		query = &a.queryDown
	}
	p.MatMuls(a.joint[:], x, &a.latent, query)
	row, q := a.joint[0].Dst, a.joint[1].Dst
	latent := row.ColRange(0, c.KVRank)
	b.RMSNorm(latent, latent, a.norm, a.eps)
	b.Rotate(row, 1, row.Cols, c.KVRank, a.rope)
	b.StoreKV(a.cache, row, kernels.Tensor{})

	if c.QRank > 0 {
		b.RMSNorm(q, q, a.queryNorm, a.eps)
		q = p.MatMul(q, a.query)
	}
	b.Rotate(q, a.heads, c.Nope+c.Rope, c.Nope, a.rope)
	absorbed := p.Scratch(a.absorb.Out)
	b.MatMulBlocks(absorbed, q, a.absorb, a.heads)
	mixed := p.Scratch(a.heads * c.KVRank)
	b.LatentAttention(mixed, absorbed, a.cache, a.heads, c.KVRank, c.Rope, a.scale)
	values := p.Scratch(a.value.Out)
	b.MatMulBlocks(values, mixed, a.value, a.heads)
	b.MatMul(dst, values, a.out)
}

// MoveKV copies cache rows.
func (a *LatentAttention) MoveKV(b kernels.Backend, from, to []int32) { b.MoveKV(a.cache, from, to) }

// Bytes is what a pass reads of the layer's weights.
func (a *LatentAttention) Bytes() int {
	return a.queryDown.Bytes() + a.query.Bytes() + a.latent.Bytes() + a.absorb.Bytes() + a.value.Bytes() + a.out.Bytes()
}
