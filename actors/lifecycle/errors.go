package lifecycle

import (
	"errors"
	"fmt"
	"time"
)

var (
	// ErrGroupBroken says that a rank was lost and with it the epoch. The group
	// may serve again under another one.
	ErrGroupBroken = errors.New("group broken")
	// ErrStopped says that the group was stopped on purpose.
	ErrStopped = errors.New("group stopped")
)

// RankError says which rank ended an epoch, and why. It is ErrGroupBroken.
type RankError struct {
	Epoch  uint32
	Rank   int // -1: the group as a whole
	Reason string
	// Err is the underlying error, if there is one.
	Err error
	// Noticed is when the rank was seen to be lost and the others were stopped, which
	// is before anybody knows why; zero: when this was told.
	Noticed time.Time
}

// Error is one sentence.
func (e *RankError) Error() string {
	if e.Rank < 0 {
		return fmt.Sprintf("group broken in epoch %d: %s", e.Epoch, e.Reason)
	}
	return fmt.Sprintf("group broken in epoch %d: rank %d %s", e.Epoch, e.Rank, e.Reason)
}

// Unwrap is ErrGroupBroken and the underlying error.
func (e *RankError) Unwrap() []error {
	if e.Err == nil {
		return []error{ErrGroupBroken}
	}
	return []error{ErrGroupBroken, e.Err}
}
