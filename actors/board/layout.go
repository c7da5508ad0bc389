package board

import (
	"fmt"
	"os"
	"time"

	"github.com/octet-run/octet/actors/round"
	"github.com/octet-run/octet/internal/shm"
)

// Config sizes a board. Zero values take the defaults.
type Config struct {
	Epoch uint32
	Ranks int
	// RoundBytes and ResultBytes bound one frame: 4 MiB each. Memory that no
	// frame reaches is never touched.
	RoundBytes, ResultBytes int
	// Spin is how long both sides poll for the other's word before they sleep. It
	// pays where every rank and the coordinator have a processor to themselves.
	Spin time.Duration
}

// MaxRanks bounds the ranks of a group.
const MaxRanks = 64

func (c *Config) validate() error {
	if c.Ranks < 1 || c.Ranks > MaxRanks {
		return fmt.Errorf("board: %d ranks, want 1 to %d", c.Ranks, MaxRanks)
	}
	if c.RoundBytes == 0 {
		c.RoundBytes = 4 << 20
	}
	if c.ResultBytes == 0 {
		c.ResultBytes = 4 << 20
	}
	if c.RoundBytes < 64 || c.ResultBytes < 64 {
		return fmt.Errorf("board: round of %d bytes, result of %d bytes: want at least 64", c.RoundBytes, c.ResultBytes)
	}
	if c.Spin < 0 || c.Spin > maxSpin {
		return fmt.Errorf("board: polling for %v, want at most %v", c.Spin, maxSpin)
	}
	return nil
}

// maxSpin keeps polling short beside the time slices of the kernel's scheduler.
const maxSpin = time.Millisecond

// The segment, in order; the distances keep different writers apart.
const (
	offHeader    = 0
	offAbort     = 1 * shm.CacheLine // shm.Abort
	offBell      = 2 * shm.CacheLine // word, moves whenever a rank has reason to look
	offPublished = 3 * shm.CacheLine // counter: round; +8 counter: frame bytes
	offDoorbell  = 4 * shm.CacheLine // word, moves whenever the coordinator has reason to look
	offArrived   = 5 * shm.CacheLine // word: ranks that have answered
	offResult    = 6 * shm.CacheLine // counter: frame bytes
	offDrain     = 7 * shm.CacheLine // word: 1 when ranks are to leave
	offAlarm     = 8 * shm.CacheLine // word, moves on abort and drain only
	offSeats     = 9 * shm.CacheLine

	magic   = 0x42544f34 // "4OTB": changes with the layout
	pageLen = 4096
)

// A seat: what one rank writes.
const (
	seatBeats    = 0  // counter: signs of progress: rounds taken, operations, Beat
	seatAnswered = 8  // counter: round
	seatHash     = 16 // counter: rolling hash after that round
	seatFailed   = 24 // word: 1 when the answer is a failure; reason below
	seatWaiting  = 28 // word: not 0 while the rank waits for others; from forRank on, for whom
	seatOps      = 32 // counter: operations recorded
	seatBusy     = 40 // counter: nanoseconds of the last round at work
	seatWaited   = 48 // counter: nanoseconds of it spent waiting for other ranks
	seatTurns    = 56 // counter: turns of waiting for a round: alive, but no progress
	seatReason   = 64 // counter: length, then text
	reasonBytes  = 424
	seatThread   = 496 // counter: the engine's thread
	seatGuard    = 504 // counter: the thread that only sleeps
	seatTrace    = 512 // traceOps pairs of counters: operation, hash after it
	traceOps     = 512
	forRank      = 2
	seatBytes    = seatTrace + traceOps*16
)

// board is the mapping with its parts found.
type board struct {
	segment *shm.Segment
	epoch   uint32
	ranks   int
	spin    time.Duration

	abort           *shm.Abort
	bell, doorbell  *shm.Word
	arrived, drain  *shm.Word
	alarm           *shm.Word
	published       *shm.Counter
	roundLen        *shm.Counter
	resultLen       *shm.Counter
	frame, answer   []byte // where the round's and the result's frame lie
	seatOf          []seat
	totalBytes      int
	roundAt, answAt int
}

// seat is one rank's part of the board.
type seat struct {
	beats, turns, answered, hash *shm.Counter
	ops, busy, waited, reasonLen *shm.Counter
	thread, guard                *shm.Counter
	failed, waiting              *shm.Word
	reason                       []byte
	trace                        [traceOps]tracePoint
}

type tracePoint struct{ op, hash *shm.Counter }

