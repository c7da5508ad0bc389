package shm

import (
	"errors"
	"testing"
)

func TestTheFirstReasonToAbortStays(t *testing.T) {
	var a Abort
	if a.Raised(3) || a.Err(3) != nil {
		t.Fatal("a zero word is aborted")
	}
	if !a.Raise(3, 5, Died) {
		t.Fatal("the first abort was refused")
	}
	if a.Raise(3, 1, TimedOut) {
		t.Fatal("a second abort replaced the first")
	}
	err := a.Err(3)
	var abort *AbortError
	if !errors.Is(err, ErrAborted) || !errors.As(err, &abort) {
		t.Fatalf("error %v is no abort", err)
	}
	if abort.Rank != 5 || abort.Reason != Died || abort.Epoch != 3 {
		t.Fatalf("abort is %+v, want rank 5, died, epoch 3", abort)
	}
}

func TestAnAbortOfAnOldEpochIsNotSeenByTheNext(t *testing.T) {
	var a Abort
	a.Raise(3, -1, Requested)
	if a.Raised(4) || a.Err(4) != nil {
		t.Fatal("epoch 4 sees the abort of epoch 3")
	}
	if !a.Raise(4, 2, Died) {
		t.Fatal("epoch 4 cannot be aborted after epoch 3")
	}
	if a.Raise(3, 1, Died) {
		t.Fatal("an old epoch took the word back")
	}
}
