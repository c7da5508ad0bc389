package lifecycle

import (
	"fmt"
	"time"
)

// Phase is where a group is in its life.
type Phase uint8

// The phases.
const (
	// Forming: processes start and load, and ranks that outlived an epoch join.
	Forming Phase = iota
	// Serving: rounds run.
	Serving
	// Broken: a rank was lost; the others are leaving the epoch.
	Broken
	// Waiting: nobody is left in the epoch; the next one starts after a pause.
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
	// lives are the ranks that have a process, or were told to start one.
	lives []bool
	// of the current epoch:
	started []bool // not there before
	ready   []bool
	plans   []uint64
	out     []bool // left, or gone
	ended   []bool // to be gone, not just to leave
	// cause is why the epoch ended, nil while it has not.
	cause *RankError
	// served is whether any epoch ever did; failed is how many in a row, up to now,
	// did not.
	served bool
	failed int
}

// coldAfter is how many epochs in a row may break before they serve until all
// processes are ended, not only those at fault: what the survivors have in their
// memory may be what is wrong.
const coldAfter = 2

// Effect is what the group's actor is to do.
type Effect struct {
	Kind  EffectKind
	Ranks []int         // of Form and End
	Pause time.Duration // of Pause
	Err   error         // of Finish, and the cause of Abort
}

// EffectKind is one of what a group's actor can do.
type EffectKind uint8

// The kinds of effects.
const (
	Form    EffectKind = iota // make the current epoch, start Effect.Ranks, let the others join
	Serve                     // let rounds in
	Abort                     // make all ranks stop now and leave the epoch; call LeaveOver after a while
	End                       // end the processes of Effect.Ranks
	Drain                     // let the ranks leave for good; end their processes after the grace
	Release                   // free what the epoch held: nobody is left in it
	Pause                     // call Resumed after Effect.Pause
	Finish                    // the group is over: end the processes that are left
)

// New is the machine of a group that has not started. restart must be valid.
func New(ranks int, restart Restart) *Machine {
	return &Machine{ranks: ranks, budget: budget{Restart: restart}, lives: make([]bool, ranks)}
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
	l.ready, l.plans, l.out = make([]bool, l.ranks), make([]uint64, l.ranks), make([]bool, l.ranks)
	l.ended, l.cause = make([]bool, l.ranks), nil
	form := Effect{Kind: Form, Ranks: where(l.lives, false)}
	l.started = make([]bool, l.ranks)
	for _, r := range form.Ranks {
		l.started[r], l.lives[r] = true, true
	}
	return []Effect{form}
}

// where are the ranks that have value.
func where(ranks []bool, value bool) (is []int) {
	for r, v := range ranks {
		if v == value {
			is = append(is, r)
		}
	}
	return is
}

// Ready says that a rank has loaded or, if it outlived the last epoch, joined.
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
	if odd, common := outvoted(l.plans); len(odd) > 0 {
		return l.becomeBroken(&RankError{Epoch: l.epoch, Rank: odd[0], Reason: fmt.Sprintf(
			"has plan %016x: ranks %v differ from the others, which have %016x, and would not run the same operations", l.plans[odd[0]], odd, common)})
	}
	l.phase, l.served, l.failed = Serving, true, 0
	return []Effect{{Kind: Serve}}
}

// outvoted are the ranks whose plan is not the one that most have, and that plan.
// Among equally many the ones with the lowest rank are right.
func outvoted(plans []uint64) (odd []int, common uint64) {
	votes := map[uint64]int{}
	for _, plan := range plans {
		votes[plan]++
	}
	common = plans[0]
	for _, plan := range plans {
		if votes[plan] > votes[common] {
			common = plan
		}
	}
	for r, plan := range plans {
		if plan != common {
			odd = append(odd, r)
		}
	}
	return odd, common
}

// Lost says that a rank cannot go on. The first loss of an epoch is its cause.
func (l *Machine) Lost(cause *RankError) []Effect {
	if cause.Epoch != l.epoch || (l.phase != Forming && l.phase != Serving) {
		return nil
	}
	return l.becomeBroken(cause)
}

func (l *Machine) becomeBroken(cause *RankError) []Effect {
	if l.phase == Forming {
		l.failed++
	}
	l.phase, l.cause = Broken, cause
	return append([]Effect{{Kind: Abort, Err: cause}}, l.end(l.condemned())...)
}

// end ends processes: they are out of the epoch when they are gone.
func (l *Machine) end(ranks []int) []Effect {
	if len(ranks) == 0 {
		return nil
	}
	for _, r := range ranks {
		l.ended[r], l.out[r] = true, false
	}
	return []Effect{{Kind: End, Ranks: ranks}}
}

// condemned are the ranks whose processes end with the epoch: the one at fault, or
// all, if nobody is to blame or there is nothing to outlive the epoch for.
func (l *Machine) condemned() []int {
	if cold := !l.served || l.budget.Disabled || l.failed >= coldAfter; cold || l.cause.Rank < 0 {
		return where(l.lives, true)
	}
	if l.lives[l.cause.Rank] {
		return []int{l.cause.Rank}
	}
	return nil
}

// LeaveOver says that the ranks of a broken epoch have had the time to leave it.
func (l *Machine) LeaveOver(epoch uint32) []Effect {
	if epoch != l.epoch || l.phase != Broken {
		return nil
	}
	return l.end(where(l.out, false))
}

// Left says that a rank has dropped everything of the epoch, and lives.
func (l *Machine) Left(epoch uint32, rank int, now time.Time) []Effect {
	if epoch != l.epoch || l.phase == Waiting || l.phase == Closed || l.ended[rank] {
		return nil
	}
	return l.without(rank, now)
}

// Gone says that nothing is left of a rank's process.
func (l *Machine) Gone(epoch uint32, rank int, now time.Time) []Effect {
	if epoch != l.epoch || l.phase == Closed {
		return nil
	}
	l.lives[rank] = false
	if l.phase == Waiting {
		return nil
	}
	return l.without(rank, now)
}

// without goes on without a rank in the epoch. When it was the last one, the epoch
// is over.
func (l *Machine) without(rank int, now time.Time) (effects []Effect) {
	if l.out[rank] {
		return nil
	}
	l.out[rank] = true
	if l.phase == Forming || l.phase == Serving { // nobody said why
		effects = l.becomeBroken(&RankError{Epoch: l.epoch, Rank: rank, Reason: "left"})
	}
	if len(where(l.out, false)) > 0 {
		return effects
	}
	effects = append(effects, Effect{Kind: Release})
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

// FormFailed says that the epoch could not even begin: nothing of it is there, and
// none of the processes that it was to start. Those that outlived the last one
// still do.
func (l *Machine) FormFailed(cause *RankError, now time.Time) []Effect {
	if cause.Epoch != l.epoch || l.phase != Forming {
		return nil
	}
	l.cause = cause
	for r := range l.lives {
		l.lives[r] = l.lives[r] && !l.started[r]
	}
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
		return nil // all are on their way out
	case Waiting:
		return []Effect{l.becomeClosed(ErrStopped)}
	}
	return nil
}

func (l *Machine) becomeClosed(err error) Effect {
	l.phase = Closed
	return Effect{Kind: Finish, Err: err}
}
