package boxsim

import (
	"errors"
	"fmt"

	"github.com/octet-run/octet/collectives"
	"github.com/octet-run/octet/collectives/topology"
)

// Config is one all-reduce.
type Config struct {
	Box       *topology.Box
	Ranks     int // 0: one for each GPU, or 8 processes where there is none
	Stack     Stack
	Algorithm string // "": the fastest of the stack's
	Bytes     int    // payload of a rank in the wire type
	Fused     bool   // with residual-add and RMSNorm
	// LateUS is how much later than the first each rank enters, for stragglers.
	LateUS []float64
	// Trace, if set, gets every step of every rank when it is done.
	Trace func(Event)
}

// Event is a step that a rank has done.
type Event struct {
	AtUS float64
	Rank int
	Op   int // of back-to-back operations, among processes
	Step int // index in the rank's program
	Do   collectives.Action
}

// Result is what an all-reduce takes.
type Result struct {
	Algorithm string
	// US is from the entry of the last rank until all have their result; what the
	// others wait for it is skew and no part of it.
	US float64
	// SlowestUS and FastestUS are from each rank's own entry.
	SlowestUS, FastestUS float64
}

// ranks is the size of the group, one for each GPU unless told otherwise.
func (c *Config) ranks() int {
	if c.Ranks > 0 {
		return c.Ranks
	}
	if n := len(c.Box.GPUs()); n > 0 {
		return n
	}
	return 8
}

// shape is how the ranks lie on the box.
func (c *Config) shape() collectives.Shape {
	n := c.ranks()
	s := collectives.Shape{Ranks: n, Coherent: c.Box.Fabric.Device == nil}
	if s.Coherent {
		return s
	}
	left := n
	for _, island := range c.Box.Islands() {
		m := min(left, len(island))
		if m > 0 {
			s.Islands = append(s.Islands, m)
		}
		left -= m
	}
	return s
}

func (c *Config) wireBytes() int {
	if c.Box.Fabric.Device == nil {
		return 4 // sums of processes are float32 throughout
	}
	return c.Stack.WireBytes
}

// payload is one row. Processes have the residual in common, as in a verify pass.
func (c *Config) payload() collectives.Payload {
	return collectives.Payload{
		Rows: 1, Width: max(c.Bytes/c.wireBytes(), 1), Fused: c.Fused, CommonResidual: c.Fused && c.shape().Coherent,
	}
}

// Admits says why an algorithm cannot run, or nil.
func (c *Config) Admits(name string) error {
	a, err := collectives.Find(name)
	if err != nil {
		return err
	}
	reason := a.Admits(c.shape(), c.payload())
	if reason != nil && c.Stack.Unbounded && a.Admits(c.shape(), collectives.Payload{Rows: 1, Width: 1}) == nil {
		return nil
	}
	return reason
}

func (c *Config) validate() error {
	if c.Box == nil || c.Box.Fabric == nil {
		return errors.New("the box has no fabric section: without rates nothing can be simulated")
	}
	n := c.ranks()
	if gpus := len(c.Box.GPUs()); c.Box.Fabric.Device != nil && n > gpus {
		return fmt.Errorf("%d ranks on box %s, which has %d GPUs: give at most one rank a GPU", n, c.Box.Name, gpus)
	}
	if n < 1 || n > 8 {
		return fmt.Errorf("%d ranks: want 1 to 8", n)
	}
	if c.Bytes < 0 {
		return fmt.Errorf("a payload of %d bytes", c.Bytes)
	}
	if len(c.LateUS) != 0 && len(c.LateUS) != n {
		return fmt.Errorf("%d stragglers given for %d ranks", len(c.LateUS), n)
	}
	return nil
}

// Run simulates one all-reduce.
func Run(c Config) (Result, error) {
	if err := c.validate(); err != nil {
		return Result{}, err
	}
	names := c.Stack.Algorithms
	if c.Algorithm != "" {
		names = []string{c.Algorithm}
	}
	var best Result
	var refused []error
	for _, name := range names {
		if err := c.Admits(name); err != nil {
			refused = append(refused, fmt.Errorf("%s: %w", name, err))
			continue
		}
		r, err := c.run(name)
		if err != nil {
			return Result{}, err
		}
		if best.Algorithm == "" || r.US < best.US {
			best = r
		}
	}
	if best.Algorithm == "" {
		return Result{}, fmt.Errorf("no algorithm of %s reduces %d bytes on box %s: %w", c.Stack.Name, c.Bytes, c.Box.Name, errors.Join(refused...))
	}
	return best, nil
}

func (c *Config) run(name string) (Result, error) {
	a, err := collectives.Find(name)
	if err != nil {
		return Result{}, err
	}
	programs := make([][]collectives.Step, c.ranks())
	for r := range programs {
		programs[r] = a.Program(c.shape(), r, c.payload())
	}
	execute := runGPUs
	if c.Box.Fabric.Device == nil {
		execute = runProcesses
	}
	result, err := execute(c, programs)
	result.Algorithm = name
	return result, err
}
