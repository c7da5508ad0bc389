package layers

import "github.com/octet-run/octet/kernels"

// Embedding is one rank's rows of the token table.
type Embedding struct {
	table kernels.Tensor // [hi-first, hidden]
	first int
}

// LoadEmbedding takes the rank's part of the vocabulary. name is without ".weight".
func LoadEmbedding(w *Weights, name string, vocab, hidden int) *Embedding {
	lo, hi := w.Shard.SplitWidth(vocab, 1)
	return &Embedding{table: w.Loader.Rows(name+".weight", vocab, hidden, lo, hi), first: lo}
}

// Forward writes the rows of the batch's tokens to dst, zeros for tokens that
// other ranks hold. dst: [rows, hidden].
func (e *Embedding) Forward(b kernels.Backend, dst kernels.Tensor) { b.Embed(dst, e.table, e.first) }

// Head makes logits from the table, as tied models do.
func (e *Embedding) Head() *Head {
	return &Head{weight: kernels.Matrix{Out: e.table.Rows, In: e.table.Cols, Data: e.table}}
}

// Head is one rank's rows of the matrix that makes logits.
type Head struct {
	weight kernels.Matrix
}

// LoadHead takes the rank's part of the vocabulary. name is without ".weight".
func LoadHead(w *Weights, name string, vocab, hidden int) *Head {
	lo, hi := w.Shard.SplitWidth(vocab, 1)
	return &Head{weight: w.Rows(Linear{Name: name, Out: vocab, In: hidden}, lo, hi)}
}

// Forward is the logits of the named rows of hidden, nil for all: F32.
func (h *Head) Forward(b kernels.Backend, hidden kernels.Tensor, rows []int32) kernels.Tensor {
	if rows != nil {
		picked := b.Scratch(hidden.DType, len(rows), hidden.Cols)
		b.Gather(picked, hidden, rows)
		hidden = picked
	}
	return Pass{Backend: b, Rows: hidden.Rows}.Logits(hidden, h.weight)
}

// Bytes is what a pass reads of the head's weights.
func (h *Head) Bytes() int { return h.weight.Bytes() }
