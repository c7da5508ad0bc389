package actors

import (
	"github.com/octet-run/octet/actors/lifecycle"
	"github.com/octet-run/octet/actors/round"
)

var (
	// ErrGroupBroken says that a rank was lost and with it the epoch. The group
	// may serve again under another one.
	ErrGroupBroken = lifecycle.ErrGroupBroken
	// ErrStaleEpoch says that a round belongs to an epoch that is over.
	ErrStaleEpoch = round.ErrStaleEpoch
	// ErrStopped says that the group was stopped on purpose.
	ErrStopped = lifecycle.ErrStopped
)

// RankError says which rank ended an epoch, and why. It is ErrGroupBroken.
type RankError = lifecycle.RankError

// Restart bounds how often a group forms again. Zero values take the defaults.
type Restart = lifecycle.Restart

// Phase is where a group is in its life.
type Phase = lifecycle.Phase

// The phases; package lifecycle says what they are.
const (
	Forming  = lifecycle.Forming
	Serving  = lifecycle.Serving
	Broken   = lifecycle.Broken
	Waiting  = lifecycle.Waiting
	Stopping = lifecycle.Stopping
	Closed   = lifecycle.Closed
)
