package collectives

import (
	"fmt"
	"math"

	"github.com/octet-run/octet/collectives/transport"
)

// proofElements is what each pair exchanges in a proof.
const proofElements = 256

// Prove finds out, before an epoch's first reduction, that what every rank writes
// arrives at every other, on the memory that the plan's operations use: what a rank
// leaves for others to read, and what it writes for them, to inboxes where the plan has
// any and else to the common result. It is the part of Probe that is cheap enough for
// every start: one barrier, no clock, and memory that will be touched anyway. All ranks
// call it together. A *PathError names a path of the plan's that must not be used, at
// the rank to which it leads.
func (c *Communicator) Prove() error {
	if c.size == 1 {
		return nil
	}
	p := proof{c: c, op: c.op, n: min(proofElements, c.link.Capacity()/c.size), inboxes: c.plan.puts()}
	p.write()
	if err := c.Barrier(); err != nil {
		return err
	}
	return c.refuse(p.read())
}

// proof is one rank's part in a proof.
type proof struct {
	c       *Communicator
	op      uint32
	n       int // elements of each path
	inboxes bool
}

// left is what a rank leaves for all others.
func (p *proof) left(by int) []float32 {
	return p.c.link.Memory(transport.Scratch, by, 0, p.op)[:p.n]
}

// pushed is what a rank writes for another, or its part of the common result.
func (p *proof) pushed(from, to int) []float32 {
	if p.inboxes {
		return p.c.link.Memory(transport.Inbox, to, from, p.op)[:p.n]
	}
	return p.c.link.Memory(transport.Common, 0, 0, p.op)[from*p.n:][:p.n]
}

// at is element i of what a rank writes. No earlier proof has left the same there.
func (p *proof) at(i, from int, d direction) uint32 {
	return patternAt(int(p.op%4096)*proofElements+i, from, from, d)
}

func (p *proof) write() {
	me := p.c.rank
	for i, mem := 0, p.left(me); i < p.n; i++ {
		mem[i] = math.Float32frombits(p.at(i, me, pulled))
	}
	for _, to := range peers(me, 0, p.c.size) {
		for i, mem := 0, p.pushed(me, to); i < p.n; i++ {
			mem[i] = math.Float32frombits(p.at(i, me, pushed))
		}
	}
}

func (p *proof) read() Verdict {
	me := p.c.rank
	v := Verdict{Ranks: p.c.size}
	for _, from := range peers(me, 0, p.c.size) {
		pair := Pair{From: from, To: me}
		for i, left, pushedTo := 0, p.left(from), p.pushed(from, me); i < p.n; i++ {
			if math.Float32bits(left[i]) != p.at(i, from, pulled) || math.Float32bits(pushedTo[i]) != p.at(i, from, pushed) {
				pair.Refused = wrongText
			}
		}
		v.Pairs = append(v.Pairs, pair)
	}
	return v
}

// refuse is an error where the plan uses a path that the verdict refuses.
func (c *Communicator) refuse(v Verdict) error {
	for _, choice := range c.plan.Choices {
		a, err := Find(choice.Algorithm)
		if err != nil {
			return err
		}
		for _, pair := range v.Pairs {
			if pair.Refused != "" && uses(a, c.shape, pair.From, pair.To) {
				return &PathError{From: pair.From, To: pair.To, Algorithm: a.Name, Why: pair.Refused}
			}
		}
	}
	return nil
}

// PathError says that a path of the plan's delivers wrong data.
type PathError struct {
	From, To  int
	Algorithm string // of the plan, that uses it
	Why       string
}

// Error names the path and what it did.
func (e *PathError) Error() string {
	return fmt.Sprintf("the path from rank %d to rank %d, which %q uses, is refused: %s", e.From, e.To, e.Algorithm, e.Why)
}
