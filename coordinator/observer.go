package coordinator

import (
	"time"

	"github.com/octet-run/octet/actors/round"
)

// Observer hears of what happens, for metrics. Its methods are called from the
// round loop and must return at once.
type Observer interface {
	RoundDone(RoundReport)
	RequestDone(*Request, *Finish)
}

// RoundReport is one round.
type RoundReport struct {
	Epoch       uint32
	Elapsed     time.Duration // on the coordinator's clock
	Timings     round.Timings // rank 0's account
	PrefillRows int
	Sequences   int // that decoded
	VerifyRows  int
	Drafted     int
	Accepted    int // drafted tokens that were accepted
	Emitted     int // tokens kept, those of prefills included
}

type noObserver struct{}

func (noObserver) RoundDone(RoundReport)         {}
func (noObserver) RequestDone(*Request, *Finish) {}
