package simulation

import (
	"errors"
	"fmt"
	"time"

	"github.com/octet-run/octet/actors/board"
	"github.com/octet-run/octet/actors/lifecycle"
	"github.com/octet-run/octet/actors/link"
	"github.com/octet-run/octet/actors/round"
	"github.com/octet-run/octet/collectives/transport"
	"github.com/octet-run/octet/faults"
	"github.com/octet-run/octet/internal/shm"
)

// formation is one epoch of a group: its shared memory, which is real, its
// processes, which are not, and the watch over them.
type formation struct {
	w     *world
	g     *group
	epoch uint32

	board    *board.Board
	slabs    *transport.Group
	ends     []*link.End // the supervisor's
	segments []*shm.Segment
	ranks    []*process

	seq      uint64
	call     *call         // the round in progress
	progress time.Duration // when a rank last got on
	cause    *lifecycle.RankError
	heard    []func() // to do when the cause is known
	mail     []time.Duration
	draining bool
	released bool
	alarmed  bool
}

// The group's limits in a simulation.
const (
	stallLimit   = 250 * time.Millisecond // as actors has it
	loadLimit    = 3 * time.Second
	explainLimit = 500 * time.Millisecond // as actors has it
	linkBytes    = 2048
	frameBytes   = 64 << 10
)

func newFormation(g *group, epoch uint32) (*formation, error) {
	w := g.w
	f := &formation{w: w, g: g, epoch: epoch, mail: make([]time.Duration, w.plan.ranks)}
	var err error
	f.board, err = board.Create(board.Config{
		Epoch: epoch, Ranks: w.plan.ranks, RoundBytes: frameBytes, ResultBytes: frameBytes,
	})
	if err != nil {
		return nil, err
	}
	f.board.Shared, f.board.Faults = true, w.boardFaults
	f.slabs, err = transport.Create(transport.Config{
		Ranks: w.plan.ranks, MaxRows: w.plan.rows(), MaxWidth: vocab, Epoch: epoch, FirstOp: w.plan.firstOp,
	})
	if err != nil {
		return nil, err
	}
	w.memory += 2
	for r := range w.plan.ranks {
		if err := f.addRank(r); err != nil {
			return nil, err
		}
	}
	return f, nil
}

func (f *formation) addRank(r int) error {
	config := link.Config{Capacity: linkBytes}
	segment, err := link.Create(config)
	if err != nil {
		return err
	}
	name := fmt.Sprintf("rank/%d", r)
	end, err := link.Open(segment, config, f.epoch, "supervisor", name, true)
	if err != nil {
		return err
	}
	own, err := link.Open(segment, config, f.epoch, name, "supervisor", false)
	if err != nil {
		return err
	}
	end.Arm(f.w.wire[r])
	own.Arm(f.w.wire[r])
	f.ends, f.segments = append(f.ends, end), append(f.segments, segment)
	p := &process{w: f.w, f: f, rank: r, own: own}
	f.ranks = append(f.ranks, p)
	f.w.memory++
	f.w.processes++
	if err := p.start(); err != nil {
		return err
	}
	f.w.clock.soon(100*time.Microsecond, 2*time.Millisecond, func() { f.ask(p) })
	return nil
}

// ask tells a rank to load.
func (f *formation) ask(p *process) {
	if f.released || p.dead {
		return
	}
	if err := f.ends[p.rank].Send(link.Frame{Type: frameLoad, Target: "rank", Sender: "proxy"}); err == nil {
		p.thread.wake()
	}
}

// read delivers what a rank has sent.
func (f *formation) read(p *process) {
	for !f.released {
		frame, ok, err := f.ends[p.rank].Poll()
		switch {
		case err != nil:
			f.lost(p, "sent damaged messages: "+err.Error())
			return
		case !ok:
			return
		case frame.Epoch != f.epoch:
			f.w.breach("a frame of epoch %d is read in epoch %d", frame.Epoch, f.epoch)
		case frame.Type == frameReady:
			f.post(p.rank, func() { f.g.ready(p) })
		case frame.Type == frameFailed:
			f.lost(p, "failed: "+string(frame.Body))
		}
	}
}

// lost tells the group that a rank cannot go on.
func (f *formation) lost(p *process, reason string) {
	cause := &lifecycle.RankError{Epoch: f.epoch, Rank: p.rank, Reason: reason}
	f.post(p.rank, func() { f.g.lost(cause) })
}

// post puts a message of a rank's proxy into the group's mailbox. Messages of one
// proxy arrive in order; now and then an old one comes again, long after.
func (f *formation) post(rank int, deliver func()) {
	c := f.w.clock
	at := max(c.now+c.between(time.Microsecond, 200*time.Microsecond), f.mail[rank]+1)
	f.mail[rank] = at
	c.after(at-c.now, deliver)
	if c.chance.IntN(20) == 0 {
		c.soon(time.Millisecond, 300*time.Millisecond, deliver)
	}
}

// reap notices the end of a process, as actors' proxy does.
func (f *formation) reap(p *process, err error) {
	if !f.draining {
		f.abort(p.rank, shm.Died)
	}
	p.close()
	gone := func() { f.post(p.rank, func() { f.g.gone(f.epoch, p.rank) }) }
	switch {
	case f.draining, f.cause != nil && errors.Is(err, shm.ErrAborted):
		gone()
	case errors.Is(err, shm.ErrAborted): // a bystander, and nobody has explained
		f.explained(func(told bool) {
			if !told {
				f.lost(p, "left although nobody asked it to")
			}
			gone()
		})
	default:
		f.lost(p, fmt.Sprintf("died: %v", err))
		gone()
	}
}

