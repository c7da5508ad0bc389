package transport

import (
	"fmt"
	"math"
	"time"
)

// Config sizes a group.
type Config struct {
	Ranks    int
	MaxRows  int // largest partial result: rows
	MaxWidth int // and elements per row
	Epoch    uint32
	FirstOp  uint32 // number of the first operation; tests start near wrap-around
	// HugePages asks for huge pages under partials and common results, where the
	// kernel has them: ranks that share processors otherwise spend more time on
	// translations than on sums, from some 100 KiB of payload on. They take their
	// memory, at most one huge page a buffer, at once. Group.HugePages says if it worked.
	HugePages bool
}

func (c Config) validate() error {
	switch {
	case c.Ranks < 1 || c.Ranks > MaxRanks:
		return fmt.Errorf("group of %d ranks: want 1 to %d", c.Ranks, MaxRanks)
	case c.MaxRows < 1 || c.MaxWidth < 1:
		return fmt.Errorf("slab of [%d, %d]: rows and width must be positive", c.MaxRows, c.MaxWidth)
	case c.MaxRows*c.MaxWidth > maxElements:
		return fmt.Errorf("slab of [%d, %d]: at most %d elements", c.MaxRows, c.MaxWidth, maxElements)
	}
	return nil
}

const maxElements = 1 << 28

// Polling says how a rank waits. The zero value suits ranks that share CPUs.
type Polling struct {
	// Dedicated says that the rank has a CPU to itself: it polls for some
	// milliseconds before it sleeps.
	Dedicated bool
	// Timeout bounds every wait. 0 means 10 s.
	Timeout time.Duration
	// Idle, if set, is what a rank does between polls instead of spinning or
	// sleeping: who drives several ranks on one thread runs the others there.
	Idle func()
	// Now, if set, is the clock by which deadlines pass, instead of the machine's.
	Now func() time.Time
	// Misses, if set, hears now and then during a long wait which rank it is that
	// does not come.
	Misses func(rank int)
}

// A rank with its own CPU spins for about 50 us, then polls through yields, which
// cost little there and save much if something else wants the CPU after all.
const (
	sharedSpins      = 16 // polls before the CPU is given to another rank
	sharedYields     = 32 // polls through yields before the rank sleeps
	dedicatedSpins   = 1 << 11
	dedicatedYields  = 1 << 12
	defaultTimeout   = 10 * time.Second
	pollsPerDeadline = 16 // yields between two looks at the clock
	pollsPerMiss     = 32 // slow polls, of about a millisecond, until Misses hears, and again
)

func (p Polling) spins() int {
	if p.Dedicated {
		return dedicatedSpins
	}
	return sharedSpins
}

func (p Polling) yields() int {
	if p.Dedicated {
		return dedicatedYields
	}
	return sharedYields
}

func (p Polling) now() time.Time {
	if p.Now != nil {
		return p.Now()
	}
	return time.Now()
}

// gapLimit is the most that counts of a time in which a waiting rank did not run: its
// peers may not have run either, if the clock is the machine's.
func (p Polling) gapLimit() time.Duration {
	if p.Now != nil {
		return math.MaxInt64
	}
	return 100 * time.Millisecond
}

func (p Polling) timeout() time.Duration {
	if p.Timeout <= 0 {
		return defaultTimeout
	}
	return p.Timeout
}
