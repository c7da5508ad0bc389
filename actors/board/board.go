package board

import (
	"cmp"
	"fmt"
	"time"

	"github.com/octet-run/octet/actors/round"
	"github.com/octet-run/octet/faults"
	"github.com/octet-run/octet/internal/shm"
)

// Board is the coordinator's side. Publish and Collect take turns and need one
// caller at a time; the other methods may be called from anywhere.
type Board struct {
	board
	// Shared is for a process that hosts ranks too, see Seat.Shared.
	Shared bool
	// Faults strike before a round is published and before answers are read;
	// nil: none.
	Faults *faults.Injector

	buf []byte
	// opsBefore is each rank's count of operations when the round was published.
	opsBefore []uint64
	// silence is the longest of the last round, less what excused it.
	silence time.Duration
}

// Create makes the board of one epoch. The caller closes it.
func Create(c Config) (*Board, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	b := &Board{}
	b.arrange(c)
	segment, err := shm.Create("octet-board", b.totalBytes)
	if err != nil {
		return nil, err
	}
	writeHeader(segment, c)
	b.locate(segment, c)
	b.opsBefore = make([]uint64, c.Ranks)
	return b, nil
}

// Segment is the memory to hand to the ranks.
func (b *Board) Segment() *shm.Segment { return b.segment }

// Close unmaps the board. Ranks keep their own mappings.
func (b *Board) Close() error { return b.segment.Close() }

// Publish gives a round to all ranks. Its epoch must be the board's and its
// number the one after the last.
func (b *Board) Publish(r *round.Round) error {
	if last := b.published.Load(); r.Epoch != b.epoch || r.Seq != last+1 {
		return fmt.Errorf("round %d of epoch %d where round %d of epoch %d is due: %w",
			r.Seq, r.Epoch, last+1, b.epoch, round.ErrStaleEpoch)
	}
	if err := faults.Strike(b.Faults.Point(faults.BoardPublish, faults.Where{Round: r.Seq})); err != nil {
		return err
	}
	frame, err := round.AppendRound(b.buf[:0], r)
	if err != nil {
		return err
	}
	b.buf = frame
	if len(frame) > len(b.frame) {
		return tooLong("round", len(frame), len(b.frame))
	}
	for i := range b.seatOf {
		b.opsBefore[i] = b.seatOf[i].ops.Load()
	}
	copy(b.frame, frame)
	b.roundLen.Store(uint64(len(frame)))
	b.arrived.Store(0)
	b.published.Store(r.Seq)
	b.ring()
	return nil
}

// ring makes every waiting rank look.
func (b *board) ring() {
	b.bell.Add(1)
	b.bell.WakeAll()
}

// raise aborts the epoch and makes everybody look.
func (b *board) raise(rank int, reason shm.Reason) {
	b.abort.Raise(b.epoch, rank, reason)
	b.ring()
	b.doorbell.Add(1)
	b.doorbell.WakeAll()
	b.sound()
}

// sound wakes who watches for the end of the group only.
func (b *board) sound() {
	b.alarm.Add(1)
	b.alarm.WakeAll()
}

// Abort stops the group because of rank (-1: none in particular). The first
// reason stays.
func (b *Board) Abort(rank int, reason shm.Reason) { b.raise(rank, reason) }

// AbortErr is nil, or the *shm.AbortError of this epoch.
func (b *Board) AbortErr() error { return b.abort.Err(b.epoch) }

// Drain tells ranks to leave once they have answered the last round.
func (b *Board) Drain() {
	b.drain.Store(1)
	b.ring()
	b.sound()
}

// Beats counts a rank's signs of life.
func (b *Board) Beats(rank int) uint64 { return b.seatOf[rank].life() }

// Thread is the thread on which a rank's engine runs, 0 before there is one.
func (b *Board) Thread(rank int) int { return int(b.seatOf[rank].thread.Load()) }

// Guard is a thread of a rank that only sleeps until the process ends, 0 for none.
func (b *Board) Guard(rank int) int { return int(b.seatOf[rank].guard.Load()) }

// life is progress and waiting together.
func (s *seat) life() uint64 { return s.beats.Load() + s.turns.Load() }

// Times is how long a rank was at work in the last round, and how long it waited
// for other ranks in it.
func (b *Board) Times(rank int) (busy, waited time.Duration) {
	s := &b.seatOf[rank]
	return time.Duration(s.busy.Load()), time.Duration(s.waited.Load())
}

// collectSlice is how often Collect looks at the clock.
const collectSlice = 5 * time.Millisecond

