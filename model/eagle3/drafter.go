package eagle3

import (
	"fmt"

	"github.com/octet-run/octet/kernels"
	"github.com/octet-run/octet/model"
	"github.com/octet-run/octet/model/checkpoint"
	"github.com/octet-run/octet/model/layers"
)

// Options say how a drafter is built.
type Options struct {
	Blocks  int // pages of its KV cache
	MaxRows int // rows of the largest batch
	// Positions is the target's context length. The drafter's own
	// max_position_embeddings says how long its training texts were, no more.
	Positions int
	// Group splits the drafter over ranks like a target; nil runs it whole. Every
	// rank of the group then makes the same calls in the same order.
	Group layers.Reducer
}

// Drafter is an EAGLE-3 network on one device.
type Drafter struct {
	cfg     Config
	w       *weights
	backend kernels.Backend
	reduce  layers.Reducer
	// hidden is what the last pass and the one before left, [MaxRows, Hidden]
	// each: a step reads the one and writes the other.
	hidden [2]kernels.Tensor
	turn   int // of hidden, the last pass's
	rows   int // of the last pass
}

// New loads a drafter. Its weights live until the source's files are closed, its
// cache until b is.
func New(src Source, c Config, target *model.Config, o Options, b kernels.Backend, l checkpoint.LoadConfig) (*Drafter, error) {
	l.Upload = b.Upload
	reduce := o.Group
	if reduce == nil {
		reduce = layers.Alone{Backend: b}
	}
	w, _, err := loadWeights(src, &c, target, model.Shard{Rank: reduce.Rank(), Ranks: reduce.Size()}, l)
	if err != nil {
		return nil, err
	}
	rope, err := layers.NewRope(b, c.Rope, o.Positions)
	if err != nil {
		return nil, fmt.Errorf("allocate the drafter's rotary tables: %w", err)
	}
	if err := w.mixer.Attach(b, rope, o.Blocks*kernels.BlockTokens); err != nil {
		return nil, fmt.Errorf("drafter: %w", err)
	}
	d := &Drafter{cfg: c, w: w, backend: b, reduce: reduce}
	for i := range d.hidden {
		if d.hidden[i], err = b.Alloc(b.Activation(), o.MaxRows, c.Hidden); err != nil {
			return nil, fmt.Errorf("allocate the drafter's features: %w", err)
		}
	}
	return d, nil
}

// Plan lists the slices that one rank of a split drafter takes, from the headers
// alone. Rank 0 of 1 has it whole.
func Plan(src Source, c Config, target *model.Config, s model.Shard) (checkpoint.Plan, error) {
	_, plan, err := loadWeights(src, &c, target, s, checkpoint.LoadConfig{Dry: true})
	return plan, err
}

// Config describes the drafter.
func (d *Drafter) Config() *Config { return &d.cfg }

// TargetToken is the target's id of a draft token.
func (d *Drafter) TargetToken(draft int32) int32 {
	if d.w.toTarget == nil {
		return draft
	}
	return d.w.toTarget[draft]
}

// Extend runs rows with target features: row i of the batch holds the token
// that follows row rows[i] of features; nil rows means row i. It begins the
// backend's pass and returns the rows' features for Step, [rows, Hidden], valid
// until the pass after the next. features: [any, len(Captures)*TargetHidden].
func (d *Drafter) Extend(b *kernels.Batch, features kernels.Tensor, rows []int32) kernels.Tensor {
	d.backend.BeginPass(b)
	p := layers.Pass{Backend: d.backend, Rows: len(b.Tokens)}
	if rows != nil {
		picked := p.Scratch(features.Cols)
		d.backend.Gather(picked, features, rows)
		features = picked
	}
	features = d.normFeatures(p, features)
	partial := d.reduce.Partial(p.Rows, d.cfg.Hidden)
	d.backend.MatMul(partial, features.ColRange(d.w.fcLo, d.w.fcHi), d.w.fc)
	h := p.Scratch(d.cfg.Hidden)
	d.backend.Copy(h, d.reduce.AllReduce(partial))
	return d.run(p, h)
}

