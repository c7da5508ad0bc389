package transport

import (
	"time"

	"github.com/octet-run/octet/internal/shm"
)

// maxChunks is more than the chunks of any operation.
const maxChunks = 0xffff

// claims is the word from which chunks are claimed: epoch, operation, next chunk.
// The epoch's low half is enough to tell it from its neighbours.
func claims(epoch, op uint32, next int) uint64 {
	return uint64(uint16(epoch))<<48 | uint64(op)<<16 | uint64(uint16(next))
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
	m.claims.Store(claims(m.epoch, op, 0))
	return nil
}

// Claim takes a chunk of op, of chunks in all, if one is left.
func (m *SharedMemory) Claim(op uint32, chunks int) (chunk int, ok bool) {
	first := claims(m.epoch, op, 0)
	for {
		v := m.claims.Load()
		next := v - first
		if next >= uint64(chunks) { // none left, or another operation's word
			return 0, false
		}
		m.states[m.rank].Store(state{op: op, what: running}.pack())
		if m.claims.CompareAndSwap(v, v+1) {
			return int(next), true
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
