package actors

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

// lifecycle is the state machine of a group, all for one: events in, effects out.
// It has no clock, no goroutine and touches nothing. Events carry the epoch they
// are about; those of another epoch change nothing.
type lifecycle struct {
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

// effect is what the group's actor is to do.
type effect struct {
	kind  effectKind
	pause time.Duration // of pause
	err   error         // of close, and the cause of abort
}

type effectKind uint8

const (
	form    effectKind = iota // start the processes of l.epoch
	serve                     // let rounds in
	abort                     // stop all ranks now and end their processes
	drain                     // let the ranks leave; end their processes after the grace
	release                   // free what the epoch held: all processes are gone
	pause                     // call resumed after effect.pause
	finish                    // the group is over
)

func newLifecycle(ranks int, restart Restart) *lifecycle {
	return &lifecycle{ranks: ranks, budget: budget{Restart: restart}}
}

// start begins the first epoch.
func (l *lifecycle) start() []effect { return l.becomeForming() }

func (l *lifecycle) becomeForming() []effect {
	l.phase = Forming
	l.epoch++
	l.ready, l.plans, l.gone = make([]bool, l.ranks), make([]uint64, l.ranks), make([]bool, l.ranks)
	l.cause = nil
	return []effect{{kind: form}}
}

// rankReady says that a rank has loaded.
func (l *lifecycle) rankReady(epoch uint32, rank int, plan uint64) []effect {
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
	return []effect{{kind: serve}}
}

// rankLost says that a rank cannot go on. The first loss of an epoch is its cause.
func (l *lifecycle) rankLost(cause *RankError) []effect {
	if cause.Epoch != l.epoch || (l.phase != Forming && l.phase != Serving) {
		return nil
	}
	return l.becomeBroken(cause)
}

func (l *lifecycle) becomeBroken(cause *RankError) []effect {
	l.phase, l.cause = Broken, cause
	return []effect{{kind: abort, err: cause}}
}

// rankGone says that nothing is left of a rank's process.
func (l *lifecycle) rankGone(epoch uint32, rank int, now time.Time) []effect {
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
	effects := []effect{{kind: release}}
	if l.phase == Stopping {
		return append(effects, l.becomeClosed(ErrStopped))
	}
	return append(effects, l.afterLoss(now))
}

// afterLoss decides between another epoch and the end.
func (l *lifecycle) afterLoss(now time.Time) effect {
	if !l.served {
		return l.becomeClosed(l.cause) // what never worked is not tried again
	}
	wait, ok := l.budget.spend(now)
	if !ok {
		return l.becomeClosed(l.budget.exhausted(l.cause))
	}
	l.phase = Waiting
	return effect{kind: pause, pause: wait}
}

// formFailed says that the epoch could not even begin: nothing of it is there.
func (l *lifecycle) formFailed(cause *RankError, now time.Time) []effect {
	if cause.Epoch != l.epoch || l.phase != Forming {
		return nil
	}
	l.cause = cause
	return []effect{l.afterLoss(now)}
}

// resumed says that the pause of an epoch's end is over.
func (l *lifecycle) resumed(epoch uint32) []effect {
	if epoch != l.epoch || l.phase != Waiting {
		return nil
	}
	return l.becomeForming()
}

// stop ends the group from any phase.
func (l *lifecycle) stop() []effect {
	switch l.phase {
	case Forming, Serving:
		l.phase = Stopping
		return []effect{{kind: drain}}
	case Broken:
		l.phase = Stopping
		return nil // the processes are ending
	case Waiting:
		return []effect{l.becomeClosed(ErrStopped)}
	}
	return nil
}

func (l *lifecycle) becomeClosed(err error) effect {
	l.phase = Closed
	return effect{kind: finish, err: err}
}
