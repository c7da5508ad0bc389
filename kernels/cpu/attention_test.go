package cpu

import (
	"math"
	"testing"

	"github.com/octet-run/octet/kernels"
)

// scene is a random batch with its cache.
type scene struct {
	batch *kernels.Batch
	kv    kernels.KV
}

// newScene makes sequences of the given committed lengths over shuffled pages;
// every second one is a tree with some scratch rows, the others are causal.
func newScene(s source, d kernels.DType, keyCols, valueCols int, committed ...int) scene {
	b := &kernels.Batch{}
	pages := 0
	for _, c := range committed {
		pages += c/kernels.BlockTokens + 10
	}
	order := s.Perm(pages)
	for n, c := range committed {
		rows, scratch := 1+s.IntN(20), 0
		if n%2 == 1 {
			scratch = s.IntN(8)
		}
		q := kernels.Sequence{First: len(b.Slots), Rows: rows, Committed: c}
		for range c/kernels.BlockTokens + 10 {
			q.Blocks = append(q.Blocks, int32(order[0]))
			order = order[1:]
		}
		slot := func(p int) int32 {
			return q.Blocks[p/kernels.BlockTokens]*kernels.BlockTokens + int32(p%kernels.BlockTokens)
		}
		for j := range scratch {
			q.Scratch = append(q.Scratch, slot(c+j))
		}
		sets := make([]uint64, 0, scratch+rows)
		for j := range scratch + rows {
			set := uint64(1) << j
			if j > 0 && s.IntN(5) > 0 {
				set |= sets[s.IntN(j)]
			}
			sets = append(sets, set)
		}
		if n%2 == 1 {
			q.Ancestors = sets[scratch:]
		}
		for i := range rows {
			b.Slots = append(b.Slots, slot(c+scratch+i))
			b.Positions = append(b.Positions, int32(c+i))
			b.Tokens = append(b.Tokens, int32(i))
		}
		b.Sequences = append(b.Sequences, q)
	}
	slots := pages * kernels.BlockTokens
	kv := kernels.KV{K: s.plain(d, slots, keyCols), V: s.plain(d, slots, valueCols)}
	return scene{batch: b, kv: kv}
}

// visible lists the slots row i of sequence n sees, from the contract's words.
func (sc scene) visible(n, i int) (slots []int) {
	q := sc.batch.Sequences[n]
	for p := range q.Committed {
		slots = append(slots, int(q.Blocks[p/kernels.BlockTokens])*kernels.BlockTokens+p%kernels.BlockTokens)
	}
	if q.Ancestors == nil {
		for j := range i + 1 {
			slots = append(slots, int(sc.batch.Slots[q.First+j]))
		}
		return slots
	}
	for j := range 64 {
		if q.Ancestors[i]>>j&1 == 0 {
			continue
		}
		if j < len(q.Scratch) {
			slots = append(slots, int(q.Scratch[j]))
		} else {
			slots = append(slots, int(sc.batch.Slots[q.First+j-len(q.Scratch)]))
		}
	}
	return slots
}

// naive is attention of one head in float64.
func naive(q []float32, k, v kernels.Tensor, keyCol, valueCol, valueDim int, slots []int, scale float64) []float64 {
	scores := make([]float64, len(slots))
	m := math.Inf(-1)
	for i, slot := range slots {
		for d, x := range q {
			scores[i] += float64(x) * float64(loadF32(k, slot, keyCol+d))
		}
		scores[i] *= scale
		m = max(m, scores[i])
	}
	out := make([]float64, valueDim)
	var sum float64
	for i, slot := range slots {
		p := math.Exp(scores[i] - m)
		sum += p
		for d := range out {
			out[d] += p * float64(loadF32(v, slot, valueCol+d))
		}
	}
	for d := range out {
		out[d] /= sum
	}
	return out
}

