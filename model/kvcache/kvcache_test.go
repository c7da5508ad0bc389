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

// TestSequencesKeepTheirTokens drives several sequences at random and compares
// what their page tables lead to with a plain list of tokens.
func TestSequencesKeepTheirTokens(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		cache, store := New(24), contents{}
		type pair struct {
			seq  *Sequence
			want []int32
		}
		var live []pair
		token := int32(0)
		fresh := func(n int) []int32 {
			out := make([]int32, n)
			for i := range out {
				token++
				out[i] = token
			}
			return out
		}
		for range 60 {
			if len(live) < 3 {
				live = append(live, pair{seq: cache.NewSequence()})
			}
			i := rng.IntN(len(live))
			p := &live[i]
			var b kernels.Batch
			switch rng.IntN(5) {
			case 0, 1:
				tokens := fresh(1 + rng.IntN(20))
				if err := p.seq.Append(&b, tokens); err != nil {
					requireFull(t, err)
					break
				}
				store.run(&b)
				keep := rng.IntN(len(tokens) + 1)
				p.seq.Commit(keep)
				p.want = append(p.want, tokens[:keep]...)
			case 2:
				tokens, sets := fresh(1+rng.IntN(30)), []uint64(nil)
				for r := range tokens {
					set := uint64(1) << r
					if r > 0 {
						set |= sets[rng.IntN(r)]
					}
					sets = append(sets, set)
				}
				if err := p.seq.AppendTree(&b, tokens, sets); err != nil {
					requireFull(t, err)
					break
				}
				store.run(&b)
				leaf := rng.IntN(len(tokens))
				var path []uint8
				for r := range tokens {
					if sets[leaf]>>r&1 == 1 {
						path = append(path, uint8(r))
						p.want = append(p.want, tokens[r])
					}
				}
				store.move(p.seq.CommitPath(path, nil, nil))
			case 3:
				n := rng.IntN(p.seq.Committed() + 1)
				p.seq.Truncate(n)
				p.want = p.want[:n]
			case 4:
				p.seq.Release()
				live = slices.Delete(live, i, i+1)
			}
			for _, q := range live {
				if got := store.history(q.seq); !slices.Equal(got, q.want) {
					t.Fatalf("seed %d: cache leads to %v, want %v", seed, got, q.want)
				}
			}
		}
		for _, p := range live {
			p.seq.Release()
			p.seq.Release()
		}
		if cache.Free() != cache.Blocks() || cache.Open() != 0 {
			t.Fatalf("seed %d: at rest %d of %d pages free, %d sequences open", seed, cache.Free(), cache.Blocks(), cache.Open())
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
