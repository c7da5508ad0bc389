package modeltest

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/octet-run/octet/kernels"
	"github.com/octet-run/octet/model"
	"github.com/octet-run/octet/model/checkpoint"
)

// Oracle computes a model the slow way: float64, every weight dequantised, the
// whole sequence at once, nothing sharded, cached or absorbed. It shares no code
// with the layers but the configuration and the rotary tables.
type Oracle struct {
	c       *model.Config
	files   *checkpoint.Files
	weights map[string]matrix64
	cos     []float32
	sin     []float32
}

type matrix64 struct {
	rows, cols int
	data       []float64
}

func (m matrix64) row(r int) []float64 { return m.data[r*m.cols : (r+1)*m.cols] }

// NewOracle prepares a model for sequences of up to 256 tokens.
func NewOracle(c Checkpoint) *Oracle {
	o := &Oracle{c: &c.Config, files: c.Files, weights: map[string]matrix64{}}
	o.cos, o.sin = c.Config.Rope.Tables(256)
	return o
}

// Logits is the logits after every token.
func (o *Oracle) Logits(tokens []int32) [][]float32 {
	root := o.c.TensorPrefix + "model."
	embedding := o.weight(root + "embed_tokens")
	x := make([][]float64, len(tokens))
	for t, id := range tokens {
		x[t] = append([]float64(nil), embedding.row(int(id))...)
	}
	for i := range o.c.Layers {
		name := fmt.Sprintf("%slayers.%d.", root, i)
		add(x, o.attention(i, name+"self_attn.", o.norm(x, name+"input_layernorm")))
		h := o.norm(x, name+"post_attention_layernorm")
		if o.c.MoE != nil && o.c.MoE.Sparse[i] {
			add(x, o.experts(name+"mlp.", h))
		} else {
			add(x, o.mlp(name+"mlp.", h))
		}
	}
	head := o.c.TensorPrefix + "lm_head"
	if o.c.Tied {
		head = root + "embed_tokens"
	}
	out := make([][]float32, len(tokens))
	for t, row := range o.linear(head, o.norm(x, root+"norm")) {
		for _, v := range row {
			out[t] = append(out[t], float32(v))
		}
	}
	return out
}

func add(x, y [][]float64) {
	for t := range x {
		for i := range x[t] {
			x[t][i] += y[t][i]
		}
	}
}

// linear is y = W x (+ bias, where there is one).
func (o *Oracle) linear(name string, x [][]float64) [][]float64 {
	w := o.weight(name)
	var bias []float64
	if o.files.Has(name + ".bias") {
		bias = o.tensor(name + ".bias").data
	}
	out := make([][]float64, len(x))
	for t := range x {
		out[t] = make([]float64, w.rows)
		for r := range w.rows {
			sum := 0.0
			for i, v := range w.row(r) {
				sum += v * x[t][i]
			}
			if bias != nil {
				sum += bias[r]
			}
			out[t][r] = sum
		}
	}
	return out
}

func (o *Oracle) norm(x [][]float64, name string) [][]float64 {
	weight := o.tensor(name + ".weight").data
	out := make([][]float64, len(x))
	for t := range x {
		out[t] = rms(x[t], weight, float64(o.c.NormEps))
	}
	return out
}

func rms(x, weight []float64, eps float64) []float64 {
	squares := 0.0
	for _, v := range x {
		squares += v * v
	}
	scale := 1 / math.Sqrt(squares/float64(len(x))+eps)
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = v * scale * weight[i]
	}
	return out
}

// rotate turns the first Rope.Dim values of a head.
func (o *Oracle) rotate(head []float64, position int) {
	half := o.c.Rope.Dim / 2
	for i := range half {
		c, s := float64(o.cos[position*half+i]), float64(o.sin[position*half+i])
		a, b := i, i+half
		if o.c.Rope.Interleaved {
			a, b = 2*i, 2*i+1
		}
		head[a], head[b] = head[a]*c-head[b]*s, head[b]*c+head[a]*s
	}
}

func (o *Oracle) mlp(name string, x [][]float64) [][]float64 {
	gate, up := o.linear(name+"gate_proj", x), o.linear(name+"up_proj", x)
	for t := range gate {
		for i, g := range gate[t] {
			gate[t][i] = g / (1 + math.Exp(-g)) * up[t][i]
		}
	}
	return o.linear(name+"down_proj", gate)
}

// weight is a linear layer's matrix, dequantised.
func (o *Oracle) weight(name string) matrix64 {
	switch {
	case o.files.Has(name + ".weight_packed"):
		return o.unpack(name)
	case o.files.Has(name + ".weight_scale_inv"):
		w := o.tensor(name + ".weight")
		scale := o.tensor(name + ".weight_scale_inv")
		out := matrix64{w.rows, w.cols, append([]float64(nil), w.data...)}
		for i := range out.data {
			out.data[i] *= scale.row(i / w.cols / 128)[i%w.cols/128]
		}
		return out
	}
	return o.tensor(name + ".weight")
}

func (o *Oracle) unpack(name string) matrix64 {
	packed, scale := o.tensor(name+".weight_packed"), o.tensor(name+".weight_scale")
	out := matrix64{packed.rows, packed.cols * 8, make([]float64, packed.rows*packed.cols*8)}
	for i := range out.data {
		r, c := i/out.cols, i%out.cols
		nibble := uint32(int64(packed.row(r)[c/8])) >> (4 * (c % 8)) & 15
		out.data[i] = (float64(nibble) - 8) * scale.row(r)[c/32]
	}
	return out
}

// tensor is a stored tensor, widened.
func (o *Oracle) tensor(name string) matrix64 {
	if m, ok := o.weights[name]; ok {
		return m
	}
	info, ok := o.files.Lookup(name)
	if !ok {
		panic("no tensor " + name)
	}
	rows, cols := 1, info.Shape[len(info.Shape)-1]
	l := o.files.NewLoader(checkpoint.LoadConfig{})
	var t kernels.Tensor
	if len(info.Shape) == 2 {
		rows = info.Shape[0]
		t = l.Take(checkpoint.Slice{Tensor: name, Rows: rows, Cols: cols, Axis: checkpoint.Whole}, info.DType)
	} else {
		t = l.TakeVector(name, cols, 0, cols, info.DType)
	}
	m := matrix64{rows, cols, nil}
	for r := range rows {
		row := t.ByteRow(r)
		for i := 0; i < len(row); i += info.DType.Bytes() {
			m.data = append(m.data, widen(info.DType, row[i:]))
		}
	}
	o.weights[name] = m
	return m
}

func widen(d kernels.DType, b []byte) float64 {
	switch d {
	case kernels.F32:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
	case kernels.BF16:
		return float64(math.Float32frombits(uint32(binary.LittleEndian.Uint16(b)) << 16))
	case kernels.I32:
		return float64(int32(binary.LittleEndian.Uint32(b)))
	case kernels.I64:
		return float64(int64(binary.LittleEndian.Uint64(b)))
	case kernels.F8E4M3:
		exponent, mantissa := int(b[0]>>3&15), float64(b[0]&7)
		v := math.Ldexp(mantissa/8, -6)
		if exponent > 0 {
			v = math.Ldexp(1+mantissa/8, exponent-7)
		}
		if b[0]>>7 == 1 {
			return -v
		}
		return v
	}
	panic("no widening of " + d.String())
}
