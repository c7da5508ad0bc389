package coordinator

import (
	"context"

	"github.com/octet-run/octet/actors/round"
)

// Group is the ranks that serve the model, as the coordinator sees them:
// *actors.Group is one. It is called from one goroutine at a time.
type Group interface {
	// WaitServing returns the epoch once a group serves. It returns an error when none
	// ever will again, or when ctx is done.
	WaitServing(ctx context.Context) (epoch uint32, err error)
	// Do numbers and runs one round and returns rank 0's answer. An error ends the
	// epoch; it names the rank that is to blame.
	Do(ctx context.Context, r *round.Round) (*round.Result, error)
}
