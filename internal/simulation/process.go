package simulation

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/octet-run/octet/actors/board"
	"github.com/octet-run/octet/actors/link"
	"github.com/octet-run/octet/actors/round"
	"github.com/octet-run/octet/collectives"
	"github.com/octet-run/octet/collectives/transport"
	"github.com/octet-run/octet/faults"
	"github.com/octet-run/octet/internal/shm"
	"github.com/octet-run/octet/model"
	"github.com/octet-run/octet/model/layers"
	"github.com/octet-run/octet/rank"
)

// process is a rank's process in one epoch: a thread that runs the real engine,
// seat, link and collectives over the memory of its formation.
type process struct {
	w      *world
	f      *formation
	rank   int
	thread *thread

	seat   *board.Seat
	own    *link.End // the rank's end of its link
	engine *rank.Engine

	loaded bool // it can serve
	ready  bool // and the supervisor has heard it
	dead   bool
	diedAt time.Duration
	nan    bool // the next logits are poisoned
}

// The types of control frames.
const (
	frameLoad uint16 = 1 + iota
	frameReady
	frameFailed
)

// planHash is what every rank says it would run.
const planHash = 0x0c7e7

// start makes the process and lets it run.
func (p *process) start() error {
	file, err := duplicate(p.f.board.Segment())
	if err != nil {
		return err
	}
	if p.seat, err = board.Join(file, p.f.epoch, p.rank); err != nil {
		return err
	}
	p.w.memory++
	p.seat.Shared = true
	p.seat.Faults = p.w.wire[p.rank]
	p.thread = newThread(p.w.clock, func(*thread) error { return p.live() }, func() { p.exit(p.thread.err) })
	p.thread.wake()
	return nil
}

func duplicate(s *shm.Segment) (*os.File, error) {
	fd, err := unix.FcntlInt(s.File().Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), s.File().Name()), nil
}

// live is the engine thread from birth to the end of the group, as actors.RunRank
// has it.
func (p *process) live() error {
	if err := p.awaitLoad(); err != nil {
		return p.failed(0, err)
	}
	if err := p.load(); err != nil {
		return p.failed(0, err)
	}
	p.loaded = true
	p.tell(frameReady, nil)
	now, cancel := context.WithCancel(context.Background())
	cancel() // a wait that ends at once
	for {
		next, err := p.seat.WaitRound(now)
		if errors.Is(err, context.Canceled) {
			p.thread.park()
			continue
		}
		if err != nil {
			return p.ended(err)
		}
		result, err := p.step(next)
		if err == nil {
			err = p.seat.Answer(next.Seq, p.seat.Hash(), result)
		}
		if err != nil {
			return p.failed(next.Seq, err)
		}
		p.f.lookSoon()
	}
}

func (p *process) awaitLoad() error {
	for {
		frame, ok, err := p.own.Poll()
		switch {
		case err != nil:
			return err
		case ok && frame.Type == frameLoad:
			return nil
		case p.seat.AbortWord().Raised(p.f.epoch):
			return p.seat.AbortWord().Err(p.f.epoch)
		case p.seat.Draining():
			return board.ErrDrained
		}
		p.thread.park()
	}
}

// load assembles the engine: the real one, with a toy model.
func (p *process) load() (err error) {
	defer recovered(&err)
	if err := p.pass(faults.RankLoad, faults.Where{}); err != nil {
		return err
	}
	for range 3 {
		p.thread.work(p.w.clock.between(time.Millisecond, 4*time.Millisecond))
	}
	memory, err := p.f.slabs.Attach(p.rank, transport.Polling{Idle: p.thread.poll, Misses: p.seat.WaitsFor})
	if err != nil {
		return err
	}
	wires := &wires{endpoint: transport.WithFaults(memory, p.w.wire[p.rank]).(endpoint), p: p, first: memory.FirstOp()}
	comm, err := collectives.New(wires, collectives.Config{Plan: p.w.plan.collective})
	if err != nil {
		return err
	}
	at := rank.Place{
		Rank: p.rank, Ranks: p.w.plan.ranks, Record: p.seat.Op, Wait: p.seat.BeginWait, Waited: p.seat.EndWait, Beat: p.seat.Beat,
	}
	var current faults.Where // of the pass
	synced := func() error { return p.pass(faults.RankAccept, current) }
	p.engine, err = rank.Assemble(p.w.plan.engine(), at, comm, &device{strike: synced}, func(r layers.Reducer) model.Model {
		toy := newToy(r, p.w.plan.blocks)
		toy.strike = func() { p.mustPass(faults.RankVerify, current) }
		toy.poison = func() bool { was := p.nan; p.nan = false; return was }
		return toy
	})
	return err
}

func (p *process) step(next *round.Round) (result *round.Result, err error) {
	defer recovered(&err)
	where := faults.Where{Round: p.w.rounds}
	for _, point := range []faults.Point{faults.RankStep, faults.RankDraft} {
		if err := p.pass(point, where); err != nil {
			return nil, err
		}
	}
	if result, err = p.engine.Step(next); err != nil {
		return nil, err
	}
	return result, p.pass(faults.RankPost, where)
}

