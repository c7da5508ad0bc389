package collectives

import (
	"fmt"

	"github.com/octet-run/octet/collectives/transport"
)

// maxPacketBytes bounds the payload of one-shot packets, which send it N-1 times
// with as much flag as data.
const maxPacketBytes = 512 << 10

// packets is one-shot by pushing, after NCCL's LL protocol and MSCCL++'s packets:
// data and flags travel together, so one crossing of the link is all there is.
func packets() Algorithm {
	return Algorithm{
		Name:    "packets",
		Summary: "every rank pushes its partial, flags in the data, to all others and sums all of it",
		Sum:     transport.Result,
		Normed:  transport.Normed,
		Exact:   true,
		Admits: func(_ Shape, p Payload) error {
			if p.Bytes() > maxPacketBytes {
				return fmt.Errorf("payload of %d values, at most %d", p.Elements(), maxPacketBytes/4)
			}
			return needsOwnResidual(p)
		},
		Program: packetsProgram,
	}
}

func packetsProgram(s Shape, rank int, p Payload) []Step {
	var steps []Step
	n := p.Elements()
	from := make([]Place, s.Ranks)
	from[rank] = at(transport.Partial, rank)
	for _, peer := range peers(rank, 0, s.Ranks) {
		steps = append(steps, Step{
			Do: Put, Peer: peer, Packet: true, Phase: transport.Scatter,
			Hi: n, From: from[rank : rank+1], To: inbox(peer, rank),
		})
		from[peer] = inbox(rank, peer)
	}
	for _, peer := range peers(rank, 0, s.Ranks) {
		steps = append(steps, Step{Do: Wait, Peer: peer, Phase: transport.Scatter})
	}
	sum := at(transport.Result, rank)
	steps = append(steps, Step{Do: Reduce, Hi: n, From: from, To: sum, AddResidual: p.Fused})
	return epilogue(steps, p, rank, sum)
}
