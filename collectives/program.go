package collectives

import (
	"errors"
	"fmt"

	"github.com/octet-run/octet/collectives/transport"
)

// Action is what a step does.
type Action uint8

const (
	// Put writes elements [Lo, Hi) of From into To, memory of rank Peer.
	Put Action = iota
	// Signal raises flag Tag at Peer. With Peer Everyone it is the post flag, raised
	// on entry, and always the first step.
	Signal
	// Wait waits for Peer's flag Tag, or its post flag (Tag Posted); with Peer
	// Everyone, until all units of LastArrival are done.
	Wait
	// Reduce writes the tree sum of From to To.
	Reduce
	// Copy writes From to To, both at this rank.
	Copy
	// Norm writes the normalised rows of From to To.
	Norm
	// LastArrival makes the next Count steps one unit of work, which one rank does:
	// the last to arrive, or one that arrived before and is awake.
	LastArrival
)

var actionNames = [...]string{"put", "signal", "wait", "reduce", "copy", "norm", "last-arrival"}

// String names the action.
func (a Action) String() string { return actionNames[a] }

const (
	// Everyone is the Peer of a step that concerns all ranks.
	Everyone = -1
	// Posted is the Tag of the post flag.
	Posted = -1
	// Residual is the region of the residual: the caller's memory, or the group's.
	Residual transport.Region = 0xff
)

// Place is a buffer. Elements [Lo, Hi) of the payload lie at [Lo, Hi) in every
// buffer, so a place and a range say where data is.
type Place struct {
	Region transport.Region
	Owner  int // the rank whose memory it is; 0 for common buffers
	Peer   int // the rank that writes an inbox
}

// Step is one step of a rank's program.
type Step struct {
	Do     Action
	Peer   int
	Tag    int
	Phase  transport.Phase
	Lo, Hi int // elements
	From   []Place
	To     Place
	// Packet, of a Put: flag Tag travels with the data. Each 4 bytes of data bring
	// 4 bytes of flag, and no Signal follows.
	Packet bool
	// AddResidual, of a Reduce: the residual is added to the sum (fused form). To may
	// be the residual itself.
	AddResidual bool
	// Count, of a LastArrival: how many of the next steps are the unit.
	Count int
}

// Bytes is the data that the step moves or sums per operand, in float32.
func (s Step) Bytes() int { return 4 * (s.Hi - s.Lo) }

// String is the step as one line of a trace.
func (s Step) String() string {
	switch s.Do {
	case Signal, Wait:
		return fmt.Sprintf("%v peer=%d tag=%d (%v)", s.Do, s.Peer, s.Tag, s.Phase)
	case LastArrival:
		return fmt.Sprintf("%v steps=%d", s.Do, s.Count)
	}
	return fmt.Sprintf("%v %v -> %v [%d, %d)", s.Do, s.From, s.To, s.Lo, s.Hi)
}

// String names the place.
func (p Place) String() string {
	switch p.Region {
	case Residual:
		return "residual"
	case transport.Inbox:
		return fmt.Sprintf("inbox %d<-%d", p.Owner, p.Peer)
	case transport.Common, transport.CommonNormed:
		return p.Region.String()
	}
	return fmt.Sprintf("%v %d", p.Region, p.Owner)
}

func at(region transport.Region, owner int) Place { return Place{Region: region, Owner: owner} }

func inbox(owner, from int) Place {
	return Place{Region: transport.Inbox, Owner: owner, Peer: from}
}

// partials is every rank's partial, in rank order.
func partials(ranks int) []Place {
	places := make([]Place, ranks)
	for r := range places {
		places[r] = at(transport.Partial, r)
	}
	return places
}

// peers is the ranks of [first, first+n) but rank, beginning after it, so that
// not everybody turns to the same one first.
func peers(rank, first, n int) []int {
	var out []int
	for d := 1; d < n; d++ {
		out = append(out, first+(rank-first+d)%n)
	}
	return out
}

// epilogue ends a rank's program in the fused form: the new residual, in place
// sum, becomes the rank's own, and its rows are normalised.
func epilogue(steps []Step, p Payload, rank int, sum Place) []Step {
	if !p.Fused {
		return steps
	}
	if !p.CommonResidual {
		steps = append(steps, keepResidual(rank, 0, p.Elements(), sum))
	}
	return append(steps, Step{Do: Norm, Hi: p.Elements(), From: []Place{sum}, To: at(transport.Normed, rank)})
}

// sumPlace is where ranks that share one memory have the sum, each element written by
// one of them: the residual, if that is the group's too. That one is added to, so no
// unit of work may be done twice; each has one claimant, and nobody claims in an
// operation before all ranks are in it.
func sumPlace(p Payload) Place {
	if p.CommonResidual {
		return at(Residual, 0)
	}
	return at(transport.Common, 0)
}

// keepResidual copies elements of the new residual from sum to where it is kept.
func keepResidual(rank, lo, hi int, sum Place) Step {
	return Step{Do: Copy, Lo: lo, Hi: hi, From: []Place{sum}, To: at(Residual, rank)}
}

// needsOwnResidual is an error for a residual that the group has in common: where
// several ranks read an element of it, none may write it.
func needsOwnResidual(p Payload) error {
	if p.CommonResidual {
		return errors.New("several ranks read each element of the residual, so each needs its own")
	}
	return nil
}
