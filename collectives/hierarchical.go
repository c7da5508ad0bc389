package collectives

import (
	"fmt"
	"math/bits"

	"github.com/octet-run/octet/collectives/transport"
)

// hierarchical reduces within islands, exchanges float32 partial sums between the
// owners of the same shard in all islands, and gathers within islands: the link
// between islands carries each sum once.
//
// An island of a power of two ranks is a subtree of the contract's tree, so the
// bits are those of the flat algorithms.
func hierarchical() Algorithm {
	return Algorithm{
		Name:    "hierarchical",
		Summary: "reduce-scatter within islands, owners exchange across, all-gather within islands",
		Sum:     transport.Result,
		Normed:  transport.Normed,
		Exact:   true,
		Admits:  admitsHierarchical,
		Program: hierarchicalProgram,
	}
}

func admitsHierarchical(s Shape, p Payload) error {
	m := s.IslandSize()
	switch {
	case len(s.Islands) < 2:
		return fmt.Errorf("needs at least two islands")
	case m == 0:
		return fmt.Errorf("islands %v are uneven", s.Islands)
	case bits.OnesCount(uint(m)) != 1:
		return fmt.Errorf("islands of %d ranks are no subtrees of the sum: want a power of two", m)
	}
	return needsOwnResidual(p)
}

func hierarchicalProgram(s Shape, rank int, p Payload) []Step {
	m := s.IslandSize()
	first, islands := rank/m*m, s.Ranks/m
	n := p.Elements()
	lo, hi := shard(n, m, rank-first)
	island, sum := at(transport.Scratch, rank), at(transport.Result, rank)

	steps := scatter(nil, n, rank, first, m)
	steps = append(steps, Step{Do: Reduce, Lo: lo, Hi: hi, From: arrived(rank, first, m), To: island})

	var owners []int // of the same shard, in the other islands
	across := make([]Place, islands)
	for d := range islands {
		owner := (rank + d*m) % s.Ranks
		across[owner/m] = inbox(rank, owner)
		if owner != rank {
			owners = append(owners, owner)
			steps = append(steps, Step{
				Do: Put, Peer: owner, Phase: transport.Exchange,
				Lo: lo, Hi: hi, From: []Place{island}, To: inbox(owner, rank),
			})
		}
	}
	across[rank/m] = island
	steps = rendezvous(steps, owners, exchangeTag, transport.Exchange)
	steps = append(steps, Step{Do: Reduce, Lo: lo, Hi: hi, From: across, To: sum, AddResidual: p.Fused})
	steps = gather(steps, n, rank, first, m)
	return epilogue(steps, p, rank, sum)
}
