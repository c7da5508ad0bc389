package shm

import (
	"math"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// CacheLine is the distance that keeps words of different writers apart. Two
// lines, because processors prefetch them in pairs.
const CacheLine = 128

// slice bounds one raw futex wait. It is no shorter than the scheduler's tick at
// 250 Hz, so that a wait hardly ever is the processor's next timer: programming
// that costs 6 us a wait in a virtual machine. The collector need not wait for its
// end, the signal by which it preempts a thread interrupts the system call.
const slice = 5 * time.Millisecond

// Word is a 32-bit word in shared memory that processes can wait on.
type Word struct{ v atomic.Uint32 }

// Counter is a 64-bit counter in shared memory.
type Counter struct{ atomic.Uint64 }

// Load returns the word's value.
func (w *Word) Load() uint32 { return w.v.Load() }

// Store sets the word. It wakes nobody.
func (w *Word) Store(v uint32) { w.v.Store(v) }

// Add adds d and returns the new value.
func (w *Word) Add(d uint32) uint32 { return w.v.Add(d) }

// CompareAndSwap sets the word to v if it is old.
func (w *Word) CompareAndSwap(old, v uint32) bool { return w.v.CompareAndSwap(old, v) }

// Wake wakes up to n waiters of the word, in any process.
func (w *Word) Wake(n int) {
	syscall.RawSyscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(w)), futexWake, uintptr(n), 0, 0, 0)
}

// WakeAll wakes every waiter.
func (w *Word) WakeAll() { w.Wake(math.MaxInt32) }

// Sleep waits until the word is not old, a wake, or one time slice, whichever
// comes first. The caller loops: that loop must call something that the
// scheduler can preempt, which any non-inlined Go call is.
func (w *Word) Sleep(old uint32) {
	ts := unix.NsecToTimespec(int64(slice))
	syscall.RawSyscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(w)), futexWait, uintptr(old),
		uintptr(unsafe.Pointer(&ts)), 0, 0)
}

// Block waits like Sleep, for at most limit, but lets the scheduler run other
// goroutines on this processor meanwhile. It costs some microseconds more, and
// is for long waits and for processes that have other work.
func (w *Word) Block(old uint32, limit time.Duration) {
	ts := unix.NsecToTimespec(int64(limit))
	_, _, _ = syscall.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(w)), futexWait, uintptr(old),
		uintptr(unsafe.Pointer(&ts)), 0, 0)
}

// The futex operations, without FUTEX_PRIVATE_FLAG: the words are shared.
const (
	futexWait = 0
	futexWake = 1
)
