package kvcache

import (
	"fmt"
	"math/bits"

	"github.com/octet-run/octet/kernels"
)

// MaxPending is how many uncommitted rows a tree may have: sets of them are bits.
const MaxPending = 64

// Sequence is the page table of one sequence.
type Sequence struct {
	cache     *Cache
	blocks    []int32
	committed int
	pending   int
	released  bool

	// The rest is in use when the cache keeps pages for reuse.
	salt    int32
	held    []*page // the first of blocks, known to other sequences
	tokens  []int32 // committed, then pending
	private bool    // full pages are no longer made known
}

// Committed is the number of positions that every later row sees.
func (s *Sequence) Committed() int { return s.committed }

// Pending is the number of rows that ran and are not committed.
func (s *Sequence) Pending() int { return s.pending }

// slot is where position or row p, counted from the sequence's start, is stored.
func (s *Sequence) slot(p int) int32 {
	return s.blocks[p/kernels.BlockTokens]*kernels.BlockTokens + int32(p%kernels.BlockTokens)
}

func pages(positions int) int {
	return (positions + kernels.BlockTokens - 1) / kernels.BlockTokens
}

// Needs is how many more pages the sequence takes to hold rows more rows.
func (s *Sequence) Needs(rows int) int {
	return max(0, pages(s.committed+s.pending+rows)-len(s.blocks))
}

// Reserve takes the pages for rows more rows, so that adding them cannot fail.
func (s *Sequence) Reserve(rows int) error {
	if s.released {
		panic("kvcache: a released sequence is used")
	}
	var err error
	s.blocks, err = s.cache.take(s.blocks, s.Needs(rows))
	return err
}

// Append adds causal rows to a batch: each sees the committed positions and the
// rows of this call before it. There must be no pending rows. The rows become
// pending.
func (s *Sequence) Append(b *kernels.Batch, tokens []int32) error {
	if s.pending > 0 {
		panic("kvcache: causal rows after pending ones")
	}
	if err := s.Reserve(len(tokens)); err != nil {
		return err
	}
	s.begin(b, len(tokens), nil)
	for i, token := range tokens {
		s.add(b, token, s.committed+i)
	}
	return nil
}

// AppendTree adds tree rows to a batch. ancestors has one set per row, of the
// sequence's pending rows that it sees, itself included: bit j stands for the
// j-th row since the last commit, rows of this call counted on from those that
// are pending already. Positions follow from the sets. The rows become pending.
func (s *Sequence) AppendTree(b *kernels.Batch, tokens []int32, ancestors []uint64) error {
	before := s.pending
	if before+len(tokens) > MaxPending {
		return fmt.Errorf("a tree has at most %d rows, not %d", MaxPending, before+len(tokens))
	}
	if err := s.Reserve(len(tokens)); err != nil {
		return err
	}
	s.begin(b, len(tokens), ancestors)
	for i, token := range tokens {
		s.add(b, token, s.committed+bits.OnesCount64(ancestors[i])-1)
	}
	return nil
}

func (s *Sequence) begin(b *kernels.Batch, rows int, ancestors []uint64) {
	part := kernels.Sequence{
		First:     len(b.Tokens),
		Rows:      rows,
		Committed: s.committed,
		Blocks:    s.blocks[:pages(s.committed)],
		Ancestors: ancestors,
	}
	for j := range s.pending {
		part.Scratch = append(part.Scratch, s.slot(s.committed+j))
	}
	b.Sequences = append(b.Sequences, part)
}

func (s *Sequence) add(b *kernels.Batch, token int32, position int) {
	b.Tokens = append(b.Tokens, token)
	b.Positions = append(b.Positions, int32(position))
	b.Slots = append(b.Slots, s.slot(s.committed+s.pending))
	s.pending++
	if s.cache.prefixes != nil {
		s.tokens = append(s.tokens, token)
	}
}

// Commit makes the first rows pending rows permanent and drops the others.
func (s *Sequence) Commit(rows int) {
	if rows > s.pending {
		panic("kvcache: more rows committed than are pending")
	}
	s.commit(rows)
}

func (s *Sequence) commit(rows int) {
	s.committed += rows
	s.Rollback()
	s.publish()
}

// CommitPath makes the pending rows named in path permanent, in that order, and
// drops the others. It appends to from and to the slots to copy, in order: path
// must rise, so no row is overwritten before it is copied.
func (s *Sequence) CommitPath(path []uint8, from, to []int32) (newFrom, newTo []int32) {
	for i, row := range path {
		if int(row) >= s.pending || i > 0 && row <= path[i-1] {
			panic("kvcache: a path that is not one of pending rows in order")
		}
		if s.cache.prefixes != nil {
			s.tokens[s.committed+i] = s.tokens[s.committed+int(row)]
		}
		if int(row) != i {
			from = append(from, s.slot(s.committed+int(row)))
			to = append(to, s.slot(s.committed+i))
		}
	}
	s.commit(len(path))
	return from, to
}

// Rollback drops all pending rows and the pages that only they used.
func (s *Sequence) Rollback() {
	s.pending = 0
	s.cut(s.committed)
}

// Truncate drops pending rows and the committed positions from n on. It returns
// how many are left: fewer than n when n lies inside a page that other sequences
// share, which must not be written again.
func (s *Sequence) Truncate(n int) int {
	if n > s.committed {
		panic("kvcache: truncated beyond the end")
	}
	s.pending = 0
	s.cut(n)
	if n > 0 && s.cache.prefixes != nil {
		n = s.withdraw(n)
		s.cut(n)
	}
	s.committed = n
	return n
}

// cut gives up the pages beyond position n, last first.
func (s *Sequence) cut(n int) {
	keep := pages(n)
	if first := max(keep, len(s.held)); first < len(s.blocks) {
		s.cache.give(s.blocks[first:])
		s.blocks = s.blocks[:first]
	}
	for len(s.held) > keep {
		last := len(s.held) - 1
		s.cache.prefixes.drop(s.held[last])
		s.held, s.blocks = s.held[:last], s.blocks[:last]
	}
	if s.cache.prefixes != nil {
		s.tokens = s.tokens[:n]
		s.private = s.private && len(s.held) < n/kernels.BlockTokens
	}
	s.cache.check()
}

// Release returns all pages. Releasing twice does nothing.
func (s *Sequence) Release() {
	if s.released {
		return
	}
	s.Truncate(0)
	s.released = true
	s.cache.open--
}
