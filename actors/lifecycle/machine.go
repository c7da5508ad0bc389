package lifecycle

import (
	"fmt"
	"time"
)

// Phase is where a group is in its life.
type Phase uint8

// The phases.
const (
	// Forming: processes start and load.
	Forming Phase = iota
	// Serving: rounds run.
	Serving
	// Broken: a rank was lost; the others are being ended.
	Broken
	// Waiting: everything is ended; the next epoch starts after a pause.
	Waiting
	// Stopping: the group ends on purpose.
	Stopping
	// Closed: the group has ended for good.
	Closed
)

var phaseNames = [...]string{"forming", "serving", "broken", "waiting", "stopping", "closed"}

// String names the phase.
func (p Phase) String() string { return phaseNames[p] }

// Machine is the state machine of a group, all for one: events in, effects out.
// It has no clock, no goroutine and touches nothing. Events carry the epoch they
// are about; those of another epoch change nothing.
type Machine struct {
	ranks  int
	budget budget

	phase Phase
	epoch uint32
	// of the current epoch:
	ready []bool
	plans []uint64
	gone  []bool
	// cause is why the epoch ended, nil while it has not.
	cause *RankError
	// served is whether any epoch ever did.
	served bool
}

// Effect is what the group's actor is to do.
type Effect struct {
	Kind  EffectKind
	Pause time.Duration // of Pause
	Err   error         // of Finish, and the cause of Abort
}

// EffectKind is one of what a group's actor can do.
type EffectKind uint8

// The kinds of effects.
const (
	Form    EffectKind = iota // start the processes of the current epoch
	Serve                     // let rounds in
	Abort                     // stop all ranks now and end their processes
	Drain                     // let the ranks leave; end their processes after the grace
	Release                   // free what the epoch held: all processes are gone
	Pause                     // call Resumed after Effect.Pause
	Finish                    // the group is over
)

// New is the machine of a group that has not started. restart must be valid.
func New(ranks int, restart Restart) *Machine {
	return &Machine{ranks: ranks, budget: budget{Restart: restart}}
}

// Phase is where the group is in its life.
func (l *Machine) Phase() Phase { return l.phase }

// Epoch is the latest epoch, served or not.
func (l *Machine) Epoch() uint32 { return l.epoch }

// Cause is why the epoch ended, nil while it has not.
func (l *Machine) Cause() *RankError { return l.cause }

// Start begins the first epoch.
func (l *Machine) Start() []Effect { return l.becomeForming() }

func (l *Machine) becomeForming() []Effect {
	l.phase = Forming
	l.epoch++
	l.ready, l.plans, l.gone = make([]bool, l.ranks), make([]uint64, l.ranks), make([]bool, l.ranks)
	l.cause = nil
	return []Effect{{Kind: Form}}
}

// Ready says that a rank has loaded.
func (l *Machine) Ready(epoch uint32, rank int, plan uint64) []Effect {
	if epoch != l.epoch || l.phase != Forming {
		return nil
	}
	l.ready[rank], l.plans[rank] = true, plan
	for _, ready := range l.ready {
		if !ready {
			return nil
		}
	}
	for r, plan := range l.plans {
		if plan != l.plans[0] {
			return l.becomeBroken(&RankError{Epoch: l.epoch, Rank: r, Reason: fmt.Sprintf(
				"has plan %016x where rank 0 has %016x: they would not run the same operations", plan, l.plans[0])})
		}
	}
	l.phase, l.served = Serving, true
	return []Effect{{Kind: Serve}}
}

// Lost says that a rank cannot go on. The first loss of an epoch is its cause.
func (l *Machine) Lost(cause *RankError) []Effect {
	if cause.Epoch != l.epoch || (l.phase != Forming && l.phase != Serving) {
		return nil
	}
	return l.becomeBroken(cause)
}

func (l *Machine) becomeBroken(cause *RankError) []Effect {
	l.phase, l.cause = Broken, cause
	return []Effect{{Kind: Abort, Err: cause}}
}

// Gone says that nothing is left of a rank's process.
func (l *Machine) Gone(epoch uint32, rank int, now time.Time) []Effect {
	if epoch != l.epoch || l.phase == Waiting || l.phase == Closed {
		return nil
	}
	l.gone[rank] = true
	if l.phase == Forming || l.phase == Serving { // nobody said why
		return l.becomeBroken(&RankError{Epoch: epoch, Rank: rank, Reason: "left"})
	}
	for _, gone := range l.gone {
		if !gone {
			return nil
		}
	}
	effects := []Effect{{Kind: Release}}
	if l.phase == Stopping {
		return append(effects, l.becomeClosed(ErrStopped))
	}
	return append(effects, l.afterLoss(now))
}

// afterLoss decides between another epoch and the end.
func (l *Machine) afterLoss(now time.Time) Effect {
	if !l.served {
		return l.becomeClosed(l.cause) // what never worked is not tried again
	}
	wait, ok := l.budget.spend(now)
	if !ok {
		return l.becomeClosed(l.budget.exhausted(l.cause))
	}
	l.phase = Waiting
	return Effect{Kind: Pause, Pause: wait}
}

// FormFailed says that the epoch could not even begin: nothing of it is there.
func (l *Machine) FormFailed(cause *RankError, now time.Time) []Effect {
	if cause.Epoch != l.epoch || l.phase != Forming {
		return nil
	}
	l.cause = cause
	return []Effect{l.afterLoss(now)}
}

// Resumed says that the pause of an epoch's end is over.
func (l *Machine) Resumed(epoch uint32) []Effect {
	if epoch != l.epoch || l.phase != Waiting {
		return nil
	}
	return l.becomeForming()
}

// Stop ends the group from any phase.
func (l *Machine) Stop() []Effect {
	switch l.phase {
	case Forming, Serving:
		l.phase = Stopping
		return []Effect{{Kind: Drain}}
	case Broken:
		l.phase = Stopping
		return nil // the processes are ending
	case Waiting:
		return []Effect{l.becomeClosed(ErrStopped)}
	}
	return nil
}

func (l *Machine) becomeClosed(err error) Effect {
	l.phase = Closed
	return Effect{Kind: Finish, Err: err}
}
