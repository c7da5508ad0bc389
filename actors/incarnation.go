package actors

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"github.com/octet-run/octet/actors/link"
	"github.com/octet-run/octet/actors/process"
	"github.com/octet-run/octet/internal/shm"
)

// incarnation is one process of a rank, in one epoch after another. It watches the
// process and tells the group when the rank has left an epoch and when the process
// is gone. It reports a loss before that, and the end exactly once.
type incarnation struct {
	group      *Group
	supervisor *actor.PID
	rank       int
	process    RankProcess
	succession *succession

	heeded bool // the engine's thread is watched; for the supervisor

	mu   sync.Mutex
	stay *stay // nil while the rank is in no epoch
	// noticed is when the process was first seen to be gone, or as good as gone.
	noticed time.Time
}

// stay is the supervisor's side of a rank in one epoch.
type stay struct {
	f        *formation
	end      *link.End
	delivery sync.WaitGroup
}

// What an incarnation tells its group.
type (
	rankLeft struct {
		of    *incarnation
		epoch uint32
	}
	rankGone struct {
		of *incarnation
		// cause is why, nil if that is no loss; its epoch is the receiver's to set.
		cause *RankError
	}
)

// watch begins to watch over the process.
func (i *incarnation) watch() {
	heard := make(chan struct{})
	go func() {
		defer close(heard)
		i.hear()
	}()
	i.group.incarnations.Go(func() { i.await(heard) })
	i.group.incarnations.Go(func() {
		select {
		case <-i.process.Crashing():
			i.doomed("has begun to crash")
		case <-i.process.Exited():
		}
	})
}

// enter begins the rank's stay in an epoch: messages reach it.
func (i *incarnation) enter(f *formation) {
	s := &stay{f: f, end: f.ends[i.rank]}
	address, system := rankAddress(i.rank), i.group.system
	system.attach(address, s.end)
	s.delivery.Go(func() {
		if err := system.deliver(address, s.end); err != nil {
			i.tell(rankLost{&RankError{Epoch: f.epoch, Rank: i.rank, Reason: "sent damaged messages: " + err.Error()}})
		}
	})
	i.mu.Lock()
	defer i.mu.Unlock()
	i.stay = s
	if i.exited() || !i.noticed.IsZero() {
		f.board.Abort(i.rank, shm.Died)
	}
}

// retire ends the rank's stay, if there is one: nothing uses the epoch's memory on
// its behalf afterwards.
func (i *incarnation) retire() {
	i.mu.Lock()
	s := i.stay
	i.stay = nil
	i.mu.Unlock()
	if s == nil {
		return
	}
	s.end.Close()
	s.delivery.Wait()
	i.group.system.detach(rankAddress(i.rank), s.end)
}

// exited reports whether the process is gone.
func (i *incarnation) exited() bool {
	select {
	case <-i.process.Exited():
		return true
	default:
		return false
	}
}

// staysIn is the formation that the rank is in, nil if it is in none.
func (i *incarnation) staysIn() *formation {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.stay == nil {
		return nil
	}
	return i.stay.f
}

func (i *incarnation) tell(message any) { i.group.system.Send(i.supervisor, message) }

// heed watches threads of the rank, too: its engine's, and one that only sleeps.
// Neither ends before the process does, and that may take much longer. It is for the
// supervisor's actor.
func (i *incarnation) heed(threads ...int) {
	if i.heeded || i.process.PID() == 0 {
		return
	}
	ended, err := process.WatchThreads(i.process.PID(), threads...)
	if err != nil {
		i.group.config.Log.Debug("the death of a rank is noticed when nothing is left of its process", zap.Int("rank", i.rank), zap.Error(err))
		return
	}
	i.heeded = true
	i.group.incarnations.Go(func() {
		<-ended
		i.doomed("has lost a thread")
	})
}

// doomed ends the epoch of a process that is about to end, and tells of the loss if
// that takes it too long.
func (i *incarnation) doomed(sign string) {
	if f := i.notice(); f != nil && !f.explainedWithin(dieWithin) {
		i.tell(rankLost{i.dated(&RankError{Epoch: f.epoch, Rank: i.rank, Reason: sign + ", and does not end"})})
	}
}

// notice ends the epoch at once: the other ranks may be waiting for this one. It
// returns the epoch, nil if there is none or ranks are meant to leave.
func (i *incarnation) notice() *formation {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.noticed.IsZero() {
		i.noticed = time.Now()
	}
	if i.stay == nil || i.stay.f.draining.Load() {
		return nil
	}
	f := i.stay.f
	f.board.Abort(i.rank, shm.Died)
	i.group.suspend(f)
	return f
}

// dated is a loss with the time at which it was noticed.
func (i *incarnation) dated(lost *RankError) *RankError {
	i.mu.Lock()
	defer i.mu.Unlock()
	lost.Noticed = i.noticed
	return lost
}

// hear takes the rank's word that it left an epoch, until the process ends.
func (i *incarnation) hear() {
	for {
		epoch, err := i.succession.left()
		if err != nil {
			return
		}
		f := i.staysIn()
		if f == nil || f.epoch != epoch {
			continue
		}
		if !f.explained() {
			i.tell(rankLost{&RankError{Epoch: epoch, Rank: i.rank, Reason: "left the epoch, and nobody knows why"}})
		}
		i.retire()
		i.tell(rankLeft{i, epoch})
	}
}

// await waits for the end of the process. Unless ranks are meant to leave, it is the
// end of the epoch.
func (i *incarnation) await(heard <-chan struct{}) {
	select {
	case <-i.process.Exited():
	case <-i.group.closed: // nobody looks after it any more
		i.process.Kill()
		<-i.process.Exited()
	}
	i.notice()
	<-i.process.Done()
	f := i.staysIn()
	cause := i.loss(f)
	if cause != nil && f != nil { // the sooner the better; rankGone tells it again
		soon := *cause
		soon.Epoch = f.epoch
		i.tell(rankLost{&soon})
	}
	i.succession.close()
	<-heard
	i.retire()
	i.tell(rankGone{i, cause})
}

// loss is what the end of the process means to the epoch that it was in, nil for
// nothing.
func (i *incarnation) loss(f *formation) *RankError {
	err := i.process.Err()
	switch {
	case f == nil:
		return i.exit(err)
	case f.draining.Load():
		if err != nil {
			i.mu.Lock()
			defer i.mu.Unlock()
			if i.stay != nil && i.stay.f == f {
				f.board.Abort(i.rank, shm.Died)
			}
		}
		return nil
	case asBystander(err) && f.explained():
		return nil
	}
	return i.exit(err)
}

// asBystander reports whether a rank ended because its group did.
func asBystander(err error) bool {
	var exit *process.ExitError
	return errors.Is(err, shm.ErrAborted) || errors.As(err, &exit) && exit.Code == exitAborted
}

// exit says what a process's end means.
func (i *incarnation) exit(err error) *RankError {
	lost := i.dated(&RankError{Rank: i.rank, Err: err})
	var exit *process.ExitError
	switch {
	case err == nil:
		lost.Reason = "left although nobody asked it to"
	case !errors.As(err, &exit):
		lost.Reason = "failed: " + err.Error()
	default:
		lost.Reason = fmt.Sprintf("(pid %d) died: %s", exit.PID, exit.Status)
		if line := exit.Telling(); line != "" {
			lost.Reason += fmt.Sprintf("; its last words: %q", line)
		}
	}
	return lost
}
