package board

import (
	"errors"
	"fmt"
	"time"

	"github.com/octet-run/octet/actors/round"
)

// ErrDrained tells a rank that no more rounds come.
var ErrDrained = errors.New("the group is draining: no more rounds come")

// StallError says that a round was given up because ranks did not answer.
type StallError struct {
	Epoch uint32
	Round uint64
	// Missing are the ranks that have not answered.
	Missing []int
	// Behind are those of them that the others wait for: with the fewest operations,
	// of these the ones that most of the waiting name, and of these the ones that wait
	// for nobody.
	Behind []int
	After  time.Duration
	// Deadline is true when the round's time was over, false when no missing
	// rank had made progress for the stall time.
	Deadline bool
}

// Error names the ranks.
func (e *StallError) Error() string {
	what := "made no progress for " + e.After.String()
	if e.Deadline {
		what = "did not finish within " + e.After.String()
	}
	return fmt.Sprintf("round %d of epoch %d: no answer from ranks %v, which %s; furthest behind: %v",
		e.Round, e.Epoch, e.Missing, what, e.Behind)
}

// DivergedError says that a rank ran other operations than the rest.
type DivergedError struct {
	Epoch uint32
	Round uint64
	Rank  int
	// Index counts operations from the start of the epoch; -1 when no trace
	// reaches back to the first difference.
	Index int64
	// Op is what the rank recorded there, Want what the majority did.
	Op, Want uint64
}

// Error names rank and operation.
func (e *DivergedError) Error() string {
	if e.Index < 0 {
		return fmt.Sprintf("round %d of epoch %d: rank %d ran other operations than the rest", e.Round, e.Epoch, e.Rank)
	}
	return fmt.Sprintf("round %d of epoch %d: rank %d diverged at operation %d: it ran %#x, the others %#x",
		e.Round, e.Epoch, e.Rank, e.Index, e.Op, e.Want)
}

// FailedError is a rank's own account of why it cannot go on.
type FailedError struct {
	Epoch  uint32
	Round  uint64
	Rank   int
	Reason string
}

// Error names the rank and gives its reason.
func (e *FailedError) Error() string {
	return fmt.Sprintf("round %d of epoch %d: rank %d failed: %s", e.Round, e.Epoch, e.Rank, e.Reason)
}

func tooLong(frame string, has, most int) error {
	return &round.FrameError{
		Frame: frame, Field: "length", Offset: -1, Reason: fmt.Sprintf("is %d bytes, the board holds %d", has, most),
	}
}
