package collectives

import (
	"fmt"
	"math/bits"
	"unsafe"

	"github.com/octet-run/octet/collectives/transport"
)

// Communicator is one rank's side of the group's collectives. It is used from
// the rank's engine thread only.
type Communicator struct {
	link transport.Transport
	crew transport.Rendezvous // nil where the ranks share no counters
	rank int
	size int

	op    uint32 // number of the next operation
	hash  uint64 // of all operations so far
	fault error  // the error that ended the epoch

	sources [][]float32 // scratch: one operand per rank
	job     job         // what helpers of the current operation compute
	help    func() bool
	gather  [2][]float32 // results of gathers, grown on demand
	direct  bool         // every rank sums for itself
}

// Config says how a communicator works. The zero value suits ranks that share CPUs.
type Config struct {
	// Dedicated says that every rank has a CPU to itself.
	Dedicated bool
}

// New is the communicator of one rank over its transport.
func New(link transport.Transport, cfg Config) (*Communicator, error) {
	c := &Communicator{link: link, rank: link.Rank(), size: link.Ranks(), op: link.FirstOp()}
	c.crew, _ = link.(transport.Rendezvous)
	c.sources = make([][]float32, c.size)
	c.help = c.workOnJob
	c.direct = c.crew == nil || cfg.Dedicated
	return c, nil
}

// Rank is this rank.
func (c *Communicator) Rank() int { return c.rank }

// Size is the number of ranks.
func (c *Communicator) Size() int { return c.size }

// OpHash is the rolling hash of all operations so far. Ranks in step have equal ones.
func (c *Communicator) OpHash() uint64 { return c.hash }

// Partial is slab memory for a [rows, width] partial sum. It is valid until the
// reduction it is passed to, which must be the next call.
func (c *Communicator) Partial(rows, width int) ([]float32, error) {
	if rows < 0 || width < 0 || rows*width > c.link.Capacity() {
		return nil, fmt.Errorf("partial sum of [%d, %d] does not fit the slab of %d elements: raise the group's MaxRows or MaxWidth",
			rows, width, c.link.Capacity())
	}
	return c.link.Memory(transport.Partial, c.rank, 0, c.op)[:rows*width], nil
}

// AllReduce is the sum over ranks of their [rows, width] partials, valid until
// the next call but one.
func (c *Communicator) AllReduce(partial []float32, rows, width int) ([]float32, error) {
	if err := c.enterReduction(transport.AllReduce, partial, rows, width); err != nil {
		return nil, err
	}
	c.job = job{op: c.op, rows: rows, width: width}
	if err := c.reduce(); err != nil {
		return nil, c.failed(transport.AllReduce, err)
	}
	sum := c.result(rows * width)
	c.leave()
	return sum, nil
}

// AllReduceAddNorm adds the sum over ranks of their partials to residual, in
// place, and returns the rows of the new residual normalised with weight, valid
// until the next call but one. residual is [rows, width] and equal on all ranks;
// weight is [width].
func (c *Communicator) AllReduceAddNorm(partial []float32, rows, width int, residual, weight []float32, eps float32) ([]float32, error) {
	if len(residual) != rows*width || len(weight) != width {
		return nil, fmt.Errorf("fused all-reduce of [%d, %d]: residual has %d elements and weight %d", rows, width, len(residual), len(weight))
	}
	if err := c.enterReduction(transport.AllReduceAddNorm, partial, rows, width); err != nil {
		return nil, err
	}
	c.job = job{op: c.op, rows: rows, width: width, residual: residual, weight: weight, eps: eps}
	if err := c.reduce(); err != nil {
		return nil, c.failed(transport.AllReduceAddNorm, err)
	}
	normed := c.normed(rows * width)
	c.leave()
	return normed, nil
}

// enterReduction enters a reduction of partial, which is copied into the slab
// unless it lies there.
func (c *Communicator) enterReduction(kind transport.Kind, partial []float32, rows, width int) error {
	slab, err := c.Partial(rows, width)
	if err != nil {
		return err
	}
	if len(partial) != len(slab) {
		return fmt.Errorf("%v of [%d, %d]: the partial sum has %d elements", kind, rows, width, len(partial))
	}
	if unsafe.SliceData(slab) != unsafe.SliceData(partial) {
		copy(slab, partial)
	}
	return c.enter(kind, rows, width)
}

// Barrier returns when all ranks have called it.
func (c *Communicator) Barrier() error {
	if err := c.enter(transport.Barrier, 0, 0); err != nil {
		return err
	}
	if err := c.meet(); err != nil {
		return c.failed(transport.Barrier, err)
	}
	c.leave()
	return nil
}

// enter begins the next operation.
func (c *Communicator) enter(kind transport.Kind, rows, width int) error {
	if c.fault != nil {
		return c.fault
	}
	if err := c.link.Err(); err != nil {
		return c.failed(kind, err)
	}
	c.hash = mix(mix(c.hash, uint64(kind)), uint64(rows)<<32|uint64(uint32(width)))
	c.link.Post(c.op, transport.Descriptor{Kind: kind, Rows: uint32(rows), Width: uint32(width), Hash: c.hash})
	return nil
}

// leave ends the operation.
func (c *Communicator) leave() {
	c.link.Complete(c.op)
	c.op++
}

// failed keeps the error that ended the epoch: no later call can succeed.
func (c *Communicator) failed(kind transport.Kind, err error) error {
	c.fault = fmt.Errorf("rank %d, operation %d, %v: %w", c.rank, c.op, kind, err)
	return c.fault
}

// meet waits until all ranks have entered the operation.
func (c *Communicator) meet() error {
	if !c.direct {
		c.job = job{op: c.op}
		return c.reduceCentral()
	}
	return c.awaitPosts()
}

func (c *Communicator) awaitPosts() error {
	for d := 1; d < c.size; d++ {
		if err := c.link.AwaitPost((c.rank+d)%c.size, c.op); err != nil {
			return err
		}
	}
	return nil
}

// mix folds v into a hash.
func mix(h, v uint64) uint64 {
	hi, lo := bits.Mul64(h^0x9e3779b97f4a7c15, v^0xd1b54a32d192ed03)
	return hi ^ lo
}
