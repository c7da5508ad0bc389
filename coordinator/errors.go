package coordinator

import (
	"errors"
	"fmt"
)

// What Generate answers when a request cannot be taken.
var (
	ErrQueueFull = errors.New("the queue is full; try again later")
	ErrDraining  = errors.New("the server is draining and takes no new requests")
	ErrClosed    = errors.New("the coordinator is closed")
)

// RequestError is a request that can never be served as it is.
type RequestError struct {
	Param  string // the parameter to change, as requests spell it
	Reason string
}

func (e *RequestError) Error() string { return e.Param + " " + e.Reason }

func refuse(param, format string, args ...any) error {
	return &RequestError{Param: param, Reason: fmt.Sprintf(format, args...)}
}

// GroupError ends requests because the group that served them is gone. It wraps
// what the group said, which names the rank.
type GroupError struct {
	Replays int // how often the request had been started over before
	Err     error
}

func (e *GroupError) Error() string {
	if e.Replays > 0 {
		return fmt.Sprintf("the group broke again after %d replays: %v", e.Replays, e.Err)
	}
	return fmt.Sprintf("the group is gone: %v", e.Err)
}

func (e *GroupError) Unwrap() error { return e.Err }

// SequenceError is a fault of one request alone, as a rank described it: its
// logits were not finite, for example.
type SequenceError struct {
	Position int // positions that were in the cache
	Reason   string
}

func (e *SequenceError) Error() string {
	return fmt.Sprintf("generation failed after position %d: %s", e.Position, e.Reason)
}
