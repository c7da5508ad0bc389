package board

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/octet-run/octet/actors/round"
	"github.com/octet-run/octet/faults"
	"github.com/octet-run/octet/internal/shm"
)

// Seat is a rank's side of the board. One thread uses it: the engine's. Abort,
// AbortWord, Beats, Draining, Wake, WaitAlarm and WaitAbort may be called from
// anywhere.
type Seat struct {
	board *board
	seat  *seat
	rank  int
	// last is the number of the last round taken.
	last   uint64
	taken  time.Time
	waited time.Duration
	hash   uint64
	buf    []byte
	// Shared is for a process that hosts several ranks: waits are ordinary
	// system calls from the start, which leave the processors to the others.
	Shared bool
	// Faults strike when the rank answers; nil: none.
	Faults *faults.Injector
}

// After idleAfter raw waits without a round, 50 ms, a rank waits in ordinary system
// calls of idleSlice, so that an idle group hardly wakes up.
const (
	idleAfter = 10
	idleSlice = 25 * time.Millisecond
)

// Rank is the seat's rank, Ranks the number of seats, Epoch the board's epoch.
func (s *Seat) Rank() int     { return s.rank }
func (s *Seat) Ranks() int    { return s.board.ranks }
func (s *Seat) Epoch() uint32 { return s.board.epoch }

// AbortWord is the group's abort word, for every other wait that must end with
// the group.
func (s *Seat) AbortWord() *shm.Abort { return s.board.abort }

// Abort stops the group: every rank's waits end, and the coordinator's.
func (s *Seat) Abort(rank int, reason shm.Reason) { s.board.raise(rank, reason) }

// Beat says that the engine thread lives. Call it in the course of long work
// that records no operations, never in a loop that waits for another rank.
func (s *Seat) Beat() { s.seat.beats.Add(1) }

// Op records an operation: what it was and on what, in 64 bits. Ranks that agree
// record the same sequence.
func (s *Seat) Op(op uint64) {
	s.hash = mix(s.hash, op)
	n := s.seat.ops.Load()
	point := &s.seat.trace[n%traceOps]
	point.op.Store(op)
	point.hash.Store(s.hash)
	s.seat.ops.Store(n + 1)
	s.seat.beats.Add(1)
}

// BeginWait says that the rank may now have to wait for others: if a round
// stalls, those that do not wait are the ones to blame.
func (s *Seat) BeginWait() { s.seat.waiting.Store(1) }

// WaitsFor says, during a long wait, for which rank.
func (s *Seat) WaitsFor(rank int) { s.seat.waiting.Store(forRank + uint32(rank)) }

// EndWait counts time of this round that the rank spent waiting for others.
func (s *Seat) EndWait(d time.Duration) {
	s.waited += d
	s.seat.waiting.Store(0)
}

// Hash is the rolling hash of the recorded operations.
func (s *Seat) Hash() uint64 { return s.hash }

// mix is one step of the rolling hash (the finaliser of splitmix64).
func mix(h, op uint64) uint64 {
	h = h*0x9e3779b97f4a7c15 ^ op
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}

// Occupy says that the calling thread is the engine's.
func (s *Seat) Occupy() { s.seat.thread.Store(uint64(unix.Gettid())) }

// Guarded says which thread only sleeps until the process ends.
func (s *Seat) Guarded(thread int) { s.seat.guard.Store(uint64(thread)) }

