package collectives

import (
	"slices"

	"github.com/octet-run/octet/collectives/transport"
)

// compiled is a rank's program for one payload with its places resolved to
// memory, once for even and once for odd operations.
type compiled struct {
	algorithm Algorithm
	payload   Payload
	steps     [2][]boundStep
	sum       [2][]float32
	normed    [2][]float32
	units     []int // index of the first step of each unit of LastArrival
	after     int   // index of the step after all units
	posts     bool  // peers' descriptors are compared on the way
}

// boundStep is a Step with memory. A nil place is the residual.
type boundStep struct {
	*Step
	from [][]float32
	to   []float32
	// normed says that the next step normalises the whole rows which this one adds to
	// the residual: both are done in one go.
	normed bool
}

func (c *Communicator) compile(a Algorithm, p Payload) *compiled {
	steps := a.Program(c.shape, c.rank, p)
	out := &compiled{algorithm: a, payload: p, posts: len(steps) > 0 && steps[0].Do == Signal && steps[0].Peer == Everyone}
	for i, s := range steps {
		if s.Do == LastArrival {
			out.units = append(out.units, i+1)
			out.after = i + 1 + s.Count
		}
	}
	n := p.Elements()
	for parity := range out.steps {
		op := uint32(parity)
		out.sum[parity] = c.resolve(at(a.Sum, c.owner(a.Sum)), 0, n, op)
		out.normed[parity] = c.resolve(at(a.Normed, c.owner(a.Normed)), 0, n, op)
		out.steps[parity] = make([]boundStep, len(steps))
		for i := range steps {
			s := &steps[i]
			b := boundStep{Step: s}
			if s.Do != Signal && s.Do != Wait && s.Do != LastArrival {
				b.to = c.resolve(s.To, s.Lo, s.Hi, op)
				for _, from := range s.From {
					b.from = append(b.from, c.resolve(from, s.Lo, s.Hi, op))
				}
			}
			b.normed = i+1 < len(steps) && addsToResidual(s) && steps[i+1].Do == Norm && steps[i+1].From[0].Region == Residual &&
				steps[i+1].Lo == s.Lo && steps[i+1].Hi == s.Hi
			out.steps[parity][i] = b
		}
	}
	return out
}

func addsToResidual(s *Step) bool {
	return s.Do == Reduce && s.AddResidual && s.To.Region == Residual
}

// owner is the index by which a region is asked for at this rank.
func (c *Communicator) owner(region transport.Region) int {
	if slices.Contains([]transport.Region{transport.Common, transport.CommonNormed}, region) {
		return 0
	}
	return c.rank
}

func (c *Communicator) resolve(p Place, lo, hi int, op uint32) []float32 {
	if p.Region == Residual {
		return nil
	}
	return c.link.Memory(p.Region, p.Owner, p.Peer, op)[lo:hi]
}

// maxCompiled bounds the programs that are kept. Decoding uses a handful of
// payloads; prefill brings chunks of many sizes.
const maxCompiled = 256

// program is the compiled program for a payload.
func (c *Communicator) program(p Payload) (*compiled, error) {
	if c.last != nil && c.last.payload == p {
		return c.last, nil
	}
	prog := c.programs[p]
	if prog == nil {
		a, err := c.plan.Choose(p)
		if err != nil {
			return nil, err
		}
		if len(c.programs) >= maxCompiled {
			clear(c.programs)
		}
		prog = c.compile(a, p)
		c.programs[p] = prog
	}
	c.last = prog
	return prog, nil
}
