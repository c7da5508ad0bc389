package collectives

import "github.com/octet-run/octet/collectives/transport"

// chunkElements is how much of a sum one claim takes: enough that a claim costs
// little beside it, little enough that two cores share the usual sizes.
const chunkElements = 4096

// central is for ranks that share CPUs: one counter of arrivals, the last to
// arrive offers the chunks of the sum to whoever is awake, and one wake for all.
// A rank sleeps at most once per operation.
func central() Algorithm {
	return Algorithm{
		Name:    "central",
		Summary: "one arrival counter; the last to arrive sums, helped by whoever is awake; one wake",
		Sum:     transport.Common,
		Normed:  transport.CommonNormed,
		Exact:   true,
		Admits:  func(s Shape, _ Payload) error { return needsCoherent(s) },
		Program: centralProgram,
	}
}

func centralProgram(s Shape, rank int, p Payload) []Step {
	steps := []Step{{Do: Signal, Peer: Everyone, Tag: Posted}}
	from, sum := partials(s.Ranks), sumPlace(p)
	n, grain := p.Elements(), chunkElements
	if p.Fused { // whole rows, which the unit can normalise
		grain = max(1, chunkElements/p.Width) * p.Width
	}
	for lo := 0; lo < n || lo == 0; lo += grain { // one unit even without data: somebody finishes
		hi := min(lo+grain, n)
		unit := []Step{{Do: Reduce, Lo: lo, Hi: hi, From: from, To: sum, AddResidual: p.Fused}}
		if p.Fused {
			unit = append(unit, Step{Do: Norm, Lo: lo, Hi: hi, From: []Place{sum}, To: at(transport.CommonNormed, 0)})
		}
		steps = append(steps, Step{Do: LastArrival, Count: len(unit)})
		steps = append(steps, unit...)
	}
	steps = append(steps, Step{Do: Wait, Peer: Everyone, Phase: transport.Reduce})
	if p.Fused && !p.CommonResidual {
		steps = append(steps, keepResidual(rank, 0, n, sum))
	}
	return steps
}
