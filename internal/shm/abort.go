package shm

import (
	"errors"
	"fmt"
	"unsafe"
)

// ErrAborted says that the group was told to stop: some rank is gone, stuck or
// out of step, and no operation of this epoch can complete.
var ErrAborted = errors.New("group aborted")

// Reason is why a group was aborted.
type Reason uint16

// The reasons for an abort.
const (
	// Died: the process of a rank is gone.
	Died Reason = 1 + iota
	// TimedOut: a rank did not come to an operation by its deadline.
	TimedOut
	// OutOfStep: a rank ran another operation, or another size, than its peers.
	OutOfStep
	// Requested: the supervisor takes the group down.
	Requested
)

var reasonNames = [...]string{"no reason", "died", "timed out", "out of step", "stop requested"}

// String names the reason.
func (r Reason) String() string {
	if int(r) < len(reasonNames) {
		return reasonNames[r]
	}
	return fmt.Sprintf("reason %d", uint16(r))
}

// AbortError is what an operation of an aborted group returns. It is ErrAborted.
type AbortError struct {
	Epoch  uint32
	Rank   int // the rank at fault, or -1
	Reason Reason
}

// Error names the rank at fault.
func (e *AbortError) Error() string {
	if e.Rank < 0 {
		return fmt.Sprintf("group of epoch %d aborted: %v", e.Epoch, e.Reason)
	}
	return fmt.Sprintf("group of epoch %d aborted: rank %d %v", e.Epoch, e.Rank, e.Reason)
}

// Unwrap makes the error ErrAborted.
func (e *AbortError) Unwrap() error { return ErrAborted }

// Abort is the abort word of a group: the first reason to stop in an epoch, which
// stays. It lies in shared memory; a zero word is an epoch without an abort.
//
// The word is epoch<<32 | (rank+1)<<16 | reason.
type Abort struct{ word Counter }

// Abort is the abort word at byte offset off, a multiple of eight.
func (s *Segment) Abort(off int) *Abort { return (*Abort)(unsafe.Pointer(s.Counter(off))) }

// Raise aborts epoch because of rank (-1: no rank in particular). It reports
// false if the epoch, or a later one, was aborted before: the first reason stays.
func (a *Abort) Raise(epoch uint32, rank int, reason Reason) bool {
	word := uint64(epoch)<<32 | uint64(uint16(rank+1))<<16 | uint64(reason)
	for {
		old := a.word.Load()
		if old != 0 && int32(epoch-uint32(old>>32)) <= 0 {
			return false
		}
		if a.word.CompareAndSwap(old, word) {
			return true
		}
	}
}

// Raised reports whether epoch was aborted.
func (a *Abort) Raised(epoch uint32) bool {
	word := a.word.Load()
	return word != 0 && uint32(word>>32) == epoch
}

// Err is nil, or the *AbortError of epoch.
func (a *Abort) Err(epoch uint32) error {
	word := a.word.Load()
	if word == 0 || uint32(word>>32) != epoch {
		return nil
	}
	return &AbortError{Epoch: epoch, Rank: int(uint16(word>>16)) - 1, Reason: Reason(uint16(word))}
}
