package collectives

import (
	"fmt"

	"github.com/octet-run/octet/collectives/transport"
)

// ring is the staged ring: N-1 steps of reduce-scatter, N-1 of all-gather, each
// rank writing to its right neighbour only. It adds the partials of a shard in
// ring order, so it does not keep the arithmetic contract.
func ring() Algorithm {
	return Algorithm{
		Name:    "ring",
		Summary: "2(N-1) steps, each rank writes to its right neighbour alone; not the contract's bits",
		Sum:     transport.Result,
		Normed:  transport.Normed,
		Admits: func(s Shape, p Payload) error {
			if most := transport.Tags/2 + 1; s.Ranks > most {
				return fmt.Errorf("ring of %d ranks, at most %d", s.Ranks, most)
			}
			return needsOwnResidual(p)
		},
		Program: ringProgram,
	}
}

func ringProgram(s Shape, rank int, p Payload) []Step {
	n, parts := p.Elements(), s.Ranks
	right, left := (rank+1)%parts, (rank+parts-1)%parts
	mine, held, sum := at(transport.Partial, rank), at(transport.Scratch, rank), at(transport.Result, rank)
	var steps []Step
	if parts == 1 {
		steps = append(steps, Step{Do: Reduce, Hi: n, From: []Place{mine}, To: sum, AddResidual: p.Fused})
		return epilogue(steps, p, rank, sum)
	}
	pass := func(tag, chunk int, phase transport.Phase, from, to Place) (lo, hi int) {
		lo, hi = shard(n, parts, chunk)
		steps = append(steps,
			Step{Do: Put, Peer: right, Phase: phase, Lo: lo, Hi: hi, From: []Place{from}, To: to},
			Step{Do: Signal, Peer: right, Tag: tag, Phase: phase},
			Step{Do: Wait, Peer: left, Tag: tag, Phase: phase})
		return shard(n, parts, (chunk+parts-1)%parts)
	}
	from := mine
	for t := range parts - 1 {
		lo, hi := pass(t, (rank-t+parts)%parts, transport.Scatter, from, inbox(right, rank))
		to, last := held, t == parts-2
		if last {
			to = sum
		}
		steps = append(steps, Step{
			Do: Reduce, Lo: lo, Hi: hi, From: []Place{inbox(rank, left), mine}, To: to,
			AddResidual: last && p.Fused,
		})
		from = held
	}
	for t := range parts - 1 {
		pass(parts-1+t, (rank-t+1+parts)%parts, transport.Gather, sum, at(transport.Result, right))
	}
	return epilogue(steps, p, rank, sum)
}
