package collectives

import (
	"github.com/octet-run/octet/collectives/transport"
	"github.com/octet-run/octet/kernels/cpu"
)

// operands is what the fused form works with besides partials.
type operands struct {
	residual []float32 // [rows, width]
	weight   []float32 // [width]
	eps      float32
}

// run executes this rank's program for the current operation.
func (c *Communicator) run(prog *compiled) error {
	steps := prog.steps[c.op&1]
	for i := 0; i < len(steps); i++ {
		s := &steps[i]
		var err error
		switch s.Do {
		case Signal:
			if s.Peer != Everyone { // posted on entry
				c.link.Signal(s.Peer, s.Tag, c.op)
			}
		case Wait:
			err = c.wait(s)
		case LastArrival:
			err = c.arrive(prog)
			i = prog.after - 1
		default:
			i += c.move(prog, i, steps[i:]) - 1
		}
		if err != nil {
			return err
		}
	}
	if !prog.posts {
		return c.link.Check(c.op)
	}
	return nil
}

func (c *Communicator) wait(s *boundStep) error {
	switch {
	case s.Peer == Everyone:
		return c.crew.AwaitFinish(c.op, c.help)
	case s.Tag == Posted:
		return c.link.AwaitPost(s.Peer, c.op)
	}
	return c.link.Await(s.Peer, s.Tag, c.op, s.Phase)
}

// arrive counts this rank in. The last one has seen all descriptors, so nobody
// helps with an operation on which the ranks disagree.
func (c *Communicator) arrive(prog *compiled) error {
	c.current = prog
	if !c.crew.Arrive(c.op) {
		return nil
	}
	if err := c.crew.Open(c.op); err != nil {
		return err
	}
	c.work()
	return nil
}

// work does units of the current program while there are any.
func (c *Communicator) work() bool {
	prog := c.current
	steps := prog.steps[c.op&1]
	worked := false
	for {
		unit, ok := c.crew.Claim(c.op, len(prog.units))
		if !ok {
			return worked
		}
		first := prog.units[unit]
		c.traced(first-1, &steps[first-1])
		for i := first; i < first+steps[first-1].Count; {
			i += c.move(prog, i, steps[i:])
		}
		c.crew.Finish(c.op, len(prog.units))
		worked = true
	}
}

// move does step i, which writes memory, the first of steps, and says how many it did:
// a sum that is normalised at once is two.
func (c *Communicator) move(prog *compiled, i int, steps []boundStep) (done int) {
	s := &steps[0]
	to := s.to
	if to == nil {
		to = c.fused.residual[s.Lo:s.Hi]
	}
	switch {
	case s.normed:
		c.addNorm(prog.payload.Width, to, s.from, steps[1].to)
		c.traced(i, s)
		c.traced(i+1, &steps[1])
		return 2
	case s.Do == Put || s.Do == Copy:
		copy(to, s.from[0])
	case addsToResidual(s.Step):
		cpu.AddTree(to, s.from)
	case s.Do == Reduce:
		cpu.SumTree(to, s.from)
		if s.AddResidual {
			cpu.Add(to, to, c.fused.residual[s.Lo:s.Hi])
		}
	case s.Do == Norm:
		from := s.from[0]
		if from == nil {
			from = c.fused.residual[s.Lo:s.Hi]
		}
		normRows(to, from, prog.payload.Width, c.fused.weight, c.fused.eps)
	}
	c.traced(i, s)
	if s.Packet {
		c.link.Signal(s.Peer, s.Tag, c.op)
	}
	return 1
}

// addNorm adds the sum of partials to rows of the residual and normalises them, row
// by row, which then are still in the nearest cache.
func (c *Communicator) addNorm(width int, residual []float32, partials [][]float32, normed []float32) {
	var row [transport.MaxRanks][]float32
	for lo := 0; lo < len(residual); lo += width {
		for r, p := range partials {
			row[r] = p[lo : lo+width]
		}
		cpu.AddTreeNormRow(normed[lo:lo+width], residual[lo:lo+width], row[:len(partials)], c.fused.weight, c.fused.eps)
	}
}

// traced tells the tracer, if there is one, which memory step i read and wrote.
func (c *Communicator) traced(i int, s *boundStep) {
	if c.trace != nil {
		c.trace(c.op, i, s.Do, s.from, s.to)
	}
}
