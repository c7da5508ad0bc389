package cpu

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"
)

// job is work in units that any worker may take, in any order: a unit's result
// does not depend on who runs it.
type job interface{ unit(w *worker, i int) }

// team is the caller's thread and threads-1 goroutines that wait for jobs. A
// waiting goroutine spins shortly, because the next job of a pass is near, and
// then parks, because ranks may share cores.
type team struct {
	workers []worker // the caller is workers[0]
	ended   sync.WaitGroup

	job     job
	running atomic.Int32 // goroutines that have not finished the job
	turn    atomic.Uint32
	closing bool
	done    chan struct{} // the last goroutine's word to a caller that sleeps
	asleep  atomic.Bool   // the caller sleeps
}

// worker is one thread's own memory.
type worker struct {
	*routines
	tile   *tileArgs
	span   *spanArgs
	memory []byte // of the current unit

	left   atomic.Uint64 // units that are the worker's and not yet taken, see unitRange
	parked atomic.Bool
	wake   chan struct{}
}

// base is where the worker's memory begins.
func (w *worker) base() unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(w.memory)) }

const (
	spins = 4000 // some 10 us of polling
	yield = 64   // polls between two calls of the scheduler
)

func newTeam(threads int, r *routines) *team {
	t := &team{workers: make([]worker, threads), done: make(chan struct{}, 1)}
	for i := range t.workers {
		w := &t.workers[i]
		w.routines, w.tile, w.span = r, new(tileArgs), new(spanArgs)
		w.wake = make(chan struct{}, 1)
	}
	for i := range t.workers[1:] {
		t.ended.Go(func() { t.loop(&t.workers[1+i]) })
	}
	return t
}

// run does all units of j and returns when they are done.
func (t *team) run(j job, units int) {
	if len(t.workers) == 1 || units < 2 {
		for i := range units {
			j.unit(&t.workers[0], i)
		}
		return
	}
	t.job = j
	for i := range t.workers {
		n := len(t.workers)
		t.workers[i].left.Store(unitRange(i*units/n, (i+1)*units/n))
	}
	t.start()
	t.take(&t.workers[0])
	for i := 0; t.running.Load() > 0; i++ {
		if i < spins {
			pause(i)
			continue
		}
		t.asleep.Store(true)
		if t.running.Load() > 0 || !t.asleep.CompareAndSwap(true, false) {
			<-t.done
		}
		break
	}
	t.job = nil
}

func (t *team) start() {
	t.running.Store(int32(len(t.workers) - 1))
	t.turn.Add(1)
	for i := range t.workers[1:] {
		if w := &t.workers[1+i]; w.parked.CompareAndSwap(true, false) {
			w.wake <- struct{}{}
		}
	}
}

// take runs the worker's own units from the first on, for those of a product
// adjoin in memory and are read fastest in turn, and then the last ones of others.
func (t *team) take(w *worker) {
	for i, ok := w.takeFirst(); ok; i, ok = w.takeFirst() {
		t.job.unit(w, i)
	}
	for n := range t.workers {
		other := &t.workers[n]
		for i, ok := other.takeLast(); ok; i, ok = other.takeLast() {
			t.job.unit(w, i)
		}
	}
}

// unitRange is the units [lo, hi) in one word.
func unitRange(lo, hi int) uint64 { return uint64(hi)<<32 | uint64(lo) }

func (w *worker) takeFirst() (unit int, ok bool) {
	for {
		left := w.left.Load()
		lo, hi := int(uint32(left)), int(left>>32)
		if lo >= hi {
			return 0, false
		}
		if w.left.CompareAndSwap(left, unitRange(lo+1, hi)) {
			return lo, true
		}
	}
}

func (w *worker) takeLast() (unit int, ok bool) {
	for {
		left := w.left.Load()
		lo, hi := int(uint32(left)), int(left>>32)
		if lo >= hi {
			return 0, false
		}
		if w.left.CompareAndSwap(left, unitRange(lo, hi-1)) {
			return hi - 1, true
		}
	}
}

func (t *team) loop(w *worker) {
	for seen := uint32(0); ; seen++ {
		t.await(w, seen)
		if t.closing {
			return
		}
		t.take(w)
		if t.running.Add(-1) == 0 && t.asleep.CompareAndSwap(true, false) {
			t.done <- struct{}{}
		}
	}
}

// await returns when the turn after seen has begun.
func (t *team) await(w *worker, seen uint32) {
	for i := 0; t.turn.Load() == seen; i++ {
		if i < spins {
			pause(i)
			continue
		}
		w.parked.Store(true)
		if t.turn.Load() == seen || !w.parked.CompareAndSwap(true, false) {
			<-w.wake
		}
		i = 0
	}
}

func pause(i int) {
	if i%yield == yield-1 {
		runtime.Gosched()
	}
}

// reserve gives every worker at least this much memory, kept for later jobs.
func (t *team) reserve(bytes int) error {
	for i := range t.workers {
		w := &t.workers[i]
		if len(w.memory) >= bytes {
			continue
		}
		memory, err := mapAnonymous(max(bytes, slabBytes/16), true)
		if err != nil {
			return err
		}
		if err := unmap(w.memory); err != nil {
			return err
		}
		w.memory = memory
	}
	return nil
}

// close ends the goroutines and frees their memory.
func (t *team) close() error {
	t.closing = true
	t.start()
	t.ended.Wait()
	var errs []error
	for i := range t.workers {
		errs = append(errs, unmap(t.workers[i].memory))
		t.workers[i].memory = nil
	}
	return errors.Join(errs...)
}
