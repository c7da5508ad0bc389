package actors

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/octet-run/octet/actors/board"
	"github.com/octet-run/octet/actors/lifecycle"
	"github.com/octet-run/octet/actors/process"
	"github.com/octet-run/octet/actors/round"
	"github.com/octet-run/octet/internal/shm"
)

// Group is the N rank processes that serve one model together. All methods may be
// called from any goroutine.
type Group struct {
	config Config
	system *System
	self   *actor.PID

	// roundMu is held for a round, and while an epoch's memory is released.
	roundMu sync.Mutex
	times   roundTimes // guarded by roundMu

	mu      sync.Mutex
	current *formation // while serving
	// suspended served until one of its ranks was gone; why it was is not known yet.
	suspended *formation
	status    Status
	procs     []RankProcess
	changed   chan struct{} // closed and replaced when the phase changes
	err       error         // why the group closed

	// incarnations counts processes, until nothing is left of them.
	incarnations sync.WaitGroup

	closed chan struct{} // no rank is left, or none is looked after any more
	ended  chan struct{} // nor any actor
}

// StartGroup starts the ranks and waits until all of them are ready. When one
// dies or hangs while loading, the error names it, and nothing is left behind;
// so it is when ctx ends. On success the caller calls Stop in the end.
func StartGroup(ctx context.Context, config Config) (*Group, error) {
	if err := config.validate(); err != nil {
		return nil, err
	}
	g := &Group{
		config: config, changed: make(chan struct{}), closed: make(chan struct{}), ended: make(chan struct{}),
		procs: make([]RankProcess, config.Ranks),
	}
	g.status.Ranks = make([]RankStatus, config.Ranks)
	for r := range g.status.Ranks {
		g.status.Ranks[r].Rank = r
	}
	g.system = NewSystem(SystemConfig{Address: supervisorAddress, Log: config.Log, OnCrash: g.crashed})
	supervisor := &supervisor{
		group: g, life: lifecycle.New(config.Ranks, g.config.Restart), lives: make([]*incarnation, config.Ranks),
	}
	self, err := g.system.Spawn("group", supervisor.receive)
	if err != nil {
		g.system.close()
		return nil, err
	}
	g.self = self
	go g.sweep(supervisor)
	if _, err := g.WaitServing(ctx); err != nil {
		g.stopNow()
		return nil, err
	}
	return g, nil
}

// sweep ends the actors after the last rank. If it was a panic that closed the group,
// it ends the ranks first, and frees what their supervisor has left.
func (g *Group) sweep(s *supervisor) {
	<-g.closed
	ended := g.system.stop(g.self, stopLimit)
	g.incarnations.Wait()
	if ended {
		s.free()
	}
	g.system.close()
	close(g.ended)
}

// Do runs one round: it publishes r to all ranks and returns rank 0's result.
// r.Epoch must be the current epoch, or the error is ErrStaleEpoch and nothing
// has happened; Do sets r.Seq. Rounds run one at a time.
//
// A round that was published ends by itself, soon if a rank is lost: ctx is only
// looked at before. When a rank is lost, hangs, or runs something else than the
// others, the error is a *RankError, and the epoch is over.
func (g *Group) Do(ctx context.Context, r *round.Round) (*round.Result, error) {
	g.roundMu.Lock()
	defer g.roundMu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	f, err := g.formation(r.Epoch)
	if err != nil {
		return nil, err
	}
	r.Seq = f.seq + 1
	start := time.Now()
	f.inRound.Store(true)
	defer f.inRound.Store(false)
	if err := f.board.Publish(r); err != nil {
		return nil, err
	}
	f.seq = r.Seq
	result, err := f.board.Collect(g.patience(f, rowsOf(r)))
	if err != nil {
		return nil, g.breakOn(f, err)
	}
	g.times.add(rowsOf(r), time.Since(start), f.board.Silence())
	g.note(f)
	return result, nil
}

// formation is the current one if it is of epoch.
func (g *Group) formation(epoch uint32) (*formation, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.current != nil && g.current.epoch == epoch:
		return g.current, nil
	case g.suspended != nil && g.suspended.epoch == epoch:
		return g.suspended, nil // the round fails, and hears why
	case g.current != nil:
		return nil, fmt.Errorf("round of epoch %d, the group is in epoch %d: %w", epoch, g.current.epoch, ErrStaleEpoch)
	case g.err != nil:
		return nil, g.err
	case g.status.cause != nil && epoch <= g.status.cause.Epoch:
		return nil, g.status.cause
	default:
		return nil, &RankError{Epoch: g.status.Epoch, Rank: -1, Reason: "the group is " + g.status.Phase.String()}
	}
}

