package collectives

import (
	"fmt"
	"math/bits"
	"time"
	"unsafe"

	"github.com/octet-run/octet/collectives/transport"
)

// Communicator is one rank's side of the group's collectives. It is used from
// the rank's engine thread only.
type Communicator struct {
	link  transport.Transport
	crew  transport.Rendezvous // nil where the ranks share no counters
	rank  int
	size  int
	shape Shape
	plan  Plan

	op    uint32 // number of the next operation
	hash  uint64 // of the plan and all operations so far
	fault error  // the error that ended the epoch

	programs map[Payload]*compiled
	last     *compiled // the program used last
	meeting  *compiled // a reduction of nothing: barrier, gather, broadcast
	current  *compiled // the program whose units work does
	fused    operands
	// commonResidual is the first element of the group's residual, or nil.
	commonResidual *float32
	help           func() bool
	gather         [2][]float32 // results of gathers, grown on demand
	trace          Tracer
}

// Config says how a communicator works. The zero value suits processes of one
// machine that share CPUs.
type Config struct {
	// Plan chooses the algorithm for each payload. The zero plan is that of a Policy
	// which knows neither a verdict nor measurements.
	// Ranks must have equal plans: the first operation fails if they have not.
	Plan Plan
	// Dedicated says that every rank has a CPU to itself; it matters to the zero plan.
	Dedicated bool
	// Trace is called with every step done that moves data, for tests that compare
	// it with the program. Flags are traced by wrapping the transport.
	Trace Tracer
}

// Tracer learns of a step that was done: its index in the program, and the memory
// it read and wrote (nil: the residual, at the elements of the other side).
type Tracer func(op uint32, step int, do Action, from [][]float32, to []float32)

// New is the communicator of one rank over its transport.
func New(link transport.Transport, cfg Config) (*Communicator, error) {
	c := &Communicator{
		link: link, rank: link.Rank(), size: link.Ranks(), op: link.FirstOp(),
		plan: cfg.Plan, trace: cfg.Trace, programs: map[Payload]*compiled{},
	}
	c.crew, _ = link.(transport.Rendezvous)
	c.help = c.work
	if c.plan.isZero() {
		paged, _ := link.(interface{ HugePages() bool })
		plan, err := Policy{
			Shape: Shape{Ranks: c.size, Coherent: c.crew != nil}, Dedicated: cfg.Dedicated,
			HugePages: paged != nil && paged.HugePages(),
		}.Plan(nil)
		if err != nil {
			return nil, err
		}
		c.plan = plan
	}
	c.shape = c.plan.Shape
	if err := c.plan.validate(c.size); err != nil {
		return nil, err
	}
	c.hash = c.plan.Hash()
	meeting, err := c.plan.Choose(Payload{})
	if err != nil {
		return nil, err
	}
	c.meeting = c.compile(meeting, Payload{})
	largest := Payload{Rows: 1, Width: link.Capacity(), Fused: true, CommonResidual: true}
	if _, err := c.plan.Choose(largest); err == nil && c.shape.Coherent {
		c.commonResidual = unsafe.SliceData(link.Memory(transport.CommonResidual, 0, 0, 0))
	}
	return c, nil
}

// Rank is this rank.
func (c *Communicator) Rank() int { return c.rank }

// Size is the number of ranks.
func (c *Communicator) Size() int { return c.size }

// Plan is the plan in use: which algorithm reduces which payload, and why.
func (c *Communicator) Plan() Plan { return c.plan }

// OpHash is the rolling hash of all operations so far. Ranks in step have equal ones.
func (c *Communicator) OpHash() uint64 { return c.hash }

// Skew is how long, in all, this rank has waited in collectives for other ranks to
// come, as opposed to the reduction itself.
func (c *Communicator) Skew() time.Duration { return c.link.Skew() }

// Partial is slab memory for a [rows, width] partial sum. It is valid until the
// reduction it is passed to, which must be the next call.
func (c *Communicator) Partial(rows, width int) ([]float32, error) {
	if rows < 0 || width < 0 || rows*width > c.link.Capacity() {
		return nil, fmt.Errorf("partial sum of [%d, %d] does not fit the slab of %d elements: raise the group's MaxRows or MaxWidth",
			rows, width, c.link.Capacity())
	}
	return c.link.Memory(transport.Partial, c.rank, 0, c.op)[:rows*width], nil
}

// Residual is memory for a [rows, width] residual that the whole group has in
// common, where ranks share one memory; else nil. AllReduceAddNorm then updates it
// once, not once per rank.
//
// It is one memory, the same at every call. All ranks write equal values to it, if
// any, and only after another operation has returned to them: a rank enters that
// one when it no longer reads what was there.
func (c *Communicator) Residual(rows, width int) []float32 {
	if c.commonResidual == nil || rows*width > c.link.Capacity() {
		return nil
	}
	return unsafe.Slice(c.commonResidual, rows*width)
}

// AllReduce is the sum over ranks of their [rows, width] partials, valid until
// the next call but one.
func (c *Communicator) AllReduce(partial []float32, rows, width int) ([]float32, error) {
	prog, err := c.reduce(transport.AllReduce, partial, Payload{Rows: rows, Width: width})
	if err != nil {
		return nil, err
	}
	sum := prog.sum[c.op&1]
	c.leave()
	return sum, nil
}

// AllReduceAddNorm adds the sum over ranks of their partials to residual, in
// place, and returns the rows of the new residual normalised with weight, valid
// until the next call but one. residual is [rows, width] and equal on all ranks;
// weight is [width].
func (c *Communicator) AllReduceAddNorm(partial []float32, rows, width int, residual, weight []float32, eps float32) ([]float32, error) {
	if len(residual) != rows*width || len(weight) != width || width == 0 {
		return nil, fmt.Errorf("fused all-reduce of [%d, %d]: residual has %d elements and weight %d", rows, width, len(residual), len(weight))
	}
	c.fused = operands{residual: residual, weight: weight, eps: eps}
	p := Payload{Rows: rows, Width: width, Fused: true}
	p.CommonResidual = c.commonResidual != nil && unsafe.SliceData(residual) == c.commonResidual
	prog, err := c.reduce(transport.AllReduceAddNorm, partial, p)
	if err != nil {
		return nil, err
	}
	normed := prog.normed[c.op&1]
	c.leave()
	return normed, nil
}

// reduce runs the payload's program on partial, which is copied into the slab
// unless it lies there.
func (c *Communicator) reduce(kind transport.Kind, partial []float32, p Payload) (*compiled, error) {
	slab, err := c.Partial(p.Rows, p.Width)
	if err != nil {
		return nil, err
	}
	if len(partial) != len(slab) {
		return nil, fmt.Errorf("%v of [%d, %d]: the partial sum has %d elements", kind, p.Rows, p.Width, len(partial))
	}
	prog, err := c.program(p)
	if err != nil {
		return nil, err
	}
	if unsafe.SliceData(slab) != unsafe.SliceData(partial) {
		copy(slab, partial)
	}
	if err := c.enter(kind, p.Rows, p.Width); err != nil {
		return nil, err
	}
	if err := c.run(prog); err != nil {
		return nil, c.failed(kind, err)
	}
	return prog, nil
}

// Barrier returns when all ranks have called it.
func (c *Communicator) Barrier() error {
	if err := c.enter(transport.Barrier, 0, 0); err != nil {
		return err
	}
	if err := c.run(c.meeting); err != nil {
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

// mix folds v into a hash.
func mix(h, v uint64) uint64 {
	hi, lo := bits.Mul64(h^0x9e3779b97f4a7c15, v^0xd1b54a32d192ed03)
	return hi ^ lo
}
