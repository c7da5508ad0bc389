package layers

import (
	"fmt"
	"math"

	"github.com/octet-run/octet/kernels"
	"github.com/octet-run/octet/model"
)

// Attention is one rank's heads of a grouped-query attention.
type Attention struct {
	query, key, value kernels.Matrix
	out               kernels.Matrix
	joint             [3]kernels.Product
	queryNorm         kernels.Tensor // over each head, or empty
	keyNorm           kernels.Tensor
	heads             kernels.Heads
	rope              kernels.Rope
	eps               float32
	scale             float32
	window            int
	cache             kernels.KV
}

// AttentionConfig describes a grouped-query attention in full, before sharding.
type AttentionConfig struct {
	Name   string // of the module: PREFIX.self_attn
	Hidden int    // width of the output
	Input  int    // width of the input: hidden, or twice that in an EAGLE-3 layer
	Eps    float32
	Window int
	model.Attention
}

// LoadAttention takes the rank's query heads and the key/value heads those need.
func LoadAttention(w *Weights, c AttentionConfig) *Attention {
	h := w.Shard.SplitHeads(c.Heads, c.KVHeads)
	dim := c.HeadDim
	linear := func(part string, out, in int, bias bool) Linear {
		return Linear{Name: c.Name + "." + part, Out: out, In: in, Bias: bias}
	}
	a := &Attention{
		query: w.Rows(linear("q_proj", c.Heads*dim, c.Input, c.QKVBias), h.QueryLo*dim, h.QueryHi*dim),
		key:   w.Rows(linear("k_proj", c.KVHeads*dim, c.Input, c.QKVBias), h.KVLo*dim, h.KVHi*dim),
		value: w.Rows(linear("v_proj", c.KVHeads*dim, c.Input, c.QKVBias), h.KVLo*dim, h.KVHi*dim),
		out:   w.Columns(linear("o_proj", c.Hidden, c.Heads*dim, c.OutBias), h.QueryLo*dim, h.QueryHi*dim),
		heads: kernels.Heads{
			Query: h.QueryHi - h.QueryLo, Dim: dim, ValueDim: dim,
			KV: h.KVHi - h.KVLo, KVOf: h.KVOf,
		},
		eps:    c.Eps,
		scale:  float32(1 / math.Sqrt(float64(dim))),
		window: c.Window,
	}
	if c.QKNorm {
		a.queryNorm = w.Norm(c.Name+".q_norm", dim)
		a.keyNorm = w.Norm(c.Name+".k_norm", dim)
	}
	return a
}

// Attach gives the layer its rotary table and its cache of slots rows.
func (a *Attention) Attach(b kernels.Backend, rope kernels.Rope, slots int) error {
	a.rope = rope
	width := a.heads.KV * a.heads.Dim
	var err error
	if a.cache.K, err = b.Alloc(b.Activation(), slots, width); err != nil {
		return fmt.Errorf("allocate keys of %d slots: %w", slots, err)
	}
	if a.cache.V, err = b.Alloc(b.Activation(), slots, width); err != nil {
		return fmt.Errorf("allocate values of %d slots: %w", slots, err)
	}
	return nil
}

// Forward writes the rank's partial sum of the attention over x to dst.
// dst: [rows, hidden], x: [rows, input].
func (a *Attention) Forward(p Pass, dst, x kernels.Tensor) {
	b := p.Backend
	if a.heads.Query == 0 {
		b.MatMul(dst, p.Scratch(0), a.out)
		return
	}
	p.MatMuls(a.joint[:], x, &a.query, &a.key, &a.value)
	q, k, v := a.joint[0].Dst, a.joint[1].Dst, a.joint[2].Dst
	if !a.queryNorm.Empty() {
		b.RMSNorm(q, q, a.queryNorm, a.eps)
		b.RMSNorm(k, k, a.keyNorm, a.eps)
	}
	b.Rotate(q, a.heads.Query, a.heads.Dim, 0, a.rope)
	b.Rotate(k, a.heads.KV, a.heads.Dim, 0, a.rope)
	b.StoreKV(a.cache, k, v)
	mixed := p.Scratch(a.heads.Query * a.heads.ValueDim)
	b.Attention(mixed, q, a.cache, a.heads, a.scale, a.window)
	b.MatMul(dst, mixed, a.out)
}

// MoveKV copies cache rows.
func (a *Attention) MoveKV(b kernels.Backend, from, to []int32) {
	if !a.cache.K.Empty() {
		b.MoveKV(a.cache, from, to)
	}
}

// Bytes is what a pass reads of the layer's weights.
func (a *Attention) Bytes() int {
	return a.query.Bytes() + a.key.Bytes() + a.value.Bytes() + a.out.Bytes()
}
