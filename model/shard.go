package model

import "fmt"

// MaxRanks is the largest group that Octet forms.
const MaxRanks = 8

// Shard names one rank's part of a model.
type Shard struct {
	Rank  int
	Ranks int
}

// Validate reports a shard that no group has.
func (s Shard) Validate() error {
	if s.Ranks < 1 || s.Ranks > MaxRanks {
		return fmt.Errorf("a group has 1 to %d ranks, not %d", MaxRanks, s.Ranks)
	}
	if s.Rank < 0 || s.Rank >= s.Ranks {
		return fmt.Errorf("rank %d is not in a group of %d", s.Rank, s.Ranks)
	}
	return nil
}

// Split divides units into contiguous runs whose lengths differ by at most one
// and returns the run [lo, hi) of one rank. It is empty for some ranks when
// there are fewer units than ranks; such a rank contributes zeros.
func Split(units, ranks, rank int) (lo, hi int) {
	return units * rank / ranks, units * (rank + 1) / ranks
}

// Split is this rank's run of units.
func (s Shard) Split(units int) (lo, hi int) { return Split(units, s.Ranks, s.Rank) }

// SplitBy divides n values in whole multiples of granule, the last one ragged:
// a quantised width is cut only where its scales begin.
func (s Shard) SplitBy(n, granule int) (lo, hi int) {
	lo, hi = s.Split((n + granule - 1) / granule)
	return min(lo*granule, n), min(hi*granule, n)
}

// Tile is what unquantised widths are cut in multiples of when that costs no
// balance: vector lanes and tensor-core tiles then see no ragged edge.
const Tile = 32

// SplitWidth divides the width of an MLP or a vocabulary. granule is the
// quantisation group, or 1.
func (s Shard) SplitWidth(n, granule int) (lo, hi int) {
	if granule == 1 && n%Tile == 0 && n/Tile >= 4*s.Ranks {
		granule = Tile
	}
	return s.SplitBy(n, granule)
}

// VocabWidths is how many rows of the vocabulary each rank of a group holds.
func VocabWidths(vocab, ranks int) []int {
	widths := make([]int, ranks)
	for r := range widths {
		lo, hi := Shard{Rank: r, Ranks: ranks}.SplitWidth(vocab, 1)
		widths[r] = hi - lo
	}
	return widths
}

// HeadShard is the part of a grouped-query attention that one rank computes.
type HeadShard struct {
	QueryLo, QueryHi int     // query heads
	KVLo, KVHi       int     // key/value heads those need
	KVOf             []int32 // local key/value head of each local query head
}

// SplitHeads divides query heads evenly. A key/value head whose query heads
// straddle ranks, or outnumbered by the ranks, is replicated.
func (s Shard) SplitHeads(queryHeads, kvHeads int) HeadShard {
	lo, hi := s.Split(queryHeads)
	h := HeadShard{QueryLo: lo, QueryHi: hi}
	if lo == hi {
		return h
	}
	group := queryHeads / kvHeads
	h.KVLo, h.KVHi = lo/group, (hi-1)/group+1
	h.KVOf = make([]int32, hi-lo)
	for i := range h.KVOf {
		h.KVOf[i] = int32((lo+i)/group - h.KVLo)
	}
	return h
}
