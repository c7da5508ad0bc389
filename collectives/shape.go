package collectives

import (
	"fmt"
	"slices"
)

// Shape is how the ranks of a group lie: which share an island, and whether all
// address one coherent memory.
type Shape struct {
	Ranks int
	// Islands is the number of ranks in each, in rank order. Empty means one island.
	Islands []int
	// Coherent says that every rank reads and writes all memory of the group with
	// ordinary instructions, as processes of one machine do.
	Coherent bool
}

func (s Shape) validate() error {
	total := 0
	for _, m := range s.Islands {
		if m < 1 {
			return fmt.Errorf("islands %v: each needs a rank", s.Islands)
		}
		total += m
	}
	if s.Ranks < 1 || len(s.Islands) > 0 && total != s.Ranks {
		return fmt.Errorf("islands %v do not make up %d ranks", s.Islands, s.Ranks)
	}
	return nil
}

// IslandSize is the number of ranks per island where all have the same, or 0.
func (s Shape) IslandSize() int {
	if len(s.Islands) == 0 {
		return s.Ranks
	}
	if slices.Min(s.Islands) != slices.Max(s.Islands) {
		return 0
	}
	return s.Islands[0]
}

// Payload is what is reduced: [Rows, Width] float32 values per rank.
type Payload struct {
	Rows  int
	Width int
	Fused bool // with residual-add and RMSNorm
	// CommonResidual, of a fused one: the residual is the group's, not each rank's own.
	CommonResidual bool
}

// Elements is the number of values per rank.
func (p Payload) Elements() int { return p.Rows * p.Width }

// Bytes is the size of the payload per rank.
func (p Payload) Bytes() int { return 4 * p.Elements() }

// shardAlign keeps the shards of different owners in different cache lines.
const shardAlign = 32

// shard is the i-th of parts pieces of n elements. The last ones may be empty.
func shard(n, parts, i int) (lo, hi int) {
	size := (n + parts - 1) / parts
	size = (size + shardAlign - 1) / shardAlign * shardAlign
	return min(i*size, n), min((i+1)*size, n)
}