// Collect waits until all ranks have answered the published round and returns
// rank 0's result. Its errors: *StallError, *DivergedError, *FailedError,
// *shm.AbortError, *round.FrameError, ErrStaleEpoch. After any of them the
// group is to be aborted.
func (b *Board) Collect(p Patience) (*round.Result, error) {
	if p.Stall == 0 {
		p.Stall = defaultStall
	}
	seq := b.published.Load()
	if err := faults.Strike(b.Faults.Point(faults.BoardCollect, faults.Where{Round: seq})); err != nil {
		return nil, err
	}
	start := time.Now()
	silence, polling := silence{since: start, seen: start}, newPoll(b.spin)
	for raw := !b.Shared; ; {
		old := b.doorbell.Load()
		if result, over, err := b.Poll(); over {
			b.silence = max(silence.longest, silence.own(time.Now()))
			return result, err
		}
		if polling.on(b.doorbell, old) {
			continue
		}
		if raw {
			b.doorbell.Sleep(old)
			raw = false
			continue
		}
		now := time.Now()
		start = start.Add(silence.skip(now))
		if silence.over(b, seq, &p, now) {
			return nil, b.stall(seq, p.Stall, false)
		}
		if p.Deadline > 0 && now.Sub(start) >= p.Deadline {
			return nil, b.stall(seq, p.Deadline, true)
		}
		b.doorbell.Block(old, collectSlice)
	}
}

// Silence is for how long, at most, no rank that owed an answer made progress in the
// round that Collect has returned, less the time in which it was kept from running.
// What is much shorter than a slow round's is not measured.
func (b *Board) Silence() time.Duration { return b.silence }

// Poll is Collect for those who wait themselves: over is false as long as ranks
// owe an answer to the published round and nothing is wrong.
func (b *Board) Poll() (result *round.Result, over bool, err error) {
	seq := b.published.Load()
	if b.arrived.Load() >= uint32(b.ranks) && len(b.missing(seq)) == 0 {
		result, err = b.verdict(seq)
		return result, true, err
	}
	err = b.failure(seq)
	return nil, err != nil, err
}

// Stalled is the error of the published round if it is given up now, for those who
// wait themselves.
func (b *Board) Stalled(after time.Duration) *StallError {
	return b.stall(b.published.Load(), after, false)
}

// missing are the ranks that have not answered round seq.
func (b *Board) missing(seq uint64) []int {
	var ranks []int
	for r := range b.seatOf {
		if b.seatOf[r].answered.Load() != seq {
			ranks = append(ranks, r)
		}
	}
	return ranks
}

// failure is the first rank's own account of a failure, or else the abort.
func (b *Board) failure(seq uint64) error {
	err := b.abort.Err(b.epoch)
	if err == nil {
		return nil
	}
	for r := range b.seatOf {
		if s := &b.seatOf[r]; s.failed.Load() != 0 {
			n := min(s.reasonLen.Load(), reasonBytes)
			return &FailedError{Epoch: b.epoch, Round: seq, Rank: r, Reason: string(s.reason[:n])}
		}
	}
	return err
}

func (b *Board) stall(seq uint64, after time.Duration, deadline bool) *StallError {
	missing := b.missing(seq)
	return &StallError{
		Epoch: b.epoch, Round: seq, Missing: missing, Behind: b.behind(missing), After: after, Deadline: deadline,
	}
}

// behind are those of the ranks that the others wait for: with the fewest
// operations of this round, of these the ones that most of the waiting name, and of
// these the ones that wait for nobody.
func (b *Board) behind(ranks []int) (behind []int) {
	named := make([]int, b.ranks)
	for _, r := range ranks {
		if w := b.seatOf[r].waiting.Load(); w >= forRank && int(w-forRank) < b.ranks {
			named[w-forRank]++
		}
	}
	var last place
	for _, r := range ranks {
		s := &b.seatOf[r]
		here := place{ops: s.ops.Load() - b.opsBefore[r], named: named[r], waits: min(s.waiting.Load(), 1)}
		switch order := here.compare(last); {
		case behind == nil, order < 0:
			last, behind = here, []int{r}
		case order == 0:
			behind = append(behind, r)
		}
	}
	return behind
}

// place is how far a rank is in a round.
type place struct {
	ops   uint64
	named int    // how many ranks wait for it, by their own account
	waits uint32 // 1: it may be waiting itself
}

// compare is negative if p is further behind.
func (p place) compare(q place) int {
	return cmp.Or(cmp.Compare(p.ops, q.ops), cmp.Compare(q.named, p.named), cmp.Compare(p.waits, q.waits))
}

// verdict compares the hashes of a complete round and reads the result.
func (b *Board) verdict(seq uint64) (*round.Result, error) {
	if err := b.failure(seq); err != nil {
		return nil, err
	}
	if err := b.compare(seq); err != nil {
		return nil, err
	}
	n := b.resultLen.Load()
	if n > uint64(len(b.answer)) {
		return nil, tooLong("result", int(n), len(b.answer))
	}
	result, err := round.DecodeResult(b.answer[:n])
	if err != nil {
		return nil, err
	}
	if result.Epoch != b.epoch || result.Seq != seq {
		return nil, fmt.Errorf("result of round %d, epoch %d where round %d, epoch %d is due: %w",
			result.Seq, result.Epoch, seq, b.epoch, round.ErrStaleEpoch)
	}
	return result, nil
}
