package collectives

import (
	"errors"

	"github.com/octet-run/octet/collectives/transport"
)

// oneShot is for few ranks with CPUs of their own and small payloads: each reads
// all partials where they are and sums for itself.
func oneShot() Algorithm {
	return Algorithm{
		Name:    "one-shot",
		Summary: "every rank reads all partials in place and sums all of it",
		Sum:     transport.Result,
		Normed:  transport.Normed,
		Exact:   true,
		Admits:  func(s Shape, p Payload) error { return errors.Join(needsCoherent(s), needsOwnResidual(p)) },
		Program: oneShotProgram,
	}
}

func oneShotProgram(s Shape, rank int, p Payload) []Step {
	steps := []Step{{Do: Signal, Peer: Everyone, Tag: Posted}}
	for _, peer := range peers(rank, 0, s.Ranks) {
		steps = append(steps, Step{Do: Wait, Peer: peer, Tag: Posted})
	}
	sum := at(transport.Result, rank)
	steps = append(steps, Step{Do: Reduce, Hi: p.Elements(), From: partials(s.Ranks), To: sum, AddResidual: p.Fused})
	return epilogue(steps, p, rank, sum)
}