// arrange computes where the variable parts lie.
func (b *board) arrange(c Config) {
	b.ranks, b.epoch = c.Ranks, c.Epoch
	b.roundAt = roundUp(offSeats + c.Ranks*seatBytes)
	b.answAt = roundUp(b.roundAt + c.RoundBytes)
	b.totalBytes = roundUp(b.answAt + c.ResultBytes)
}

func roundUp(n int) int { return (n + pageLen - 1) / pageLen * pageLen }

// locate finds the parts in the mapping.
func (b *board) locate(s *shm.Segment, c Config) {
	b.segment, b.spin = s, c.Spin
	b.abort = s.Abort(offAbort)
	b.bell, b.doorbell = s.Word(offBell), s.Word(offDoorbell)
	b.arrived, b.drain = s.Word(offArrived), s.Word(offDrain)
	b.alarm = s.Word(offAlarm)
	b.published, b.roundLen = s.Counter(offPublished), s.Counter(offPublished+8)
	b.resultLen = s.Counter(offResult)
	b.frame = s.Bytes()[b.roundAt : b.roundAt+c.RoundBytes]
	b.answer = s.Bytes()[b.answAt : b.answAt+c.ResultBytes]
	b.seatOf = make([]seat, c.Ranks)
	for r := range b.seatOf {
		at, seat := offSeats+r*seatBytes, &b.seatOf[r]
		seat.beats, seat.answered = s.Counter(at+seatBeats), s.Counter(at+seatAnswered)
		seat.hash, seat.ops = s.Counter(at+seatHash), s.Counter(at+seatOps)
		seat.turns = s.Counter(at + seatTurns)
		seat.thread, seat.guard = s.Counter(at+seatThread), s.Counter(at+seatGuard)
		seat.busy, seat.waited = s.Counter(at+seatBusy), s.Counter(at+seatWaited)
		seat.failed, seat.waiting = s.Word(at+seatFailed), s.Word(at+seatWaiting)
		seat.reasonLen = s.Counter(at + seatReason)
		seat.reason = s.Bytes()[at+seatReason+8 : at+seatReason+8+reasonBytes]
		for i := range seat.trace {
			p := at + seatTrace + 16*i
			seat.trace[i] = tracePoint{op: s.Counter(p), hash: s.Counter(p + 8)}
		}
	}
}

// headerWords is how many words Join checks before it trusts a segment.
const headerWords = 6

func writeHeader(s *shm.Segment, c Config) {
	for i, v := range [headerWords]uint32{
		magic, c.Epoch, uint32(c.Ranks), uint32(c.RoundBytes), uint32(c.ResultBytes), uint32(c.Spin / time.Microsecond),
	} {
		s.Word(offHeader + 4*i).Store(v)
	}
}

func readHeader(s *shm.Segment, epoch uint32) (Config, error) {
	var v [headerWords]uint32
	for i := range v {
		v[i] = s.Word(offHeader + 4*i).Load()
	}
	if v[0] != magic {
		return Config{}, fmt.Errorf("board: segment starts with %#x, want %#x: it is no round board", v[0], magic)
	}
	if v[1] != epoch {
		return Config{}, fmt.Errorf("board: segment is of epoch %d, this rank of %d: %w", v[1], epoch, round.ErrStaleEpoch)
	}
	c := Config{
		Epoch: v[1], Ranks: int(v[2]), RoundBytes: int(v[3]), ResultBytes: int(v[4]), Spin: time.Duration(v[5]) * time.Microsecond,
	}
	return c, c.validate()
}

// Join maps the board that a rank inherited as an open file, and takes the file.
func Join(file *os.File, epoch uint32, rank int) (*Seat, error) {
	segment, err := shm.Open(file)
	if err != nil {
		return nil, err
	}
	s, err := join(segment, epoch, rank)
	if err != nil {
		_ = segment.Close()
	}
	return s, err
}

func join(segment *shm.Segment, epoch uint32, rank int) (*Seat, error) {
	if got := len(segment.Bytes()); got < offSeats {
		return nil, fmt.Errorf("board: segment has %d bytes, want at least %d", got, offSeats)
	}
	c, err := readHeader(segment, epoch)
	if err != nil {
		return nil, err
	}
	if rank < 0 || rank >= c.Ranks {
		return nil, fmt.Errorf("board: rank %d of a group of %d", rank, c.Ranks)
	}
	b := &board{}
	b.arrange(c)
	if got := len(segment.Bytes()); got != b.totalBytes {
		return nil, fmt.Errorf("board: segment has %d bytes, want %d", got, b.totalBytes)
	}
	b.locate(segment, c)
	return &Seat{board: b, seat: &b.seatOf[rank], rank: rank}, nil
}
