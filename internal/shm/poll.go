package shm

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Pause tells the processor that the caller polls a word.
func Pause()

// Yield lets another thread of this CPU run, if one is ready.
func Yield() { syscall.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }

// Low is the word that is the low half of the counter (amd64 is little-endian), to
// sleep on.
func (c *Counter) Low() *Word { return (*Word)(unsafe.Pointer(c)) }
