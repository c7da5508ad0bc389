package cpu

import (
	"math/bits"

	"github.com/octet-run/octet/kernels"
)

// AttentionSpan is how many positions attention reduces before it rescales.
// Spans begin at multiples of it, whatever the request.
const AttentionSpan = 256

const (
	unitHeads   = 8  // query heads of one unit at most
	unitVectors = 24 // query vectors of one unit, rows times heads
)

// Attention writes softmax(scale q·k) v for every row over what Batch lets it
// see. window > 0 limits it to the last window positions, itself included.
func (b *Backend) Attention(dst, q kernels.Tensor, kv kernels.KV, h kernels.Heads, scale float32, window int) {
	if q.Cols != h.Query*h.Dim || dst.Cols != h.Query*h.ValueDim || dst.Rows != q.Rows ||
		kv.K.Cols != h.KV*h.Dim || kv.V.Cols != h.KV*h.ValueDim || len(h.KVOf) != h.Query {
		b.misfit("Attention", "q [%d, %d], dst [%d, %d], keys of %d and values of %d for %d heads over %d", q.Rows, q.Cols, dst.Rows, dst.Cols,
			kv.K.Cols, kv.V.Cols, h.Query, h.KV)
		return
	}
	a := &b.attention
	a.start(dst, q, kv.K, kv.V, h.Dim, h.ValueDim, scale, window)
	b.attend(h.Query, h.KVOf)
}

// LatentAttention is absorbed MLA: q is [t, heads*(latent+rope)], kv.K rows are
// latent|rope, dst is [t, heads*latent], the weighted sum of latents.
func (b *Backend) LatentAttention(dst, q kernels.Tensor, kv kernels.KV, heads, latent, rope int, scale float32) {
	dim := latent + rope
	if q.Cols != heads*dim || dst.Cols != heads*latent || dst.Rows != q.Rows || kv.K.Cols != dim {
		b.misfit("LatentAttention", "q [%d, %d], dst [%d, %d], keys of %d for %d heads of %d+%d", q.Rows, q.Cols, dst.Rows, dst.Cols,
			kv.K.Cols, heads, latent, rope)
		return
	}
	a := &b.attention
	a.start(dst, q, kv.K, kv.K.ColRange(0, latent), dim, latent, scale, 0)
	b.attend(heads, nil)
}

// attend runs the call that was started, for query heads that read the key heads
// kvOf, or head 0 if nil.
func (b *Backend) attend(heads int, kvOf []int32) {
	a := &b.attention
	if a.dst.Empty() {
		return
	}
	a.batch, a.tiles = b.batch, b.tiles
	// Heads that share keys share a unit, unless that leaves workers idle.
	for most := unitHeads; ; most /= 2 {
		a.cut(heads, kvOf, most)
		if len(a.units) >= len(b.team.workers) || most == 1 {
			break
		}
	}
	var l layout
	a.working(&l, unitVectors)
	if err := b.team.reserve(int(l.used)); err != nil {
		b.fail(err)
		return
	}
	b.team.run(a, len(a.units))
}

// attention is one call, split into units of neighbouring rows and heads of one
// sequence and one key head.
type attention struct {
	dst, q, k, v  kernels.Tensor
	dim, valueDim int
	scale         float32
	window        int
	batch         *kernels.Batch
	tiles         [formats]tileSet
	units         []attentionUnit
}

type attentionUnit struct {
	sequence     int
	rowLo, rowHi int // of the sequence
	head, heads  int
	kvHead       int
}

func (a *attention) start(dst, q, k, v kernels.Tensor, dim, valueDim int, scale float32, window int) {
	*a = attention{dst: dst, q: q, k: k, v: v, dim: dim, valueDim: valueDim, scale: scale, window: window, units: a.units[:0]}
}

// cut makes units of at most the given number of heads. It does not change sums.
func (a *attention) cut(heads int, kvOf []int32, most int) {
	a.units = a.units[:0]
	for head := 0; head < heads; {
		run, kvHead := 1, 0
		if kvOf != nil {
			kvHead = int(kvOf[head])
		}
		for run < most && head+run < heads && (kvOf == nil || int(kvOf[head+run]) == kvHead) {
			run++
		}
		rows := unitVectors / run
		for n := range a.batch.Sequences {
			count := a.batch.Sequences[n].Rows
			for lo := 0; lo < count; lo += rows {
				a.units = append(a.units, attentionUnit{
					sequence: n, rowLo: lo, rowHi: min(lo+rows, count), head: head, heads: run, kvHead: kvHead,
				})
			}
		}
		head += run
	}
}

// sees returns the positions [lo, hi) that row i of s sees.
func (a *attention) sees(s *kernels.Sequence, i int) (lo, hi int) {
	hi = s.Committed + i + 1
	if s.Ancestors != nil {
		hi = s.Committed + bits.OnesCount64(s.Ancestors[i])
	}
	if a.window > 0 {
		lo = max(0, hi-a.window)
	}
	return lo, hi
}

// common is the end of the positions at which all rows up to rowHi have the
// same key, if they see it.
func common(s *kernels.Sequence, rowHi int) int {
	if s.Ancestors != nil {
		return s.Committed
	}
	return s.Committed + rowHi
}

// slot is where the key of a common position is.
func (a *attention) slot(s *kernels.Sequence, position int) int {
	if position >= s.Committed {
		return int(a.batch.Slots[s.First+position-s.Committed])
	}
	return int(s.Blocks[position/kernels.BlockTokens])*kernels.BlockTokens + position%kernels.BlockTokens
}

// ownSlot is where the key of bit j of an ancestor set is.
func (a *attention) ownSlot(s *kernels.Sequence, j int) int {
	if j < len(s.Scratch) {
		return int(s.Scratch[j])
	}
	return int(a.batch.Slots[s.First+j-len(s.Scratch)])
}

// eachRun calls f for runs of common positions [lo, hi) in adjacent slots.
func (a *attention) eachRun(s *kernels.Sequence, lo, hi int, f func(position, slot, n int)) {
	for lo < hi {
		slot, n := a.slot(s, lo), 1
		for lo+n < hi && a.slot(s, lo+n) == slot+n {
			n++
		}
		f(lo, slot, n)
		lo += n
	}
}