// WaitRound waits for the next round. It returns *shm.AbortError when the group
// is aborted, ErrDrained when no more rounds come, ErrStaleEpoch for a frame of
// another epoch or out of order, *round.FrameError for damaged bytes, and
// ctx's error once it is done.
//
// The caller's thread sits in raw system calls: it should be locked.
func (s *Seat) WaitRound(ctx context.Context) (*round.Round, error) {
	b := s.board
	s.Occupy()
	polling, raw := newPoll(b.spin), idleAfter
	if s.Shared {
		raw = 0
	}
	for {
		old := b.bell.Load()
		if err := b.abort.Err(b.epoch); err != nil {
			return nil, err
		}
		if b.published.Load() > s.last {
			return s.take()
		}
		if b.drain.Load() != 0 {
			return nil, ErrDrained
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		s.seat.turns.Add(1)
		switch {
		case polling.on(b.bell, old):
		case raw > 0:
			raw--
			b.bell.Sleep(old)
		default:
			b.bell.Block(old, idleSlice)
		}
	}
}

// take decodes the published frame and checks that it is the next one.
func (s *Seat) take() (*round.Round, error) {
	b := s.board
	n := b.roundLen.Load()
	if n > uint64(len(b.frame)) {
		return nil, tooLong("round", int(n), len(b.frame))
	}
	r, err := round.DecodeRound(b.frame[:n])
	if err != nil {
		return nil, err
	}
	if r.Epoch != b.epoch || r.Seq != s.last+1 {
		return nil, fmt.Errorf("round %d of epoch %d came where round %d of epoch %d was due: %w",
			r.Seq, r.Epoch, s.last+1, b.epoch, round.ErrStaleEpoch)
	}
	s.last, s.taken, s.waited = r.Seq, time.Now(), 0
	s.seat.beats.Add(1)
	return r, nil
}

// Draining reports whether no more rounds come.
func (s *Seat) Draining() bool { return s.board.drain.Load() != 0 }

// Beats counts the seat's signs of life.
func (s *Seat) Beats() uint64 { return s.seat.life() }

// Answer ends a round for this rank. Rank 0 gives the result, others nil.
func (s *Seat) Answer(seq, hash uint64, result *round.Result) error {
	fault := s.Faults.Point(faults.RankPost, faults.Where{Round: seq})
	if err := faults.Strike(fault); err != nil {
		return err
	}
	epoch := s.board.epoch
	if fault != nil {
		var gone bool
		if epoch, hash, gone = spoil(fault, epoch, hash); gone {
			return nil
		}
	}
	if s.rank == 0 {
		if err := s.leave(epoch, seq, result); err != nil {
			return err
		}
		damage(fault, s.board.answer[:s.board.resultLen.Load()])
	}
	s.seat.hash.Store(hash)
	s.seat.busy.Store(uint64(max(time.Since(s.taken)-s.waited, 0)))
	s.seat.waited.Store(uint64(s.waited))
	s.arrive(seq)
	return nil
}

// leave puts the result where the coordinator reads it.
func (s *Seat) leave(epoch uint32, seq uint64, result *round.Result) error {
	b := s.board
	if result == nil {
		return fmt.Errorf("round %d: rank 0 has no result", seq)
	}
	result.Epoch, result.Seq = epoch, seq
	frame, err := round.AppendResult(s.buf[:0], result)
	if err != nil {
		return err
	}
	s.buf = frame
	if len(frame) > len(b.answer) {
		return tooLong("result", len(frame), len(b.answer))
	}
	copy(b.answer, frame)
	b.resultLen.Store(uint64(len(frame)))
	return nil
}

// Fail ends a round for this rank without an answer, and aborts the group.
func (s *Seat) Fail(seq uint64, reason string) {
	n := copy(s.seat.reason, reason)
	s.seat.reasonLen.Store(uint64(n))
	s.seat.failed.Store(1)
	s.board.raise(s.rank, shm.Died) // before the last arrival, which ends the wait
	s.arrive(seq)
}

func (s *Seat) arrive(seq uint64) {
	b := s.board
	s.seat.answered.Store(seq)
	if b.arrived.Add(1) == uint32(b.ranks) {
		b.doorbell.Add(1)
		b.doorbell.Wake(1)
	}
}

// WaitAlarm waits until the group is aborted, and returns the *shm.AbortError, or
// told to drain, and returns ErrDrained, or ctx is done. Any goroutine may wait.
func (s *Seat) WaitAlarm(ctx context.Context) error { return s.wait(ctx, true) }

// WaitAbort is WaitAlarm for those who know already that the group drains.
func (s *Seat) WaitAbort(ctx context.Context) error { return s.wait(ctx, false) }

func (s *Seat) wait(ctx context.Context, drain bool) error {
	b := s.board
	for {
		old := b.alarm.Load()
		if err := b.abort.Err(b.epoch); err != nil {
			return err
		}
		if drain && b.drain.Load() != 0 {
			return ErrDrained
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		b.alarm.Block(old, alarmSlice)
	}
}

// Wake makes WaitAlarm and WaitAbort look at their contexts.
func (s *Seat) Wake() { s.board.sound() }

// alarmSlice is how soon an abort that another package raised in the abort word,
// without waking anybody, is seen.
const alarmSlice = 100 * time.Millisecond

// Close unmaps the board.
func (s *Seat) Close() error { return s.board.segment.Close() }
