package transport

import (
	"math"

	"github.com/octet-run/octet/faults"
	"github.com/octet-run/octet/internal/shm"
)

// Faulty is a SharedMemory with the points at which faults strike an operation:
// before the rank announces its partial, before it sums, and after the sum.
type Faulty struct {
	*SharedMemory
	in *faults.Injector

	silent  bool // the arrival at the current operation is left out
	repeats bool // or is counted twice
}

// WithFaults is m, with points if there is an injector.
func WithFaults(m *SharedMemory, in *faults.Injector) Transport {
	if in == nil {
		return m
	}
	return &Faulty{SharedMemory: m, in: in}
}

// where is the place in the script's terms: operations count from 1 in each epoch.
func (f *Faulty) where(op uint32) faults.Where {
	return faults.Where{Op: uint64(op-f.firstOp) + 1}
}

// Post enters op unless the script has it otherwise.
func (f *Faulty) Post(op uint32, d Descriptor) {
	f.silent, f.repeats = false, false
	fault := f.in.Point(faults.CollectiveArrive, f.where(op))
	if fault == nil {
		f.SharedMemory.Post(op, d)
		return
	}
	switch fault.Do {
	case faults.Drop:
		f.silent = true
		return
	case faults.Duplicate:
		f.repeats = true
	case faults.Flip:
		f.poison(op, func(bits uint32) uint32 { return bits ^ 1<<30 })
	case faults.NaN:
		f.poison(op, func(uint32) uint32 { return math.Float32bits(float32(math.NaN())) })
	case faults.Stale:
		f.posts[f.rank].Store(flag(f.epoch-1, op))
		f.silent = true
		return
	default:
		f.fail(fault)
	}
	f.SharedMemory.Post(op, d)
}

// poison changes the first element of the partial.
func (f *Faulty) poison(op uint32, change func(uint32) uint32) {
	slab := f.Memory(Partial, f.rank, 0, op)
	slab[0] = math.Float32frombits(change(math.Float32bits(slab[0])))
}

// fail carries out what needs nothing of the place. An operation has no way to
// return an error of its own from here, so an injected one ends the epoch.
func (f *Faulty) fail(fault *faults.Fault) {
	if faults.Strike(fault) != nil {
		f.Abort(f.rank, shm.Requested)
	}
}

// Signal raises a flag, unless the rank is silent in this operation.
func (f *Faulty) Signal(to, tag int, op uint32) {
	if !f.silent {
		f.SharedMemory.Signal(to, tag, op)
	}
}

// Arrive counts the rank as often as the script says.
func (f *Faulty) Arrive(op uint32) (last bool) {
	if f.silent {
		return false
	}
	if f.repeats && f.SharedMemory.Arrive(op) {
		return true
	}
	return f.SharedMemory.Arrive(op)
}

// Claim passes the point before a rank sums.
func (f *Faulty) Claim(op uint32, chunks int) (chunk int, ok bool) {
	chunk, ok = f.SharedMemory.Claim(op, chunks)
	if ok {
		f.fail(f.in.Point(faults.CollectiveReduce, f.where(op)))
	}
	return chunk, ok
}

// Complete passes the point after the sum.
func (f *Faulty) Complete(op uint32) {
	f.fail(f.in.Point(faults.CollectiveLeave, f.where(op)))
	f.SharedMemory.Complete(op)
}