// abort stops all ranks.
func (f *formation) abort(rank int, reason shm.Reason) {
	if f.released {
		return
	}
	f.board.Abort(rank, reason)
	f.alarm()
	f.lookSoon()
}

// alarm is what the ranks do about an abort outside their engine threads.
func (f *formation) alarm() {
	if f.alarmed || f.released {
		return
	}
	f.alarmed = true
	f.w.clock.soon(10*time.Microsecond, time.Millisecond, func() {
		if !f.released {
			f.slabs.Abort(-1, shm.Requested)
			f.ring()
		}
	})
}

// ring wakes the ranks that wait for something on the board.
func (f *formation) ring() {
	for _, p := range f.ranks {
		p.thread.wake()
	}
}

// explain records why the epoch ended.
func (f *formation) explain(cause *lifecycle.RankError) {
	f.cause = cause
	if c := f.call; c != nil {
		f.w.clock.after(answerLimit, func() {
			if !c.over {
				f.w.breach("a round of epoch %d is not answered %v after the epoch has ended", f.epoch, answerLimit)
			}
		})
	}
	for _, do := range f.heard {
		do()
	}
	f.heard = nil
}

// explained calls do once the cause is known, or is not within the limit.
func (f *formation) explained(do func(told bool)) {
	if f.cause != nil {
		do(true)
		return
	}
	once := false
	call := func(told bool) func() {
		return func() {
			if !once {
				once = true
				do(told)
			}
		}
	}
	f.heard = append(f.heard, call(true))
	f.w.clock.after(explainLimit, call(false))
}

// run starts a round, as actors.Group.Do does.
func (f *formation) run(c *call) {
	f.call, f.progress = c, f.w.clock.now
	c.round.Seq = f.seq + 1
	if err := f.board.Publish(c.round); err != nil {
		f.call = nil
		c.reply(nil, err)
		return
	}
	f.seq = c.round.Seq
	f.ring()
	if err := faults.Strike(f.board.Faults.Point(faults.BoardCollect, faults.Where{Round: f.seq})); err != nil {
		f.breakOn(c, err)
		return
	}
	f.watch(c)
}

// watch gives the round up when no rank gets on any more.
func (f *formation) watch(c *call) {
	f.w.clock.after(stallLimit/10, func() {
		switch {
		case f.call != c || c.judged || f.released:
		case f.w.clock.now-f.progress >= stallLimit:
			f.breakOn(c, f.board.Stalled(stallLimit))
		default:
			f.watch(c)
		}
	})
}

// lookSoon is the doorbell.
func (f *formation) lookSoon() {
	f.w.clock.soon(time.Microsecond, 20*time.Microsecond, f.look)
}

// look collects the round if it is over.
func (f *formation) look() {
	c := f.call
	if c == nil || c.judged || f.released {
		return
	}
	result, over, err := f.board.Poll()
	switch {
	case !over:
	case err != nil:
		f.breakOn(c, err)
	default:
		f.call = nil
		f.w.accepted(f, result)
		c.reply(result, nil)
	}
}

// breakOn ends the epoch because of a failed round, and answers the round once the
// group knows the cause, as actors.Group does.
func (f *formation) breakOn(c *call, err error) {
	c.judged = true
	cause := f.blame(err)
	var abort *shm.AbortError
	tell := func() {
		f.w.clock.soon(time.Microsecond, 200*time.Microsecond, func() { f.g.lost(cause) })
	}
	if !errors.As(err, &abort) || abort.Reason != shm.Died {
		tell()
	}
	f.explained(func(told bool) {
		if !told {
			tell()
		}
		f.w.clock.soon(time.Microsecond, 50*time.Microsecond, func() {
			f.call = nil
			if f.cause != nil {
				cause = f.cause
			}
			c.reply(nil, cause)
		})
	})
}

// blame finds the rank at fault, as actors does.
func (f *formation) blame(err error) *lifecycle.RankError {
	var (
		failed   *board.FailedError
		diverged *board.DivergedError
		stall    *board.StallError
		abort    *shm.AbortError
	)
	cause := &lifecycle.RankError{Epoch: f.epoch, Rank: 0, Reason: err.Error(), Err: err}
	switch {
	case errors.As(err, &failed):
		cause.Rank = failed.Rank
	case errors.As(err, &diverged):
		cause.Rank = diverged.Rank
	case errors.As(err, &stall):
		cause.Rank = stall.Behind[0]
		for _, r := range stall.Missing {
			if f.ranks[r].thread.stopped {
				cause.Rank = r
				break
			}
		}
	case errors.As(err, &abort):
		cause.Rank = abort.Rank
	}
	return cause
}

// release frees the memory of an epoch.
func (f *formation) release() {
	f.released = true
	_ = f.board.Close()
	_ = f.slabs.Close()
	f.w.memory -= 2
	for i, end := range f.ends {
		end.Close()
		f.ranks[i].own.Close()
		_ = f.segments[i].Close()
		f.w.memory--
	}
}

// call is the coordinator's wait for a round.
type call struct {
	w      *world
	round  *round.Round
	done   chan answer
	judged bool // it has failed; the cause is being found
	over   bool
}

type answer struct {
	result *round.Result
	err    error
}

// reply ends the wait.
func (c *call) reply(result *round.Result, err error) {
	if c.over {
		return
	}
	c.over = true
	c.w.answered()
	c.done <- answer{result, err}
	c.w.clock.settle()
}
