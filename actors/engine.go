package actors

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/octet-run/octet/actors/board"
	"github.com/octet-run/octet/actors/process"
	"github.com/octet-run/octet/actors/round"
	"github.com/octet-run/octet/internal/shm"
	octetv1 "github.com/octet-run/octet/proto/octet/v1"
)

// term is one epoch of a rank's life.
type term struct {
	in     *Inherited
	system *System
	engine Engine
	thread *thread
	// told is done when somebody outside the group ends this rank.
	told context.Context
	// rejoins is set when the engine has loaded in an earlier epoch.
	rejoins bool

	loads      chan *octetv1.Load
	supervisor atomic.Pointer[actor.PID] // who asked for the load: the proxy
	serving    atomic.Bool
	outside    atomic.Pointer[error] // what ended the term, if not the engine
	loaded     bool                  // the engine is, after the term
}

// run has the engine work until the term ends.
func (r *term) run(ctx context.Context) error {
	var err error
	r.thread.do(func() { err = r.work(ctx) })
	if outside := r.outside.Load(); outside != nil {
		return *outside
	}
	if r.told.Err() != nil && errors.Is(err, shm.ErrAborted) {
		return fmt.Errorf("told to end: %w", context.Cause(r.told)) // no bystander: the group ends for it
	}
	return err
}

// work is the term on the engine's thread.
func (r *term) work(ctx context.Context) error {
	var load *octetv1.Load
	r.in.seat.Occupy()
	r.loaded = r.rejoins
	select {
	case load = <-r.loads:
	case <-ctx.Done():
		return r.ended(ctx.Err())
	}
	loaded, err := r.load(ctx, load)
	if err != nil {
		return r.failed(0, err)
	}
	r.loaded = true
	r.serving.Store(true)
	r.tell(&octetv1.Ready{
		Rank: uint32(r.in.Rank), Pid: int32(os.Getpid()), PlanHash: loaded.PlanHash, Device: loaded.Device,
	})
	return r.serve(ctx)
}

func (r *term) load(ctx context.Context, load *octetv1.Load) (loaded Loaded, err error) {
	defer recoverTo(&err)
	if r.rejoins {
		return r.engine.(Successor).Rejoin(ctx)
	}
	var last time.Time
	return r.engine.Load(ctx, load.GetConfig(), func(done, total uint64) {
		r.in.seat.Beat()
		if now := time.Now(); done >= total || now.Sub(last) >= progressEvery {
			last = now
			r.tell(&octetv1.LoadProgress{Rank: uint32(r.in.Rank), DoneBytes: done, TotalBytes: total})
		}
	})
}

// progressEvery is how often a rank tells how far it has loaded.
const progressEvery = 50 * time.Millisecond

// serve answers rounds until there are no more.
func (r *term) serve(ctx context.Context) error {
	if err := process.PromptTimers(); err != nil {
		return r.failed(0, err)
	}
	for {
		next, err := r.in.seat.WaitRound(ctx)
		if err != nil {
			return r.ended(err)
		}
		result, hash, err := r.step(next)
		if err == nil {
			err = r.in.seat.Answer(next.Seq, hash, result)
		}
		if err != nil {
			return r.failed(next.Seq, err)
		}
	}
}

func (r *term) step(next *round.Round) (result *round.Result, hash uint64, err error) {
	defer recoverTo(&err)
	return r.engine.Step(next)
}

// recoverTo turns a panic of the engine into its error, with the stack on stderr
// for the log: the supervisor then hears the reason in order, not by exit status.
func recoverTo(err *error) {
	if p := recover(); p != nil {
		fmt.Fprintf(os.Stderr, "engine panic: %v\n%s", p, debug.Stack())
		*err = fmt.Errorf("panic: %v", p)
	}
}

// ended sorts out why there are no more rounds.
func (r *term) ended(err error) error {
	if errors.Is(err, board.ErrDrained) {
		return nil
	}
	if abort := r.in.seat.AbortWord().Err(r.in.Epoch); abort != nil {
		return abort
	}
	if r.in.seat.Draining() && errors.Is(err, context.Canceled) {
		return nil
	}
	if errors.Is(err, context.Canceled) {
		return err // killed, as a goroutine can be
	}
	return r.failed(0, err)
}

// failed tells the supervisor that this rank cannot go on, and stops the group.
func (r *term) failed(seq uint64, err error) error {
	if r.in.seat.Draining() {
		return nil // a load was cut short, as it was told
	}
	if errors.Is(err, shm.ErrAborted) || r.in.seat.AbortWord().Raised(r.in.Epoch) {
		rank, reason := -1, shm.Requested
		if abort := (*shm.AbortError)(nil); errors.As(err, &abort) {
			rank, reason = abort.Rank, abort.Reason
		}
		r.in.seat.Abort(rank, reason) // wakes those that sleep on other words
		if abort := r.in.seat.AbortWord().Err(r.in.Epoch); abort != nil {
			return abort
		}
		return err
	}
	r.tell(&octetv1.Failed{Rank: uint32(r.in.Rank), Reason: err.Error(), Round: seq})
	r.in.seat.Fail(seq, err.Error())
	return err
}

// tell sends to the supervisor's proxy of this rank.
func (r *term) tell(message any) {
	if to := r.supervisor.Load(); to != nil {
		r.system.Send(to, message)
	}
}
