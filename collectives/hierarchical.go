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
		Program: func(s Shape, rank int, p Payload) []Step { return hierarchicalProgram(s, rank, p, 1) },
	}
}

// pipelined is hierarchical in chunks: while one crosses between the islands, the
// next is scattered and the one before is gathered. It pays where the links between
// islands are the narrow ones; where a rank's own link is, or where flags are dear,
// it costs. So only measurement chooses it.
func pipelined() Algorithm {
	a := hierarchical()
	a.Name = "pipelined hierarchical"
	a.Summary = "hierarchical in chunks, the three phases at the same time"
	a.Program = func(s Shape, rank int, p Payload) []Step { return hierarchicalProgram(s, rank, p, pipelineChunks) }
	return a
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

// pipelineChunks is how many chunks a shard is cut into. Each needs flags of its own
// for its three phases, of which there are transport.Tags.
const pipelineChunks = 4

// phasesOfTwo is the tags of the two-level exchanges: scatter, gather, exchange.
const phasesOfTwo = 3

func hierarchicalProgram(s Shape, rank int, p Payload, chunks int) []Step {
	h := hierarchy{Shape: s, payload: p, rank: rank, m: s.IslandSize(), chunks: chunks}
	h.first = rank / h.m * h.m
	for k := range h.chunks + 2 {
		if k < h.chunks {
			h.scatter(k)
		}
		if k := k - 1; k >= 0 && k < h.chunks {
			h.exchange(k)
		}
		if k := k - 2; k >= 0 {
			h.gather(k)
		}
	}
	for k := range h.chunks {
		h.wait(peers(rank, h.first, h.m), gatherTag, k, transport.Gather)
	}
	return epilogue(h.steps, p, rank, at(transport.Result, rank))
}

// hierarchy is a rank's program in the making.
type hierarchy struct {
	Shape
	payload        Payload
	rank, first, m int // this rank, the first of its island, the island's size
	chunks         int
	steps          []Step
}

// chunk is the k-th part of the shard of an owner, by its place in the island.
func (h *hierarchy) chunk(owner, k int) (lo, hi int) {
	from, to := shard(h.payload.Elements(), h.m, owner)
	lo, hi = shard(to-from, h.chunks, k)
	return from + lo, from + hi
}

// scatter pushes chunk k of everybody's shard to its owner in the island.
func (h *hierarchy) scatter(k int) {
	others := peers(h.rank, h.first, h.m)
	for _, peer := range others {
		lo, hi := h.chunk(peer-h.first, k)
		h.put(peer, lo, hi, at(transport.Partial, h.rank), inbox(peer, h.rank), transport.Scatter)
	}
	h.signal(others, scatterTag, k, transport.Scatter)
}

// exchange sums chunk k of this rank's shard over the island and pushes it to the
// owners of the same shard elsewhere.
func (h *hierarchy) exchange(k int) {
	h.wait(peers(h.rank, h.first, h.m), scatterTag, k, transport.Scatter)
	lo, hi := h.chunk(h.rank-h.first, k)
	island := at(transport.Scratch, h.rank)
	h.steps = append(h.steps, Step{Do: Reduce, Lo: lo, Hi: hi, From: arrived(h.rank, h.first, h.m), To: island})
	for _, owner := range h.owners() {
		h.put(owner, lo, hi, island, inbox(owner, h.rank), transport.Exchange)
	}
	h.signal(h.owners(), exchangeTag, k, transport.Exchange)
}

// gather sums chunk k over the islands and pushes it to everybody in this one.
func (h *hierarchy) gather(k int) {
	h.wait(h.owners(), exchangeTag, k, transport.Exchange)
	lo, hi := h.chunk(h.rank-h.first, k)
	across := make([]Place, h.Ranks/h.m)
	across[h.rank/h.m] = at(transport.Scratch, h.rank)
	for _, owner := range h.owners() {
		across[owner/h.m] = inbox(h.rank, owner)
	}
	sum, others := at(transport.Result, h.rank), peers(h.rank, h.first, h.m)
	h.steps = append(h.steps, Step{Do: Reduce, Lo: lo, Hi: hi, From: across, To: sum, AddResidual: h.payload.Fused})
	for _, peer := range others {
		h.put(peer, lo, hi, sum, at(transport.Result, peer), transport.Gather)
	}
	h.signal(others, gatherTag, k, transport.Gather)
}

// owners is the ranks that own the same shard in the other islands.
func (h *hierarchy) owners() []int {
	var owners []int
	for d := h.m; d < h.Ranks; d += h.m {
		owners = append(owners, (h.rank+d)%h.Ranks)
	}
	return owners
}

func (h *hierarchy) put(peer, lo, hi int, from, to Place, phase transport.Phase) {
	h.steps = append(h.steps, Step{Do: Put, Peer: peer, Phase: phase, Lo: lo, Hi: hi, From: []Place{from}, To: to})
}

func (h *hierarchy) signal(to []int, tag, k int, phase transport.Phase) {
	for _, peer := range to {
		h.steps = append(h.steps, Step{Do: Signal, Peer: peer, Tag: tag + phasesOfTwo*k, Phase: phase})
	}
}

func (h *hierarchy) wait(on []int, tag, k int, phase transport.Phase) {
	for _, peer := range on {
		h.steps = append(h.steps, Step{Do: Wait, Peer: peer, Tag: tag + phasesOfTwo*k, Phase: phase})
	}
}
