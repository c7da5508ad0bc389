package actors

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"github.com/octet-run/octet/actors/board"
	"github.com/octet-run/octet/actors/round"
	"github.com/octet-run/octet/faults"
	"github.com/octet-run/octet/internal/shm"
	octetv1 "github.com/octet-run/octet/proto/octet/v1"
)

// Engine is what a rank computes with. Load, Step and Close are called on one
// locked operating-system thread; Abort on another goroutine.
type Engine interface {
	// Load loads the rank's shard, reporting bytes as it goes. config is
	// Config.EngineConfig.
	Load(ctx context.Context, config []byte, progress func(done, total uint64)) (Loaded, error)
	// Step runs one round. It returns the result on rank 0, nil elsewhere, and the
	// rolling hash of all operations so far (Seat.Hash where they are recorded by
	// Seat.Op). An error ends the rank, unless it wraps shm.ErrAborted: then the
	// group is ending anyway.
	Step(r *round.Round) (result *round.Result, opHash uint64, err error)
	// Abort makes a Load or Step in progress return soon. It may come at any time
	// before Close has returned, and more than once.
	Abort()
	// Close frees everything. It is called once, whatever happened before.
	Close() error
}

// Successor is an Engine that can outlive an epoch: when another rank is lost it
// keeps its process, its weights and its device. A rank whose engine is none, or
// whose Leave fails, ends with the epoch and is started anew.
type Successor interface {
	Engine
	// Leave drops everything of the epoch that was aborted: sequences, what was
	// drafted for them, the communicator, every reference to the epoch's memory,
	// which is unmapped after it. It is called once Load has succeeded and no call of
	// Step, Rejoin or Abort is left; an error says that the engine cannot go on.
	Leave() error
	// Rejoin takes the next epoch's memory, which Inherited now has, and makes the
	// engine as it was after Load. Abort makes it return soon; Leave may follow even
	// if it failed.
	Rejoin(ctx context.Context) (Loaded, error)
}

// Loaded is what a rank tells about itself once it can serve.
type Loaded struct {
	// PlanHash covers everything on which all ranks must agree: collective plan,
	// instruction set, model. A group whose ranks differ does not start.
	PlanHash uint64
	// Device names what the rank computes on.
	Device string
}

// ExitCode is the exit status for what RunRank returned: 0 if the rank was
// drained, exitAborted if the group ended around it, 1 if the rank failed.
func ExitCode(err error) int {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, shm.ErrAborted):
		return exitAborted
	default:
		return 1
	}
}

// exitAborted tells the supervisor that this rank is not the one at fault.
const exitAborted = 75

// RunRank is a rank's life: it loads when told to, answers rounds until the group
// drains or is aborted, and closes the engine. If the engine is a Successor, the
// rank outlives epochs that others ended: it leaves, waits for the next and rejoins.
// RunRank returns nil when drained, an error that wraps shm.ErrAborted when the group
// was aborted, and otherwise what made this rank fail, which the supervisor has been
// told. in stays the caller's.
func RunRank(ctx context.Context, in *Inherited, engine Engine, log *zap.Logger) (err error) {
	if in.link == nil {
		return fmt.Errorf("rank %d: no link to the supervisor among the inherited files", in.Rank)
	}
	l := &life{in: in, engine: engine, thread: startThread(), log: log}
	defer l.thread.end()
	defer l.thread.do(func() {
		if closeErr := engine.Close(); err == nil {
			err = closeErr
		}
	})
	l.system = NewSystem(SystemConfig{Address: rankAddress(in.Rank), Log: log, OnCrash: l.crashed})
	defer l.system.close()
	for {
		err := l.serve(ctx)
		if !l.outlives(ctx, err) {
			return err
		}
		if left := l.leave(); left != nil {
			log.Warn("the rank cannot outlive its epoch", zap.Error(left))
			return err
		}
		if err := in.succeed(ctx); err != nil {
			return err
		}
	}
}

// life is a rank over all its epochs.
type life struct {
	in     *Inherited
	engine Engine
	thread *thread
	system *System
	log    *zap.Logger

	loaded bool
	// lingers is set when an actor of the last term did not stop.
	lingers bool
	term    atomic.Pointer[term]
}

// crashed hears that an actor panicked.
func (l *life) crashed(reason any) {
	l.term.Load().lost(fmt.Errorf("an actor panicked: %v", reason))
}

