package actors

import (
	"errors"
	"fmt"

	"github.com/octet-run/octet/actors/board"
	"github.com/octet-run/octet/actors/process"
	"github.com/octet-run/octet/internal/shm"
)

// blame turns what went wrong with a round into the rank at fault. pid finds a
// rank's process.
func blame(epoch uint32, err error, pid func(rank int) int) *RankError {
	var (
		failed   *board.FailedError
		diverged *board.DivergedError
		stall    *board.StallError
		abort    *shm.AbortError
	)
	switch {
	case errors.As(err, &failed):
		return &RankError{Epoch: epoch, Rank: failed.Rank, Reason: "failed: " + failed.Reason, Err: err}
	case errors.As(err, &diverged):
		return &RankError{Epoch: epoch, Rank: diverged.Rank, Reason: "is out of step: " + err.Error(), Err: err}
	case errors.As(err, &stall):
		rank, reason := blameStall(stall, pid)
		return &RankError{Epoch: epoch, Rank: rank, Reason: reason, Err: err}
	case errors.As(err, &abort):
		return blameAbort(epoch, abort)
	default: // the answer cannot be read: rank 0 wrote it
		return &RankError{Epoch: epoch, Rank: 0, Reason: "gave an unreadable answer: " + err.Error(), Err: err}
	}
}

// blameStall prefers a rank whose process is stopped over one that is behind.
func blameStall(stall *board.StallError, pid func(rank int) int) (rank int, reason string) {
	for _, r := range stall.Missing {
		if process.Stopped(pid(r)) {
			return r, fmt.Sprintf("is stopped and did not answer round %d", stall.Round)
		}
	}
	rank = stall.Behind[0]
	if stall.Deadline {
		return rank, fmt.Sprintf("did not answer round %d within %v", stall.Round, stall.After)
	}
	return rank, fmt.Sprintf("made no progress in round %d for %v", stall.Round, stall.After)
}

func blameAbort(epoch uint32, abort *shm.AbortError) *RankError {
	e := &RankError{Epoch: epoch, Rank: abort.Rank, Err: abort}
	switch abort.Reason {
	case shm.TimedOut:
		e.Reason = "did not come to a collective in time"
	case shm.OutOfStep:
		e.Reason = "came to another collective than its peers"
	default:
		e.Reason = abort.Reason.String()
	}
	return e
}