// normFeatures applies the norms that some drafters have before fc.
func (d *Drafter) normFeatures(p layers.Pass, features kernels.Tensor) kernels.Tensor {
	if d.w.inputNorm.Empty() && d.w.captureNorms == nil {
		return features
	}
	normed := p.Scratch(features.Cols)
	if d.w.captureNorms == nil {
		d.backend.RMSNorm(normed, features, d.w.inputNorm, d.cfg.NormEps)
		return normed
	}
	width := d.cfg.TargetHidden
	for i, weight := range d.w.captureNorms {
		lo, hi := i*width, (i+1)*width
		d.backend.RMSNorm(normed.ColRange(lo, hi), features.ColRange(lo, hi), weight, d.cfg.NormEps)
	}
	if !d.w.inputNorm.Empty() {
		d.backend.RMSNorm(normed, normed, d.w.inputNorm, d.cfg.NormEps)
	}
	return normed
}

// Step runs drafted tokens. parents names, for each row of the batch, the row of
// the last pass that proposed its token. It begins the backend's pass and
// returns the rows' features as Extend does.
func (d *Drafter) Step(b *kernels.Batch, parents []int32) kernels.Tensor {
	d.backend.BeginPass(b)
	p := layers.Pass{Backend: d.backend, Rows: len(b.Tokens)}
	h := p.Scratch(d.cfg.Hidden)
	d.backend.Gather(h, d.hidden[d.turn].RowRange(0, d.rows), parents)
	return d.run(p, h)
}

// run is the layer. h: [rows, hidden] scratch, which it overwrites.
func (d *Drafter) run(p layers.Pass, h kernels.Tensor) kernels.Tensor {
	b, w, hidden, eps := p.Backend, d.w, d.cfg.Hidden, d.cfg.NormEps
	partial := d.reduce.Partial(p.Rows, hidden)
	w.embedding.Forward(b, partial)
	embedded, normed := p.Scratch(hidden), p.Scratch(hidden)
	b.RMSNorm(embedded, d.reduce.AllReduce(partial), w.embedNorm, eps)
	b.RMSNorm(normed, h, w.hiddenNorm, eps)
	joined := p.Scratch(2 * hidden)
	b.Concat(joined, embedded, normed)
	residual := h
	if d.cfg.NormBeforeResidual {
		residual = normed
	}
	partial = d.reduce.Partial(p.Rows, hidden)
	w.mixer.Forward(p, partial, joined)
	normed = d.reduce.AllReduceAddNorm(partial, residual, w.postNorm, eps)
	partial = d.reduce.Partial(p.Rows, hidden)
	w.mlp.Forward(p, partial, normed)
	normed = d.reduce.AllReduceAddNorm(partial, residual, w.norm, eps)

	d.turn, d.rows = 1-d.turn, p.Rows
	out := d.hidden[d.turn].RowRange(0, p.Rows)
	if d.cfg.NormOutput {
		residual = normed
	}
	b.Copy(out, residual)
	return out
}

// VocabWidths is how many columns of the logits each rank of the group holds.
func (d *Drafter) VocabWidths() []int {
	return model.VocabWidths(d.cfg.DraftVocab, d.reduce.Size())
}

// Logits is F32 [len(rows), VocabWidths()[rank]]: this rank's part of the draft
// vocabulary for rows of the last pass, valid until the next one. nil rows means
// all.
func (d *Drafter) Logits(rows []int32) kernels.Tensor {
	b := d.backend
	hidden := d.hidden[d.turn].RowRange(0, d.rows)
	if rows != nil {
		picked := b.Scratch(hidden.DType, len(rows), hidden.Cols)
		b.Gather(picked, hidden, rows)
		hidden = picked
	}
	if !d.cfg.NormOutput {
		normed := b.Scratch(hidden.DType, hidden.Rows, hidden.Cols)
		b.RMSNorm(normed, hidden, d.w.norm, d.cfg.NormEps)
		hidden = normed
	}
	return d.w.head.Forward(b, hidden, nil)
}

// MoveKV copies rows of the drafter's cache.
func (d *Drafter) MoveKV(from, to []int32) {
	if len(from) > 0 {
		d.w.mixer.MoveKV(d.backend, from, to)
	}
}

// PassBytes is what one pass reads of the drafter's weights, fc and head included.
func (d *Drafter) PassBytes() int {
	return d.w.fc.Bytes() + d.w.mixer.Bytes() + d.w.mlp.Bytes() + d.w.head.Bytes()
}
