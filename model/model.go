package model

import "github.com/octet-run/octet/kernels"

// Options say how a rank builds a model. Every rank of a group has the same.
type Options struct {
	Blocks       int   // pages of KV cache, kernels.BlockTokens positions each
	MaxPositions int   // context length; 0 for the configuration's
	MaxRows      int   // rows of the largest batch
	Captures     []int // layers whose input residual stream Forward saves, ascending; Layers means the last one's output

	// WholeExperts gives each rank whole experts (expert parallelism) instead of
	// a slice of every expert's width.
	WholeExperts bool
}

// Positions is the context length that the options give a model of this configuration.
func (o Options) Positions(c *Config) int {
	if o.MaxPositions > 0 {
		return o.MaxPositions
	}
	return c.MaxPositions
}

// Output is what a forward pass leaves on every rank.
type Output struct {
	// Hidden is [rows, hidden], normalised for the head, valid until the
	// reducer's next call but one: pass it to Logits before anything else.
	Hidden kernels.Tensor
	// Features is [rows, len(Captures)*hidden]: the un-normed residual stream at
	// the input of each captured layer, low to high, valid until the next Forward.
	Features kernels.Tensor
}

// Model is one rank's part of a target model. Calls enqueue on the backend;
// errors surface from its Sync.
type Model interface {
	Config() *Config
	// Forward runs the batch through all layers. It begins the backend's pass.
	Forward(b *kernels.Batch) Output
	// Logits is F32 [len(rows), widths[rank]]: the named rows of hidden against this
	// rank's part of the vocabulary. nil rows means all of them.
	Logits(hidden kernels.Tensor, rows []int32) kernels.Tensor
	// VocabWidths is how many columns of the logits each rank holds, in order.
	VocabWidths() []int
	// MoveKV copies rows of every layer's cache (a tree commit).
	MoveKV(from, to []int32)
	// PassBytes is what one pass reads of this rank's weights when every expert
	// is chosen.
	PassBytes() int
}
