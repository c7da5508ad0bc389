package kvcache

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/octet-run/octet/kernels"
)

// contents is a naive cache: what was last stored in each slot.
type contents map[int32]int32

func (c contents) run(b *kernels.Batch) {
	for i, slot := range b.Slots {
		c[slot] = b.Tokens[i]
	}
}

func (c contents) move(from, to []int32) {
	for i := range from {
		c[to[i]] = c[from[i]]
	}
}

// history reads the committed tokens of a sequence back through its page table.
func (c contents) history(s *Sequence) []int32 {
	var out []int32
	for p := range s.Committed() {
		out = append(out, c[s.slot(p)])
	}
	return out
}

// world drives sequences at random beside plain lists of tokens.
type world struct {
	rng   *rand.Rand
	cache *Cache
	store contents
	live  []pair
	past  [][]int32 // what sequences held at one time or another
	token int32
	hits  int
}

type pair struct {
	seq  *Sequence
	want []int32
}

func (w *world) fresh(n int) []int32 {
	out := make([]int32, n)
	for i := range out {
		w.token++
		out[i] = w.token
	}
	return out
}

// begin opens a sequence, often with the beginning of an earlier one.
func (w *world) begin(t *testing.T) {
	p := pair{seq: w.cache.NewSequence()}
	if len(w.past) > 0 && w.rng.IntN(4) > 0 {
		again := w.past[w.rng.IntN(len(w.past))]
		match := p.seq.Match(again)
		n := p.seq.Adopt(again)
		if n != match {
			t.Fatalf("%d tokens match, %d are adopted", match, n)
		}
		w.hits += n
		p.want = slices.Clone(again[:n])
		if n < len(again) {
			p.want = append(p.want, w.append(t, p.seq, again[n:], len(again)-n)...)
		}
	}
	w.live = append(w.live, p)
}

// append runs causal rows and commits the first keep of them.
func (w *world) append(t *testing.T, s *Sequence, tokens []int32, keep int) []int32 {
	var b kernels.Batch
	if err := s.Append(&b, tokens); err != nil {
		requireFull(t, err)
		return nil
	}
	w.store.run(&b)
	s.Commit(keep)
	return tokens[:keep]
}

// tree runs a random tree and commits a random path of it.
func (w *world) tree(t *testing.T, s *Sequence) []int32 {
	tokens, sets := w.fresh(1+w.rng.IntN(30)), []uint64(nil)
	for r := range tokens {
		set := uint64(1) << r
		if r > 0 {
			set |= sets[w.rng.IntN(r)]
		}
		sets = append(sets, set)
	}
	var b kernels.Batch
	if err := s.AppendTree(&b, tokens, sets); err != nil {
		requireFull(t, err)
		return nil
	}
	w.store.run(&b)
	leaf := w.rng.IntN(len(tokens))
	var path []uint8
	var taken []int32
	for r := range tokens {
		if sets[leaf]>>r&1 == 1 {
			path, taken = append(path, uint8(r)), append(taken, tokens[r])
		}
	}
	w.store.move(s.CommitPath(path, nil, nil))
	return taken
}

func (w *world) step(t *testing.T) {
	if len(w.live) < 3 {
		w.begin(t)
	}
	i := w.rng.IntN(len(w.live))
	p := &w.live[i]
	switch w.rng.IntN(5) {
	case 0, 1:
		tokens := w.fresh(1 + w.rng.IntN(20))
		p.want = append(p.want, w.append(t, p.seq, tokens, w.rng.IntN(len(tokens)+1))...)
	case 2:
		p.want = append(p.want, w.tree(t, p.seq)...)
	case 3:
		n := w.rng.IntN(p.seq.Committed() + 1)
		left := p.seq.Truncate(n)
		if left > n || n-left >= kernels.BlockTokens || left < n && w.cache.prefixes == nil {
			t.Fatalf("truncated to %d, %d are left", n, left)
		}
		p.want = p.want[:left]
	case 4:
		w.past = append(w.past, slices.Clone(p.want))
		p.seq.Release()
		w.live = slices.Delete(w.live, i, i+1)
	}
	for _, q := range w.live {
		if got := w.store.history(q.seq); !slices.Equal(got, q.want) {
			t.Fatalf("cache leads to %v, want %v", got, q.want)
		}
	}
}

// TestSequencesKeepTheirTokens compares what page tables lead to with plain
// lists of tokens, with and without shared prefixes.
func TestSequencesKeepTheirTokens(t *testing.T) {
	for name, newCache := range map[string]func(int) *Cache{"private": New, "reusing": NewReusing} {
		t.Run(name, func(t *testing.T) {
			hits := 0
			for seed := range uint64(200) {
				w := &world{rng: rand.New(rand.NewPCG(seed, 1)), cache: newCache(24), store: contents{}}
				for range 60 {
					w.step(t)
				}
				for _, p := range w.live {
					p.seq.Release()
					p.seq.Release()
				}
				if w.cache.Free() != w.cache.Blocks() || w.cache.Open() != 0 {
					t.Fatalf("seed %d: at rest %d of %d pages free, %d sequences open", seed, w.cache.Free(), w.cache.Blocks(), w.cache.Open())
				}
				hits += w.hits
			}
			if (hits > 0) != (name == "reusing") {
				t.Errorf("%d positions were adopted", hits)
			}
		})
	}
}

