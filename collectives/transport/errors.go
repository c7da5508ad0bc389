package transport

import (
	"fmt"
	"time"
)

// TimeoutError says that ranks did not come to an operation by the deadline.
type TimeoutError struct {
	Rank    int   // the first of Missing
	Missing []int // the ranks that did not come
	Op      uint32
	Phase   Phase
	After   time.Duration
}

// Error names the missing ranks.
func (e *TimeoutError) Error() string {
	if len(e.Missing) > 1 {
		return fmt.Sprintf("ranks %v did not come to operation %d (%v) within %v", e.Missing, e.Op, e.Phase, e.After)
	}
	return fmt.Sprintf("rank %d did not come to operation %d (%v) within %v", e.Rank, e.Op, e.Phase, e.After)
}

// MismatchError says that a rank entered an operation with another kind, size or
// history than its peers.
type MismatchError struct {
	Rank int
	Op   uint32
	Want Descriptor // what most ranks are in
	Got  Descriptor // what Rank is in
}

// Error names the rank, the operation and both descriptors.
func (e *MismatchError) Error() string {
	if e.Want.Kind == e.Got.Kind && e.Want.Rows == e.Got.Rows && e.Want.Width == e.Got.Width {
		return fmt.Sprintf("rank %d is out of step at operation %d: its history of operations differs (hash %#x, the others %#x)",
			e.Rank, e.Op, e.Got.Hash, e.Want.Hash)
	}
	return fmt.Sprintf("rank %d is out of step at operation %d: it is in %v, the others in %v", e.Rank, e.Op, e.Got, e.Want)
}

// ArrivalError says that all ranks of an operation were counted though one has not
// entered it: an arrival was counted twice.
type ArrivalError struct {
	Rank int // has not entered
	Op   uint32
}

// Error names the rank and the operation.
func (e *ArrivalError) Error() string {
	return fmt.Sprintf("operation %d: all ranks were counted but rank %d has not entered: an arrival was counted twice", e.Op, e.Rank)
}