// recovered turns a panic of the engine into its error, but for the one that
// unwinds a killed thread.
func recovered(err *error) {
	if p := recover(); p != nil {
		if _, is := p.(killed); is {
			panic(p)
		}
		*err = fmt.Errorf("panic: %v", p)
	}
}

// ended sorts out why there are no more rounds, as actors does.
func (p *process) ended(err error) error {
	if errors.Is(err, board.ErrDrained) {
		return nil
	}
	if abort := p.seat.AbortWord().Err(p.f.epoch); abort != nil {
		return abort
	}
	return p.failed(0, err)
}

// failed tells the supervisor that this rank cannot go on, as actors does.
func (p *process) failed(seq uint64, err error) error {
	defer p.f.lookSoon()
	if p.seat.Draining() {
		return nil
	}
	if errors.Is(err, shm.ErrAborted) || p.seat.AbortWord().Raised(p.f.epoch) {
		p.seat.Abort(-1, shm.Requested)
		p.f.alarm()
		if abort := p.seat.AbortWord().Err(p.f.epoch); abort != nil {
			return abort
		}
		return err
	}
	p.tell(frameFailed, []byte(err.Error()))
	p.seat.Fail(seq, err.Error())
	p.f.alarm()
	return err
}

// tell sends a control frame to the supervisor.
func (p *process) tell(kind uint16, body []byte) {
	if err := p.own.Send(link.Frame{Type: kind, Target: "proxy", Sender: "rank", Body: body}); err == nil {
		p.w.clock.soon(10*time.Microsecond, 300*time.Microsecond, func() { p.f.read(p) })
	}
}

// pass is a point at which a fault may strike the process as a whole, and at which
// some time goes by.
func (p *process) pass(point faults.Point, where faults.Where) error {
	p.f.progress = p.w.clock.now
	p.thread.work(p.w.clock.between(300, 5*time.Microsecond))
	p.f.progress = p.w.clock.now
	fault := p.w.inner[p.rank].Point(point, where)
	if fault == nil {
		return nil
	}
	p.w.note("rank %d of epoch %d: %s at %s", p.rank, p.f.epoch, fault.Do, point)
	switch fault.Do {
	case faults.Abort, faults.Exit:
		p.exit(fmt.Errorf("%s", fault.Do))
		panic(killed{})
	case faults.Panic:
		panic("injected")
	case faults.Hang:
		p.w.hung(p)
		if fault.For == 0 {
			p.thread.hang()
		}
		p.thread.work(fault.For)
	case faults.Delay:
		p.thread.work(fault.For)
	case faults.NaN:
		p.nan = true
	case faults.Fail:
		return faults.ErrInjected
	}
	return nil
}

// mustPass is pass where no error can be returned.
func (p *process) mustPass(point faults.Point, where faults.Where) {
	if err := p.pass(point, where); err != nil {
		panic(err)
	}
}

// kill is SIGKILL.
func (p *process) kill() {
	if !p.dead {
		p.exit(errors.New("killed"))
		p.thread.kill()
	}
}

// exit ends the process: nothing of it runs from here on.
func (p *process) exit(err error) {
	if p.dead {
		return
	}
	p.dead, p.diedAt = true, p.w.clock.now
	p.w.processes--
	p.w.clock.soon(20*time.Microsecond, time.Millisecond, func() { p.f.reap(p, err) })
}

// close frees the process's own mappings, once it is dead.
func (p *process) close() {
	_ = p.seat.Close()
	p.w.memory--
}

// endpoint is what the collectives run on.
type endpoint interface {
	transport.Transport
	transport.Rendezvous
}

// wires are a rank's end of the data plane: the real one, with time going by and
// faults striking at its points.
type wires struct {
	endpoint
	p     *process
	first uint32
}

func (w *wires) pass(point faults.Point, op uint32) {
	w.p.mustPass(point, faults.Where{Round: w.p.w.rounds, Op: uint64(op-w.first) + 1})
}

// Post enters an operation.
func (w *wires) Post(op uint32, d transport.Descriptor) {
	w.pass(faults.CollectiveArrive, op)
	w.endpoint.Post(op, d)
}

// Signal passes the point in the middle of an operation.
func (w *wires) Signal(to, tag int, op uint32) {
	w.pass(faults.CollectiveReduce, op)
	w.endpoint.Signal(to, tag, op)
}

// Claim passes the point before a rank sums.
func (w *wires) Claim(op uint32, chunks int) (int, bool) {
	chunk, ok := w.endpoint.Claim(op, chunks)
	if ok {
		w.pass(faults.CollectiveReduce, op)
	}
	return chunk, ok
}

// Complete leaves an operation.
func (w *wires) Complete(op uint32) {
	w.pass(faults.CollectiveLeave, op)
	w.endpoint.Complete(op)
}
