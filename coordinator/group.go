package coordinator

import (
	"context"

	"github.com/octet-run/octet/actors"
	"github.com/octet-run/octet/actors/round"
)

// Group is the ranks that serve the model, as the coordinator sees them:
// *actors.Group is one.
type Group interface {
	// WaitServing returns the epoch once a group serves. It returns an error when
	// none ever will again, or when ctx is done.
	WaitServing(ctx context.Context) (epoch uint32, err error)
	// Do numbers and runs one round and returns rank 0's answer. An error that is
	// ErrGroupBroken or ErrStaleEpoch says that the epoch is over; it names the rank
	// that is to blame. One round runs at a time.
	Do(ctx context.Context, r *round.Round) (*round.Result, error)
	// Break ends the epoch; the group forms anew. rank is -1 when none is to blame.
	Break(rank int, reason string)
	// Epoch is the epoch that is served now, 0 while none is.
	Epoch() uint32
	// Err is why the group never serves again, nil while it may.
	Err() error
}

var _ Group = (*actors.Group)(nil)