// serve is one epoch. When it returns, nothing but the engine uses its memory.
func (l *life) serve(ctx context.Context) error {
	told := ctx
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	in, system := l.in, l.system
	r := &term{
		in: in, engine: l.engine, system: system, thread: l.thread, told: told, rejoins: l.loaded, loads: make(chan *octetv1.Load, 1),
	}
	l.term.Store(r)
	system.attach(supervisorAddress, in.link)
	defer system.detach(supervisorAddress, in.link)
	for name, receive := range map[string]func(actor.Context){rankActor: r.receive, healthActor: r.receiveProbe} {
		pid, err := system.Spawn(name, receive)
		if err != nil {
			return err
		}
		defer func() { l.lingers = !system.stop(pid, lingerLimit) || l.lingers }()
	}

	delivered := make(chan struct{})
	go func() {
		defer close(delivered)
		if err := system.deliver(supervisorAddress, in.link); err != nil {
			r.lost(err)
		}
	}()
	defer func() {
		in.link.Close()
		<-delivered
	}()

	watched, woken := make(chan struct{}), make(chan struct{})
	context.AfterFunc(ctx, func() {
		defer close(woken)
		in.seat.Wake()
	})
	go func() {
		defer close(watched)
		r.alarm(ctx, cancel)
	}()
	defer func() {
		cancel()
		<-woken
		<-watched
	}()
	err := r.run(ctx)
	l.loaded = r.loaded
	return err
}

// outlives reports whether the rank goes on after an epoch that ended with err.
func (l *life) outlives(ctx context.Context, err error) bool {
	_, able := l.engine.(Successor)
	return able && l.loaded && !l.lingers && l.in.succession != nil && errors.Is(err, shm.ErrAborted) &&
		l.term.Load().outside.Load() == nil && ctx.Err() == nil && !l.in.seat.Draining()
}

// leave drops what the rank has of the epoch.
func (l *life) leave() (err error) {
	l.thread.do(func() {
		defer recoverTo(&err)
		err = l.engine.(Successor).Leave()
	})
	if err != nil {
		return err
	}
	return l.in.leave()
}

const (
	// stopLimit bounds the wait for an actor to end.
	stopLimit = time.Second
	// lingerLimit is for a rank's actors when an epoch is over. One that hangs, in a
	// device's library maybe, costs the rank its process; the group, which waits, may
	// end it sooner (Config.LeaveTimeout).
	lingerLimit = 2 * time.Second
)

// The names of a rank's actors.
const (
	rankActor   = "rank"
	healthActor = "health"
)

// alarm reacts to the end of the group while a load or a round is in progress.
func (r *term) alarm(ctx context.Context, cancel context.CancelFunc) {
	err := r.in.seat.WaitAlarm(ctx)
	if r.told.Err() != nil && !r.in.seat.Draining() {
		r.in.seat.Abort(r.in.Rank, shm.Died) // this rank alone was told to end
	}
	if errors.Is(err, board.ErrDrained) && r.serving.Load() {
		// The engine thread sees it after its round, unless a rank is lost in that.
		_ = r.in.seat.WaitAbort(ctx)
	}
	cancel()
	r.engine.Abort()
}

// lost ends the rank, and the group with it, because of something outside the
// engine thread.
func (r *term) lost(err error) {
	r.outside.CompareAndSwap(nil, &err)
	r.tell(&octetv1.Failed{Rank: uint32(r.in.Rank), Reason: err.Error()})
	r.in.seat.Abort(r.in.Rank, shm.Died)
}

// receive is the rank actor: it passes lifecycle messages on and never waits.
func (r *term) receive(c actor.Context) {
	m, ok := c.Message().(*octetv1.Load)
	if !ok {
		return
	}
	r.supervisor.Store(c.Sender())
	select {
	case r.loads <- m:
	default:
		r.system.log.Warn("a second load was ignored")
	}
}

// receiveProbe is the health actor: it answers while the engine thread works.
func (r *term) receiveProbe(c actor.Context) {
	m, ok := c.Message().(*octetv1.Probe)
	if !ok {
		return
	}
	if err := faults.Strike(r.in.faults.Load().Point(faults.DeviceHealth, faults.Where{})); err != nil {
		r.system.log.Warn("the device's health cannot be read", zap.Error(err))
		return
	}
	c.Respond(&octetv1.Health{
		Rank: uint32(r.in.Rank), Nonce: m.GetNonce(), Heartbeats: r.in.seat.Beats(),
		ResidentBytes: residentBytes(), Goroutines: uint32(runtime.NumGoroutine()), StaleFrames: r.in.link.Stale(),
	})
}

// residentBytes is this process's memory in use, 0 if the kernel does not tell.
func residentBytes() uint64 {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	var size, resident uint64
	if _, err := fmt.Sscan(string(text), &size, &resident); err != nil {
		return 0
	}
	return resident * uint64(os.Getpagesize())
}
