//go:build cuda

package cuda

import (
	"fmt"
	"math/bits"
	"runtime"
	"slices"
	"testing"

	"gorgonia.org/cu"

	"github.com/octet-run/octet/kernels"
)

// attentionShape is attention of one layer; latent is absorbed MLA.
type attentionShape struct {
	name   string
	heads  kernels.Heads
	latent int
	window int
}

func grouped(query, kv, dim int) kernels.Heads {
	h := kernels.Heads{Query: query, Dim: dim, ValueDim: dim, KV: kv}
	for i := range query {
		h.KVOf = append(h.KVOf, int32(i*kv/query))
	}
	return h
}

func latentHeads(query, latent, rope int) kernels.Heads {
	return kernels.Heads{Query: query, Dim: latent + rope, ValueDim: latent, KV: 1}
}

func (s attentionShape) run(b *Backend, dst, q kernels.Tensor, kv kernels.KV) {
	if s.latent > 0 {
		b.LatentAttention(dst, q, kv, s.heads.Query, s.latent, s.heads.Dim-s.latent, 0.05)
		return
	}
	b.Attention(dst, q, kv, s.heads, 0.1, s.window)
}

// story is one sequence of which every position has its query, key and value,
// whichever passes they come in.
type story struct {
	*oracle
	shape   attentionShape
	q, k, v [][]uint16 // by position
}

const storyLength, storyBlocks = 300, 200

func (o *oracle) bf16Row(cols int) []uint16 {
	row := make([]uint16, cols)
	for i := range row {
		row[i] = bf16(float32(o.NormFloat64()))
	}
	return row
}

func (o *oracle) story(s attentionShape) *story {
	st := &story{oracle: o, shape: s}
	for range storyLength {
		st.q = append(st.q, o.bf16Row(s.heads.Query*s.heads.Dim))
		st.k = append(st.k, o.bf16Row(s.heads.KV*s.heads.Dim))
		st.v = append(st.v, o.bf16Row(s.heads.KV*s.heads.ValueDim))
	}
	return st
}

// pass runs rows of which row i is at position at[i] of the story, or is another
// candidate for a position where at[i] is negative, beside rows of another sequence.
// Pages and slots are anywhere. It returns what the rows at positions get.
func (st *story) pass(committed int, at []int, ancestors []uint64, company int) map[int][]float32 {
	free := st.Perm(storyBlocks)
	take := func() int32 { v := int32(free[0]); free = free[1:]; return v }
	var loose []int32 // slots of blocks that are taken apart
	slotOfOwn := func() int32 {
		if len(loose) == 0 {
			block := take()
			for i := range kernels.BlockTokens {
				loose = append(loose, block*kernels.BlockTokens+int32(i))
			}
			st.Shuffle(len(loose), func(i, j int) { loose[i], loose[j] = loose[j], loose[i] })
		}
		slot := loose[0]
		loose = loose[1:]
		return slot
	}
	slots := storyBlocks * kernels.BlockTokens
	kCols, vCols, qCols := len(st.k[0]), len(st.v[0]), len(st.q[0])
	k, v := st.bf16Row(slots*kCols), st.bf16Row(slots*vCols)
	put := func(slot int32, p int) {
		copy(k[int(slot)*kCols:], st.k[p])
		copy(v[int(slot)*vCols:], st.v[p])
	}
	b, q := &kernels.Batch{}, []uint16{}
	row := func(query []uint16) int32 {
		slot := slotOfOwn()
		b.Tokens, b.Positions, b.Slots = append(b.Tokens, 0), append(b.Positions, 0), append(b.Slots, slot)
		q = append(q, query...)
		return slot
	}
	pages := func(positions int) (table []int32) {
		for range (positions + kernels.BlockTokens - 1) / kernels.BlockTokens {
			table = append(table, take())
		}
		return table
	}
	if company > 0 {
		s := kernels.Sequence{Rows: company, Committed: st.IntN(200)}
		s.Blocks = pages(s.Committed)
		for range company {
			row(st.bf16Row(qCols))
		}
		b.Sequences = append(b.Sequences, s)
	}
	s := kernels.Sequence{First: company, Rows: len(at), Committed: committed, Blocks: pages(committed), Ancestors: ancestors}
	for p := range committed {
		put(s.Blocks[p/kernels.BlockTokens]*kernels.BlockTokens+int32(p%kernels.BlockTokens), p)
	}
	for _, p := range at {
		if p < 0 {
			row(st.bf16Row(qCols))
		} else {
			put(row(st.q[p]), p)
		}
	}
	b.Sequences = append(b.Sequences, s)
	st.gpu.BeginPass(b)
	kv := kernels.KV{K: st.upload(kernels.HostTensor(kernels.BF16, slots, kCols, k)), V: st.upload(kernels.HostTensor(kernels.BF16, slots, vCols, v))}
	rows := len(b.Tokens)
	dst := st.empty(kernels.BF16, rows, st.shape.heads.Query*st.shape.heads.ValueDim)
	st.shape.run(st.gpu, dst.gpu, st.upload(kernels.HostTensor(kernels.BF16, rows, qCols, q)), kv)
	values, got := st.download(dst.gpu), map[int][]float32{}
	for i, p := range at {
		if p >= 0 {
			got[p] = values[(company+i)*dst.gpu.Cols:][:dst.gpu.Cols]
		}
	}
	return got
}