// breakOn ends the epoch because of a failed round and returns the cause.
func (g *Group) breakOn(f *formation, err error) error {
	cause := blame(f.epoch, err, g.pid)
	cause.Noticed = time.Now()
	var abort *shm.AbortError
	if !errors.As(err, &abort) || abort.Reason != shm.Died || !f.explained() {
		g.system.Send(g.self, rankLost{cause})
		if !f.explained() { // the group is stopping
			return cause
		}
	}
	return f.cause
}

// patience is how long the next round, of so many rows, may be silent, and last.
func (g *Group) patience(f *formation, rows int) board.Patience {
	p := g.times.patience(&g.config, rows)
	p.Watch = func(rank int, now time.Time) board.Delays {
		return process.WatchDelays(g.pid(rank), f.board.Thread(rank), now)
	}
	return p
}

func (g *Group) pid(rank int) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.status.Ranks[rank].PID
}

// Epoch is the epoch that rounds must carry, 0 while the group does not serve.
func (g *Group) Epoch() uint32 {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.current == nil {
		return 0
	}
	return g.current.epoch
}

// WaitServing waits until the group serves and returns the epoch, or the error
// that closed the group for good.
func (g *Group) WaitServing(ctx context.Context) (uint32, error) {
	for {
		g.mu.Lock()
		current, err, changed := g.current, g.err, g.changed
		g.mu.Unlock()
		switch {
		case current != nil:
			return current.epoch, nil
		case err != nil:
			return 0, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
}

// Break ends the epoch on purpose, in a rank's name; the group forms again.
func (g *Group) Break(rank int, reason string) {
	if epoch := g.Epoch(); epoch != 0 {
		g.system.Send(g.self, rankLost{&RankError{Epoch: epoch, Rank: rank, Reason: reason}})
	}
}

// Signal sends a signal to a rank's process, for fault injection.
func (g *Group) Signal(rank int, sig os.Signal) {
	g.mu.Lock()
	p := g.procs[rank]
	g.mu.Unlock()
	if p != nil {
		p.Signal(sig)
	}
}

// Stop lets the round in progress finish and the ranks leave, kills those that
// take longer than Config.StopGrace or ctx allow, and returns when nothing is
// left. It may be called more than once. The error is nil if the group was
// serving until now, and otherwise what had ended it.
func (g *Group) Stop(ctx context.Context) error {
	g.system.Send(g.self, stopGroup{})
	select {
	case <-g.ended:
	case <-ctx.Done():
		g.stopNow()
	}
	if err := g.Err(); !errors.Is(err, ErrStopped) {
		return err
	}
	return nil
}

// stopNow stops the group without grace.
func (g *Group) stopNow() {
	g.system.Send(g.self, stopGroup{})
	g.system.Send(g.self, graceOver{})
	<-g.ended
}

// Done closes when the group is over and nothing is left of it. Err then says
// why: ErrStopped, or what used up the restart budget.
func (g *Group) Done() <-chan struct{} { return g.ended }

// Err is why the group is over, nil while it is not.
func (g *Group) Err() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.err
}

// Spawn starts an actor beside the group's own, Send sends to it, End ends it. An
// actor that panics closes the group: its state is lost.
func (g *Group) Spawn(name string, receive func(actor.Context)) (*actor.PID, error) {
	return g.system.Spawn(name, receive)
}

// Send sends a message to an actor.
func (g *Group) Send(to *actor.PID, message any) { g.system.Send(to, message) }

// End stops an actor that Spawn started and waits for it.
func (g *Group) End(pid *actor.PID) { g.system.stop(pid, stopLimit) }

func (g *Group) emit(e Event) {
	if e.Time.IsZero() {
		e.Time = time.Now()
	}
	if g.config.OnEvent != nil {
		g.config.OnEvent(e)
	}
}

// crashed closes the group because an actor panicked. It may be the supervisor, so
// the processes are ended without it: their incarnations see the group closed.
func (g *Group) crashed(reason any) {
	g.close(&RankError{Rank: -1, Epoch: g.Epoch(), Reason: fmt.Sprintf("an actor panicked: %v", reason)})
}
