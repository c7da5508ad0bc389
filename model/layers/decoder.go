package layers

import (
	"fmt"

	"github.com/octet-run/octet/kernels"
	"github.com/octet-run/octet/model"
)

// Mixer is the half of a layer in which rows see each other.
type Mixer interface {
	// Attach gives the mixer its rotary table and a cache of slots rows.
	Attach(b kernels.Backend, rope kernels.Rope, slots int) error
	// Forward writes the rank's partial sum over x to dst: [rows, hidden].
	Forward(p Pass, dst, x kernels.Tensor)
	MoveKV(b kernels.Backend, from, to []int32)
	Bytes() int
}

// FeedForward is the half of a layer that treats each row alone.
type FeedForward interface {
	// Forward writes the rank's partial sum over x to dst: [rows, hidden].
	Forward(p Pass, dst, x kernels.Tensor)
	Bytes() int
}

// Layer is one pre-norm decoder layer.
type Layer struct {
	InputNorm         kernels.Tensor
	Mixer             Mixer
	PostAttentionNorm kernels.Tensor
	FeedForward       FeedForward
}

// Stack is the weights of a decoder, not yet bound to a group.
type Stack struct {
	Config    model.Config
	Shard     model.Shard
	Embedding *Embedding
	Layers    []Layer
	Norm      kernels.Tensor
	Head      *Head
}

// decoder runs a Stack. It implements model.Model.
type decoder struct {
	Stack
	backend  kernels.Backend
	reduce   Reducer
	captures []int
	features kernels.Tensor // [MaxRows, len(captures)*hidden]
}

// Attach binds the stack to a device and a group and allocates its caches.
func (s Stack) Attach(b kernels.Backend, r Reducer, o model.Options) (model.Model, error) {
	if r.Rank() != s.Shard.Rank || r.Size() != s.Shard.Ranks {
		return nil, fmt.Errorf("weights of rank %d of %d are attached to rank %d of %d",
			s.Shard.Rank, s.Shard.Ranks, r.Rank(), r.Size())
	}
	rope, err := NewRope(b, s.Config.Rope, o.Positions(&s.Config))
	if err != nil {
		return nil, fmt.Errorf("allocate rotary tables: %w", err)
	}
	for i, l := range s.Layers {
		if err := l.Mixer.Attach(b, rope, o.Blocks*kernels.BlockTokens); err != nil {
			return nil, fmt.Errorf("layer %d: %w", i, err)
		}
	}
	d := &decoder{Stack: s, backend: b, reduce: r, captures: o.Captures}
	for i, layer := range o.Captures {
		if layer < 0 || layer > len(s.Layers) || i > 0 && layer <= o.Captures[i-1] {
			return nil, fmt.Errorf("captured layers %v are not rising numbers from 0 to %d", o.Captures, len(s.Layers))
		}
	}
	d.features, err = b.Alloc(b.Activation(), o.MaxRows, len(o.Captures)*s.Config.Hidden)
	if err != nil {
		return nil, fmt.Errorf("allocate captured features of %d rows: %w", o.MaxRows, err)
	}
	return d, nil
}

func (d *decoder) Config() *model.Config { return &d.Stack.Config }

func (d *decoder) VocabWidths() []int {
	return model.VocabWidths(d.Stack.Config.Vocab, d.Shard.Ranks)
}

func (d *decoder) Forward(batch *kernels.Batch) model.Output {
	b := d.backend
	b.BeginPass(batch)
	hidden, eps := d.Stack.Config.Hidden, d.Stack.Config.NormEps
	p := Pass{Backend: b, Rows: len(batch.Tokens)}
	features := d.features.RowRange(0, p.Rows)

	partial := d.reduce.Partial(p.Rows, hidden)
	d.Embedding.Forward(b, partial)
	// The residual stream outlives the reductions that add to it.
	residual, normed := d.residual(p), p.Scratch(hidden)
	b.Copy(residual, d.reduce.AllReduce(partial))
	b.RMSNorm(normed, residual, d.firstNorm(), eps)

	for i, layer := range d.Layers {
		d.capture(features, residual, i)
		partial = d.reduce.Partial(p.Rows, hidden)
		layer.Mixer.Forward(p, partial, normed)
		normed = d.reduce.AllReduceAddNorm(partial, residual, layer.PostAttentionNorm, eps)

		next := d.Norm
		if i+1 < len(d.Layers) {
			next = d.Layers[i+1].InputNorm
		}
		partial = d.reduce.Partial(p.Rows, hidden)
		layer.FeedForward.Forward(p, partial, normed)
		normed = d.reduce.AllReduceAddNorm(partial, residual, next, eps)
	}
	d.capture(features, residual, len(d.Layers))
	return model.Output{Hidden: normed, Features: features}
}

// residual is memory for the residual stream, at the reducer if it has some.
func (d *decoder) residual(p Pass) kernels.Tensor {
	hidden := d.Stack.Config.Hidden
	if holder, ok := d.reduce.(ResidualHolder); ok {
		if held := holder.Residual(p.Rows, hidden); !held.Empty() {
			return held
		}
	}
	return p.Scratch(hidden)
}

func (d *decoder) firstNorm() kernels.Tensor {
	if len(d.Layers) == 0 {
		return d.Norm
	}
	return d.Layers[0].InputNorm
}

// capture saves the residual stream at the input of layer, where asked for.
func (d *decoder) capture(features, residual kernels.Tensor, layer int) {
	for c, wanted := range d.captures {
		if wanted == layer {
			d.backend.Copy(features.ColRange(c*residual.Cols, (c+1)*residual.Cols), residual)
		}
	}
}

func (d *decoder) Logits(hidden kernels.Tensor, rows []int32) kernels.Tensor {
	return d.Head.Forward(d.backend, hidden, rows)
}

func (d *decoder) MoveKV(from, to []int32) {
	if len(from) == 0 {
		return
	}
	for _, l := range d.Layers {
		l.Mixer.MoveKV(d.backend, from, to)
	}
}

func (d *decoder) PassBytes() int {
	total := d.Head.Bytes()
	for _, l := range d.Layers {
		total += l.Mixer.Bytes() + l.FeedForward.Bytes()
	}
	return total
}