func TestPrefixesAreSharedUnderEqualSalts(t *testing.T) {
	cache := NewReusing(8)
	begin := func(salt int32) *Sequence {
		s := cache.NewSequence()
		s.Salt(salt)
		return s
	}
	tokens := make([]int32, 40)
	first := begin(1)
	var b kernels.Batch
	if err := first.Append(&b, tokens); err != nil {
		t.Fatal(err)
	}
	first.Commit(40)
	same, other := begin(1), begin(2)
	if got, none := same.Adopt(tokens[:39]), other.Adopt(tokens); got != 32 || none != 0 {
		t.Errorf("%d positions adopted under the same salt, %d under another", got, none)
	}
	if free := cache.Free(); free != 8-3 {
		t.Errorf("%d pages free while two sequences share two of three", free)
	}
	if left := same.Truncate(20); left != 16 {
		t.Errorf("truncating inside a shared page leaves %d positions, want its start", left)
	}
	first.Release()
	if cache.Kept() != 1 || cache.Free() != 7 {
		t.Errorf("%d pages kept, %d free", cache.Kept(), cache.Free())
	}
}

func TestKeptPagesGiveWayOldestFirst(t *testing.T) {
	cache := NewReusing(4)
	run := func(token int32) *Sequence {
		s := cache.NewSequence()
		var b kernels.Batch
		tokens := slices.Repeat([]int32{token}, kernels.BlockTokens)
		if n := s.Adopt(tokens); n == 0 {
			if err := s.Append(&b, tokens); err != nil {
				t.Fatal(err)
			}
			s.Commit(len(tokens))
		}
		return s
	}
	for token := range int32(4) {
		run(token).Release()
	}
	run(0).Release() // used again: 1 is the oldest now
	run(4).Release()
	for token, want := range []int{16, 0, 16, 16, 16} {
		if got := cache.NewSequence().Match(slices.Repeat([]int32{int32(token)}, kernels.BlockTokens)); got != want {
			t.Errorf("%d positions of prefix %d are known, want %d", got, token, want)
		}
	}
}

func requireFull(t *testing.T, err error) {
	t.Helper()
	var full *FullError
	if !errors.As(err, &full) {
		t.Fatalf("error is %v, not a FullError", err)
	}
}

func TestFullCacheChangesNothing(t *testing.T) {
	cache := New(2)
	s := cache.NewSequence()
	var b kernels.Batch
	requireFull(t, s.Append(&b, make([]int32, 33)))
	if cache.Free() != 2 || s.Pending() != 0 || len(b.Tokens) != 0 {
		t.Errorf("after a refusal: %d free, %d pending, %d rows", cache.Free(), s.Pending(), len(b.Tokens))
	}
}

func TestTreePositionsAndScratch(t *testing.T) {
	cache := New(4)
	s := cache.NewSequence()
	var b kernels.Batch
	if err := s.Append(&b, make([]int32, 10)); err != nil {
		t.Fatal(err)
	}
	s.Commit(10)
	b = kernels.Batch{}
	if err := s.AppendTree(&b, []int32{1, 2}, []uint64{0b01, 0b10}); err != nil {
		t.Fatal(err)
	}
	b = kernels.Batch{}
	if err := s.AppendTree(&b, []int32{3, 4}, []uint64{0b0101, 0b1010}); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(b.Positions, []int32{11, 11}) {
		t.Errorf("positions are %v", b.Positions)
	}
	part := b.Sequences[0]
	want := []int32{s.slot(10), s.slot(11)}
	if !slices.Equal(part.Scratch, want) || part.Committed != 10 || !slices.Equal(b.Slots, []int32{s.slot(12), s.slot(13)}) {
		t.Errorf("second step is %+v at %v", part, b.Slots)
	}
	s.Rollback()
	if s.Pending() != 0 || s.Committed() != 10 || cache.Free() != 3 {
		t.Errorf("rollback leaves %d pending, %d committed, %d free", s.Pending(), s.Committed(), cache.Free())
	}
}

func TestSameCallsGiveTheSamePages(t *testing.T) {
	trace := func() []int32 {
		cache := New(16)
		var slots []int32
		a, b := cache.NewSequence(), cache.NewSequence()
		for i := range 20 {
			var batch kernels.Batch
			s := []*Sequence{a, b}[i%2]
			if s.Append(&batch, make([]int32, 5)) == nil {
				s.Commit(i % 6)
			}
			slots = append(slots, batch.Slots...)
			if i == 9 {
				a.Truncate(3)
			}
		}
		return slots
	}
	if !slices.Equal(trace(), trace()) {
		t.Error("two runs of the same calls differ")
	}
}
