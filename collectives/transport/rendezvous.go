package transport

import (
	"time"

	"github.com/octet-run/octet/internal/shm"
)

// maxChunks is more than the chunks of any operation.
const maxChunks = 0xffff

// claims is the word from which chunks are claimed: epoch, operation, how many are
// taken from the front and how many from the back. Low halves are enough to tell
// epochs and operations from their neighbours.
func claims(epoch, op uint32, front, back int) uint64 {
	return uint64(uint16(epoch))<<48 | uint64(uint16(op))<<32 | uint64(uint16(back))<<16 | uint64(uint16(front))
}

// Arrive counts this rank into op and reports whether it is the last. The count
// starts again before the operation is finished, so nobody is early for the next.
func (m *SharedMemory) Arrive(uint32) (last bool) {
	for {
		v := m.arrivals.Load()
		if uint32(v>>32) != m.epoch {
			return false // the group went on without us; the wait will say so
		}
		n := uint32(v) + 1
		last = int(n) == m.group.ranks
		if last {
			n = 0
		}
		m.arrived = m.clock.now()
		if m.arrivals.CompareAndSwap(v, flag(m.epoch, n)) {
			return last
		}
	}
}

// Open offers the chunks of op to all ranks, if all are in it and agree on it.
func (m *SharedMemory) Open(op uint32) error {
	for r := range m.posts {
		if !m.posted(r, op) {
			m.Abort(r, shm.OutOfStep)
			return &ArrivalError{Rank: r, Op: op}
		}
	}
	if err := m.Check(op); err != nil {
		return err
	}
	m.opened.Store(uint64(m.arrived))
	m.completions.Store(0)
	m.claims.Store(claims(m.epoch, op, 0, 0))
	return nil
}

// Claim takes a chunk of op, of chunks in all, if one is left. The lower half of the
// ranks begins at the front, the upper half at the back: where each half has
// processors of its own, a chunk tends to be done where it was done before, and its
// lines are still there.
func (m *SharedMemory) Claim(op uint32, chunks int) (chunk int, ok bool) {
	first := claims(m.epoch, op, 0, 0)
	upper := 2*m.rank >= m.group.ranks
	for {
		v := m.claims.Load()
		front, back := int(uint16(v)), int(uint16(v>>16))
		if (v^first)>>32 != 0 || front+back >= chunks { // another operation's word, or none left
			return 0, false
		}
		m.states[m.rank].Store(state{op: op, what: running}.pack())
		next, chunk := claims(m.epoch, op, front+1, back), front
		if upper {
			next, chunk = claims(m.epoch, op, front, back+1), chunks-1-back
		}
		if m.claims.CompareAndSwap(v, next) {
			return chunk, true
		}
	}
}

// Finish records that a claimed chunk is done. With the last, everybody is woken:
// once, and only if somebody sleeps.
func (m *SharedMemory) Finish(op uint32, chunks int) {
	if m.completions.Add(1) != uint64(chunks) {
		return
	}
	m.finish.Store(flag(m.epoch, op))
	if m.finishSleepers.Load() != 0 {
		m.finish.Low().WakeAll()
	}
}

// AwaitFinish waits until all chunks of op are done.
func (m *SharedMemory) AwaitFinish(op uint32, help func() bool) error {
	w := wait{flag: m.finish, op: op, sleepers: m.finishSleepers, on: everyone, tag: finishTag, phase: Arrive}
	if err := m.await(&w, help); err != nil {
		return err
	}
	m.skew += max(0, time.Duration(int64(m.opened.Load())-m.arrived))
	return nil
}
