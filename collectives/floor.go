package collectives

import (
	"slices"
	"time"

	"github.com/octet-run/octet/collectives/transport"
	"github.com/octet-run/octet/kernels/cpu"
)

// timeFloor is the least that a payload can take on one core: reading every rank's
// partial once and writing the sum, and one round of waking everybody, which is
// what a barrier costs.
func timeFloor(c *Communicator, p Payload, iterations int) (Timing, error) {
	sums := make([]time.Duration, iterations)
	if err := c.Barrier(); err != nil {
		return Timing{}, err
	}
	if c.rank == 0 {
		n := p.Elements()
		sources := make([][]float32, c.size)
		for r := range sources {
			sources[r] = c.link.Memory(transport.Partial, r, 0, c.op)[:n]
		}
		sum := c.link.Memory(transport.Scratch, 0, 0, c.op)[:n]
		for i := range sums {
			begin := time.Now()
			cpu.SumTree(sum, sources)
			sums[i] = time.Since(begin)
		}
	}
	barriers := make([]time.Duration, iterations)
	for i := range barriers {
		begin := time.Now()
		if err := c.Barrier(); err != nil {
			return Timing{}, err
		}
		barriers[i] = time.Since(begin)
	}
	slices.Sort(sums)
	slices.Sort(barriers)
	at := func(i int) time.Duration { return sums[i] + barriers[i] }
	return Timing{Name: "floor", Bytes: p.Bytes(), Median: at(iterations / 2), P99: at(iterations * 99 / 100)}, nil
}