// positions are those from lo up to hi.
func positions(lo, hi int) (at []int) {
	for p := lo; p < hi; p++ {
		at = append(at, p)
	}
	return at
}

// bush is a tree that has the story's positions from lo up to hi on one path and
// another child beside each of them.
func bush(lo, hi int) (at []int, ancestors []uint64) {
	var path uint64
	for p := lo; p < hi; p++ {
		row := bits.Len64(path)
		if p > lo {
			row++ // behind the other child
		}
		own := uint64(1) << row
		ancestors = append(ancestors, path|own, path|own<<1)
		path |= own
		at = append(at, p, -1)
	}
	return at, ancestors
}

// TestAttentionOfARowDoesNotDependOnItsCompany runs positions of one sequence alone
// and in chains, trees and chunks of a prompt that begin anywhere.
func TestAttentionOfARowDoesNotDependOnItsCompany(t *testing.T) {
	o := newOracle(t)
	for _, s := range []attentionShape{
		{name: "8 heads over 2", heads: grouped(8, 2, 128)},
		{name: "8 heads over 2, window of 100", heads: grouped(8, 2, 128), window: 100},
		{name: "3 heads over 3", heads: grouped(3, 3, 16)},
		{name: "6 heads over 1", heads: grouped(6, 1, 96)},
		{name: "latent", heads: latentHeads(8, 512, 64), latent: 512},
	} {
		st := o.story(s)
		alone := map[int][]float32{}
		for p := storyLength - 64; p < storyLength; p++ {
			alone[p] = st.pass(p, []int{p}, nil, 0)[p]
		}
		check := func(what string, got map[int][]float32) {
			t.Helper()
			compared := 0
			for p, want := range alone {
				if row, ok := got[p]; ok {
					compared++
					if !slices.Equal(row, want) {
						t.Errorf("%s, %s: position %d gets other bits than alone", s.name, what, p)
						return
					}
				}
			}
			if compared == 0 {
				t.Errorf("%s, %s: nothing compared", s.name, what)
			}
		}
		for _, company := range []int{0, 3, 21} {
			for _, rows := range []int{1, 5, 16, 44, 64} {
				from := storyLength - rows
				what := fmt.Sprintf("%d rows beside %d", rows, company)
				check("chain of "+what, st.pass(from, positions(from, storyLength), nil, company))
				if rows > 1 {
					at, ancestors := bush(storyLength-rows/2, storyLength)
					check("tree of "+what, st.pass(storyLength-rows/2, at, ancestors, company))
				}
			}
			for _, from := range []int{0, 1, 128, 200} {
				check(fmt.Sprintf("chunk from %d beside %d", from, company), st.pass(from, positions(from, storyLength), nil, company))
			}
		}
	}
}

