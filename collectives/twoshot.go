package collectives

import "github.com/octet-run/octet/collectives/transport"

// The tags of the two-level exchanges.
const (
	scatterTag = iota
	gatherTag
	exchangeTag
)

// sharedTwoShot splits the sum among ranks that share one memory: each sums its
// shard of all partials into the common result, which is then everybody's.
func sharedTwoShot() Algorithm {
	return Algorithm{
		Name:    "shared two-shot",
		Summary: "every rank sums one shard of all partials into the common result",
		Sum:     transport.Common,
		Normed:  transport.Normed,
		Exact:   true,
		Admits:  func(s Shape, _ Payload) error { return needsCoherent(s) },
		Program: sharedTwoShotProgram,
	}
}

func sharedTwoShotProgram(s Shape, rank int, p Payload) []Step {
	steps := []Step{{Do: Signal, Peer: Everyone, Tag: Posted}}
	others := peers(rank, 0, s.Ranks)
	for _, peer := range others {
		steps = append(steps, Step{Do: Wait, Peer: peer, Tag: Posted})
	}
	sum := sumPlace(p)
	lo, hi := shard(p.Elements(), s.Ranks, rank)
	steps = append(steps, Step{Do: Reduce, Lo: lo, Hi: hi, From: partials(s.Ranks), To: sum, AddResidual: p.Fused})
	steps = rendezvous(steps, others, gatherTag, transport.Gather)
	return epilogue(steps, p, rank, sum)
}

// rendezvous signals all others, then waits for all of them.
func rendezvous(steps []Step, others []int, tag int, phase transport.Phase) []Step {
	for _, peer := range others {
		steps = append(steps, Step{Do: Signal, Peer: peer, Tag: tag, Phase: phase})
	}
	for _, peer := range others {
		steps = append(steps, Step{Do: Wait, Peer: peer, Tag: tag, Phase: phase})
	}
	return steps
}

// twoShot is the flat reduce-scatter and all-gather by pushing.
func twoShot() Algorithm {
	return Algorithm{
		Name:    "two-shot",
		Summary: "shards are pushed to their owners, summed, and pushed to everybody",
		Sum:     transport.Result,
		Normed:  transport.Normed,
		Exact:   true,
		Admits:  func(_ Shape, p Payload) error { return needsOwnResidual(p) },
		Program: twoShotProgram,
	}
}

func twoShotProgram(s Shape, rank int, p Payload) []Step {
	steps := scatter(nil, p.Elements(), rank, 0, s.Ranks)
	lo, hi := shard(p.Elements(), s.Ranks, rank)
	sum := at(transport.Result, rank)
	steps = append(steps, Step{Do: Reduce, Lo: lo, Hi: hi, From: arrived(rank, 0, s.Ranks), To: sum, AddResidual: p.Fused})
	steps = gather(steps, p.Elements(), rank, 0, s.Ranks)
	return epilogue(steps, p, rank, sum)
}

// scatter pushes, among the ranks [first, first+n), each rank's shard to it.
func scatter(steps []Step, elements, rank, first, n int) []Step {
	others := peers(rank, first, n)
	for _, peer := range others {
		lo, hi := shard(elements, n, peer-first)
		steps = append(steps, Step{
			Do: Put, Peer: peer, Phase: transport.Scatter,
			Lo: lo, Hi: hi, From: []Place{at(transport.Partial, rank)}, To: inbox(peer, rank),
		})
	}
	return rendezvous(steps, others, scatterTag, transport.Scatter)
}

// arrived is where the partials of [first, first+n) are after a scatter, in rank order.
func arrived(rank, first, n int) []Place {
	from := make([]Place, n)
	for i := range from {
		from[i] = inbox(rank, first+i)
	}
	from[rank-first] = at(transport.Partial, rank)
	return from
}

// gather pushes rank's finished shard to the others of [first, first+n).
func gather(steps []Step, elements, rank, first, n int) []Step {
	others := peers(rank, first, n)
	lo, hi := shard(elements, n, rank-first)
	for _, peer := range others {
		steps = append(steps, Step{
			Do: Put, Peer: peer, Phase: transport.Gather,
			Lo: lo, Hi: hi, From: []Place{at(transport.Result, rank)}, To: at(transport.Result, peer),
		})
	}
	return rendezvous(steps, others, gatherTag, transport.Gather)
}
