package collectives

import (
	"fmt"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/octet-run/octet/collectives/transport"
)

// Timing is how long one operation takes at one size, as rank 0 sees it.
type Timing struct {
	Name   string        `json:"name"`
	Bytes  int           `json:"bytes"`
	Fused  bool          `json:"fused,omitempty"`
	Common bool          `json:"common_residual,omitempty"`
	Median time.Duration `json:"median_ns"`
	P99    time.Duration `json:"p99_ns"`
}

// RankBench is what one rank's process measures.
type RankBench struct {
	Name       string
	Payloads   []Payload
	Iterations int
	Dedicated  bool
	Pin        bool // spread ranks over the CPUs in blocks, each bound to one
	Plan       Plan // zero: the default plan
	Floor      bool // also measure what the largest payload takes at least
}

// Run verifies every payload's result, then times back-to-back operations on hot
// slabs. All ranks of the group run it with equal values.
func (b RankBench) Run(group *transport.Group, rank int) ([]Timing, error) {
	runtime.LockOSThread() // for good if pinned: the thread ends with its goroutine
	if b.Pin {
		if err := Pin(rank, group.Ranks()); err != nil {
			return nil, err
		}
	}
	link, err := group.Attach(rank, transport.Polling{Dedicated: b.Dedicated})
	if err != nil {
		return nil, err
	}
	c, err := New(link, Config{Dedicated: b.Dedicated, Plan: b.Plan})
	if err != nil {
		return nil, err
	}
	timings := make([]Timing, 0, len(b.Payloads))
	for _, p := range b.Payloads {
		t, err := timePayload(c, p, b.iterations(p))
		if err != nil {
			return nil, err
		}
		t.Name = b.Name
		timings = append(timings, t)
	}
	if b.Floor && len(b.Payloads) > 0 {
		most := slices.MaxFunc(b.Payloads, func(a, b Payload) int { return a.Bytes() - b.Bytes() })
		t, err := timeFloor(c, most, b.iterations(most))
		if err != nil {
			return nil, err
		}
		timings = append(timings, t)
	}
	return timings, nil
}

// Pin binds the calling thread, which must be locked, to its rank's CPU: the ranks
// are spread in blocks over the CPUs that the process may use. Ranks that share CPUs
// measure, and run, steadily only so.
func Pin(rank, ranks int) error {
	var allowed, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		return fmt.Errorf("read the CPU set: %w", err)
	}
	skip := rank * allowed.Count() / ranks
	for cpu := 0; ; cpu++ {
		if !allowed.IsSet(cpu) {
			continue
		}
		if skip == 0 {
			one.Set(cpu)
			break
		}
		skip--
	}
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		return fmt.Errorf("bind rank %d to a CPU: %w", rank, err)
	}
	return nil
}

// iterations is as the peer's: fewer where one takes long.
func (b RankBench) iterations(p Payload) int {
	if p.Bytes() > 100000 {
		return (b.Iterations + 3) / 4
	}
	return b.Iterations
}

// warmups is how many operations are verified, and not timed, at each size. Even,
// so that both buffers have been used.
const warmups = 10

func timePayload(c *Communicator, p Payload, iterations int) (Timing, error) {
	o := newBenchOperation(c, p)
	for range warmups {
		if err := o.fill(); err != nil {
			return Timing{}, err
		}
		out, err := o.run()
		if err != nil {
			return Timing{}, err
		}
		if err := o.check(out); err != nil {
			return Timing{}, err
		}
	}
	if err := c.Barrier(); err != nil {
		return Timing{}, err
	}
	took := make([]time.Duration, iterations)
	for i := range took {
		begin := time.Now()
		if _, err := o.run(); err != nil {
			return Timing{}, err
		}
		took[i] = time.Since(begin)
	}
	slices.Sort(took)
	return Timing{
		Bytes: p.Bytes(), Fused: p.Fused, Common: p.CommonResidual,
		Median: took[len(took)/2], P99: took[len(took)*99/100],
	}, nil
}

// benchOperation is one payload's operation with values whose sums are known.
type benchOperation struct {
	c        *Communicator
	payload  Payload
	residual []float32
	weight   []float32
}

func newBenchOperation(c *Communicator, p Payload) *benchOperation {
	o := &benchOperation{c: c, payload: p}
	if p.Fused {
		o.residual = make([]float32, p.Elements())
		if p.CommonResidual {
			o.residual = c.Residual(p.Rows, p.Width)
		}
		o.weight = make([]float32, p.Width)
	}
	return o
}

// fill writes the partial: integers below 2^24, so that sums are exact in any order.
func (o *benchOperation) fill() error {
	if o.payload.CommonResidual {
		if err := o.c.Barrier(); err != nil { // the others have checked it
			return err
		}
	}
	clear(o.residual)
	slab, err := o.c.Partial(o.payload.Rows, o.payload.Width)
	if err != nil {
		return err
	}
	for i := range slab {
		slab[i] = float32((o.c.Rank() + 1) * (i % 1000))
	}
	return nil
}

func (o *benchOperation) run() ([]float32, error) {
	p := o.payload
	slab, err := o.c.Partial(p.Rows, p.Width)
	if err != nil {
		return nil, err
	}
	if p.Fused {
		return o.c.AllReduceAddNorm(slab, p.Rows, p.Width, o.residual, o.weight, 1e-5)
	}
	return o.c.AllReduce(slab, p.Rows, p.Width)
}

// check compares the sum, which in the fused form is the residual.
func (o *benchOperation) check(out []float32) error {
	if o.payload.Fused {
		out = o.residual
	}
	n := o.c.Size()
	for i, v := range out {
		if want := float32(n * (n + 1) / 2 * (i % 1000)); v != want {
			return fmt.Errorf("all-reduce of %d bytes: element %d is %v at rank %d, want %v", o.payload.Bytes(), i, v, o.c.Rank(), want)
		}
	}
	return nil
}