// attentionBench has a cache of random values for every layer.
type attentionBench struct {
	*verifyBench
	shape attentionShape
	kv    []kernels.KV
}

func newAttentionBench(b *Backend, t testing.TB, s attentionShape, layers, context int) *attentionBench {
	v := &attentionBench{verifyBench: &verifyBench{Backend: b, t: t, context: context}, shape: s}
	values := randomBF16(4<<20, 1, 1)
	block, err := b.Upload(kernels.HostTensor(kernels.BF16, 1, len(values), values))
	v.must(err)
	random := func(cols int) kernels.Tensor {
		t, err := b.Alloc(kernels.BF16, context+64+2*kernels.BlockTokens, cols)
		v.must(err)
		for at := 0; at < t.ByteLen(); at += block.ByteLen() {
			v.must(cu.MemcpyDtoD(cu.DevicePtr(t.Device+uintptr(at)), cu.DevicePtr(block.Device), int64(min(block.ByteLen(), t.ByteLen()-at))))
		}
		return t
	}
	for range layers {
		kv := kernels.KV{K: random(s.heads.KV * s.heads.Dim)}
		if s.latent == 0 {
			kv.V = random(s.heads.KV * s.heads.ValueDim)
		}
		v.kv = append(v.kv, kv)
	}
	return v
}

// time is of one call in a graph of one a layer.
func (v *attentionBench) time(batch *kernels.Batch) float64 {
	v.BeginPass(batch)
	rows := len(batch.Tokens)
	q, dst := v.Scratch(kernels.BF16, rows, v.shape.heads.Query*v.shape.heads.Dim), v.Scratch(kernels.BF16, rows, v.shape.heads.Query*v.shape.heads.ValueDim)
	v.shape.run(v.Backend, dst, q, v.kv[0])
	v.must(v.Sync())
	graph, err := v.device.Capture(func() error {
		for i := range v.kv {
			v.shape.run(v.Backend, dst, q, v.kv[i])
		}
		return v.err
	})
	v.must(err)
	took := v.median(graph.Launch).Seconds() / float64(len(v.kv))
	v.must(graph.Close())
	return took * 1e6
}

// tree makes rows of a batch of one sequence a binary tree.
func tree(b *kernels.Batch) *kernels.Batch {
	s := &b.Sequences[0]
	for r := range s.Rows {
		mask := uint64(1) << r
		if r > 0 {
			mask |= s.Ancestors[(r-1)/2]
		}
		s.Ancestors = append(s.Ancestors, mask)
	}
	return b
}

// BenchmarkAttention times attention alone, of Llama-3-8B and of a rank of eight of
// Kimi-K2.5, over caches that do not fit the L2.
func BenchmarkAttention(b *testing.B) {
	needDevices(b, 1)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	gpu, err := New(Config{})
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := gpu.Close(); err != nil {
			b.Error(err)
		}
	}()
	for _, s := range []attentionShape{
		{name: "32 heads over 8 of 128", heads: grouped(32, 8, 128)},
		{name: "latent, 8 heads of 512+64", heads: latentHeads(8, 512, 64), latent: 512},
	} {
		for _, context := range []int{1024, 8192} {
			v := newAttentionBench(gpu, b, s, 64, context)
			line := fmt.Sprintf("%s, context %d, us:", s.name, context)
			for _, rows := range []int{1, 4, 16, 64} {
				line += fmt.Sprintf("  T=%d %.1f", rows, v.time(v.batch(rows)))
				if rows > 1 {
					line += fmt.Sprintf(" (tree %.1f)", v.time(tree(v.batch(rows))))
				}
			}
			fmt.Println(line)
		}
	}
}