func TestAttentionMatchesItsDefinition(t *testing.T) {
	b := newBackend(t, Config{})
	s := newSource(5)
	for _, d := range []kernels.DType{kernels.F32, kernels.BF16, kernels.F16} {
		for _, window := range []int{0, 1, 37, 300} {
			h := kernels.Heads{Query: 5, Dim: 24, ValueDim: 19, KV: 2, KVOf: []int32{0, 0, 1, 1, 1}}
			sc := newScene(s, d, 48, 38, 0, 3, 530, 255, 16)
			b.BeginPass(sc.batch)
			q, dst := s.f32(len(sc.batch.Slots), 5*24), s.f32(len(sc.batch.Slots), 5*19)
			b.Attention(dst, q, sc.kv, h, 0.2, window)
			for n, seq := range sc.batch.Sequences {
				for i := range seq.Rows {
					slots := sc.visible(n, i)
					if window > 0 {
						slots = slots[max(0, len(slots)-window):]
					}
					for head, kvHead := range h.KVOf {
						want := naive(q.F32Row(seq.First + i)[head*24:head*24+24], sc.kv.K, sc.kv.V, int(kvHead)*24, int(kvHead)*19, 19, slots, 0.2)
						for c, w := range want {
							near(t, "attention", dst.F32Row(seq.First + i)[head*19+c], w, 1, 3e-6)
						}
					}
				}
			}
			if err := b.Sync(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestAttentionHasTheBitsOfTheOracleInEveryInstructionSet(t *testing.T) {
	everyISA(t, func(t *testing.T, b *Backend) {
		s := newSource(21)
		for _, d := range []kernels.DType{kernels.F32, kernels.BF16} {
			for range 2 {
				h := kernels.Heads{Query: 1 + s.IntN(12), Dim: 1 + s.IntN(70), ValueDim: 1 + s.IntN(150), KV: 1 + s.IntN(3)}
				for i := range h.Query {
					h.KVOf = append(h.KVOf, int32(i*h.KV/h.Query))
				}
				sc := newScene(s, d, h.KV*h.Dim, h.KV*h.ValueDim, s.IntN(40), s.IntN(600), s.IntN(300), 250+s.IntN(10))
				b.BeginPass(sc.batch)
				rows := len(sc.batch.Slots)
				q, got, want := s.f32(rows, h.Query*h.Dim), s.f32(rows, h.Query*h.ValueDim), s.f32(rows, h.Query*h.ValueDim)
				window := s.IntN(2) * s.IntN(400)
				b.Attention(got, q, sc.kv, h, 0.2, window)
				oracleAttention(sc.batch, want, q, sc.kv.K, sc.kv.V, h, 0.2, window)
				sameBits(t, "attention", got, want)
			}
		}
		const heads, latent, rope = 19, 64, 16
		h := kernels.Heads{Query: heads, Dim: latent + rope, ValueDim: latent, KVOf: make([]int32, heads)}
		sc := newScene(s, kernels.F32, latent+rope, 0, 300, 270, 31)
		b.BeginPass(sc.batch)
		rows := len(sc.batch.Slots)
		q, got, want := s.f32(rows, heads*(latent+rope)), s.f32(rows, heads*latent), s.f32(rows, heads*latent)
		b.LatentAttention(got, q, sc.kv, heads, latent, rope, 0.15)
		oracleAttention(sc.batch, want, q, sc.kv.K, sc.kv.K.ColRange(0, latent), h, 0.15, 0)
		sameBits(t, "latent", got, want)
	})
}

// One row of a tree, the same path as a chain, and the last row alone.
func TestAttentionRowsDoNotDependOnTheirCompany(t *testing.T) {
	everyISA(t, func(t *testing.T, b *Backend) {
		s := newSource(22)
		const committed, depth = 253, 6 // the path crosses a span
		h := kernels.Heads{Query: 4, Dim: 32, ValueDim: 32, KV: 1, KVOf: []int32{0, 0, 0, 0}}
		slots := s.plain(kernels.F32, 40*kernels.BlockTokens, 32)
		kv := kernels.KV{K: slots, V: s.plain(kernels.F32, slots.Rows, 32)}
		pages := make([]int32, 20)
		for i := range pages {
			pages[i] = int32(i)
		}
		q := s.f32(depth, 128)
		attention := func(q kernels.Tensor, seq kernels.Sequence, slots []int32) kernels.Tensor {
			dst := s.f32(q.Rows, 128)
			b.BeginPass(&kernels.Batch{Slots: slots, Positions: slots, Tokens: slots, Sequences: []kernels.Sequence{seq}})
			b.Attention(dst, q, kv, h, 0.2, 0)
			return dst
		}
		var inPlace []int32
		for i := range depth {
			inPlace = append(inPlace, committed+int32(i))
		}
		chain := attention(q, kernels.Sequence{Rows: depth, Committed: committed, Blocks: pages}, inPlace)
		last := q.RowRange(depth-1, depth)
		alone := attention(last, kernels.Sequence{Rows: 1, Committed: committed + depth - 1, Blocks: pages}, inPlace[depth-1:])
		sameBits(t, "alone", alone, chain.RowRange(depth-1, depth))

		// The tree's rows are elsewhere in the cache, with a sibling after each.
		var far []int32
		var sets []uint64
		wide := s.f32(2*depth, 128)
		for i := range depth {
			for sibling := range 2 {
				slot := int32(500 + 3*i + sibling)
				far = append(far, slot)
				copy(wide.F32Row(2*i+sibling), q.F32Row(i))
				copy(kv.K.F32Row(int(slot)), kv.K.F32Row(committed+i))
				copy(kv.V.F32Row(int(slot)), kv.V.F32Row(committed+i))
				var path uint64
				for j := range i {
					path |= 1 << (2 * j)
				}
				sets = append(sets, path|1<<(2*i+sibling))
			}
		}
		tree := attention(wide, kernels.Sequence{Rows: 2 * depth, Committed: committed, Blocks: pages, Ancestors: sets}, far)
		for i := range depth {
			sameBits(t, "tree", tree.RowRange(2*i, 2*i+1), chain.RowRange(i, i+1))
		}
		drafted := attention(wide.RowRange(4, 2*depth), kernels.Sequence{
			Rows: 2*depth - 4, Committed: committed, Blocks: pages, Scratch: far[:4], Ancestors: sets[4:],
		}, far[4:])
		sameBits(t, "after scratch rows", drafted, tree.RowRange(4, 2*depth))
	})
}

func TestLatentAttentionMatchesItsDefinition(t *testing.T) {
	b := newBackend(t, Config{})
	s := newSource(6)
	const heads, latent, rope = 3, 40, 8
	sc := newScene(s, kernels.F32, latent+rope, 0, 0, 270, 31)
	b.BeginPass(sc.batch)
	q, dst := s.f32(len(sc.batch.Slots), heads*(latent+rope)), s.f32(len(sc.batch.Slots), heads*latent)
	b.LatentAttention(dst, q, sc.kv, heads, latent, rope, 0.15)
	for n, seq := range sc.batch.Sequences {
		for i := range seq.Rows {
			for h := range heads {
				row := q.F32Row(seq.First + i)[h*48 : h*48+48]
				want := naive(row, sc.kv.K, sc.kv.K, 0, 0, latent, sc.visible(n, i), 0.15)
				for c, w := range want {
					near(t, "latent", dst.F32Row(seq.First + i)[h*latent+c], w, 1, 3e-6)
				}
			}
		}
	}
}
