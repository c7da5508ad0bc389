package transport

import (
	"fmt"
	"time"
	"unsafe"

	"github.com/octet-run/octet/internal/shm"
)

// SharedMemory is one rank's end of a Group. It implements Transport and Rendezvous.
type SharedMemory struct {
	group   *Group
	rank    int
	epoch   uint32
	firstOp uint32
	polling Polling

	epochWord   *shm.Word
	abort       *shm.Abort
	posts       []*shm.Counter   // post flag of each rank
	descriptors [2][]*Descriptor // [parity][rank]
	states      []*shm.Counter
	sleepers    []*shm.Word    // ranks asleep on each rank's post flag
	asleep      []*shm.Word    // each rank: asleep on a signal to it
	outgoing    []*shm.Counter // [to*Tags+tag]
	incoming    []*shm.Counter // [from*Tags+tag]

	arrivals, claims, completions, finish, opened *shm.Counter
	finishSleepers                                *shm.Word

	clock   clock
	arrived int64 // when this rank arrived at the current operation
	skew    time.Duration
}

// Attach is rank's end of the group in its current epoch.
func (g *Group) Attach(rank int, p Polling) (*SharedMemory, error) {
	if rank < 0 || rank >= g.ranks {
		return nil, fmt.Errorf("attach rank %d to a group of %d ranks", rank, g.ranks)
	}
	clock, err := newClock()
	if err != nil {
		return nil, err
	}
	m := &SharedMemory{
		group:          g,
		rank:           rank,
		epoch:          g.Epoch(),
		firstOp:        uint32(g.seg.Counter(headerOff + 24).Load()),
		polling:        p,
		epochWord:      g.seg.Word(epochOff),
		abort:          g.seg.Abort(abortOff),
		arrivals:       g.seg.Counter(arrivalsOff),
		claims:         g.seg.Counter(claimsOff),
		completions:    g.seg.Counter(completionsOff),
		finish:         g.seg.Counter(finishOff),
		opened:         g.seg.Counter(openedOff),
		finishSleepers: g.seg.Word(sleepersOff),
		clock:          clock,
	}
	for r := range g.ranks {
		m.posts = append(m.posts, g.seg.Counter(g.rankOff(r, postLine)))
		for parity := range m.descriptors {
			m.descriptors[parity] = append(m.descriptors[parity], g.descriptor(r, parity))
		}
		m.states = append(m.states, g.seg.Counter(g.rankOff(r, stateLine)))
		m.sleepers = append(m.sleepers, g.seg.Word(g.rankOff(r, sleeperLine)))
		m.asleep = append(m.asleep, g.seg.Word(g.rankOff(r, sleeperLine)+4))
		for tag := range Tags {
			m.outgoing = append(m.outgoing, g.seg.Counter(g.signalOff(rank, r, tag)))
			m.incoming = append(m.incoming, g.seg.Counter(g.signalOff(r, rank, tag)))
		}
	}
	return m, nil
}

// Rank is this end's rank.
func (m *SharedMemory) Rank() int { return m.rank }

// Ranks is the size of the group.
func (m *SharedMemory) Ranks() int { return m.group.ranks }

// Epoch is the epoch that this end belongs to.
func (m *SharedMemory) Epoch() uint32 { return m.epoch }

// SetTimeout changes the deadline of waits to come: ranks start further apart than
// they run. 0 means the default.
func (m *SharedMemory) SetTimeout(d time.Duration) { m.polling.Timeout = d }

// HugePages reports whether the group's buffers lie on huge pages.
func (m *SharedMemory) HugePages() bool { return m.group.HugePages() }

// FirstOp is the number of the epoch's first operation.
func (m *SharedMemory) FirstOp() uint32 { return m.firstOp }

// Capacity is the number of elements in each buffer.
func (m *SharedMemory) Capacity() int { return m.group.capacity }

// Memory is a buffer of operation op.
func (m *SharedMemory) Memory(region Region, owner, peer int, op uint32) []float32 {
	off := m.group.bufferOff(region, owner, peer, int(op&1))
	return unsafe.Slice((*float32)(unsafe.Pointer(&m.group.seg.Bytes()[off])), m.group.capacity)
}

// Post enters op.
func (m *SharedMemory) Post(op uint32, d Descriptor) {
	*m.descriptor(m.rank, op) = d
	m.posts[m.rank].Store(flag(m.epoch, op))
	if m.sleepers[m.rank].Load() != 0 {
		m.posts[m.rank].Low().WakeAll()
	}
}

// descriptor is a rank's descriptor of op, to be read once its post flag was. It is
// ordinary memory, made visible by the flag: with atomic stores, each a barrier,
// pollers would take the line away between any two of them.
func (m *SharedMemory) descriptor(rank int, op uint32) *Descriptor {
	return m.descriptors[op&1][rank]
}

// AwaitPost waits until rank from has entered op and compares its descriptor.
func (m *SharedMemory) AwaitPost(from int, op uint32) error {
	w := wait{flag: m.posts[from], op: op, sleepers: m.sleepers[from], on: from, tag: postTag, phase: Arrive}
	if !m.posted(from, op) {
		begin := time.Now()
		if err := m.await(&w, nil); err != nil {
			return err
		}
		m.skew += time.Since(begin)
	}
	if *m.descriptor(from, op) != *m.descriptor(m.rank, op) {
		return m.mismatch(op)
	}
	return nil
}

// Check compares the descriptors of all ranks that have entered op. A rank that has
// not entered it itself, but exchanges flags with another outside operations, has
// none to compare.
func (m *SharedMemory) Check(op uint32) error {
	if !m.posted(m.rank, op) {
		return nil
	}
	mine := *m.descriptor(m.rank, op)
	for r := range m.posts {
		if m.posted(r, op) && *m.descriptor(r, op) != mine {
			return m.mismatch(op)
		}
	}
	return nil
}

// Signal raises flag tag of op from this rank to another.
func (m *SharedMemory) Signal(to, tag int, op uint32) {
	f := m.outgoing[to*Tags+tag]
	f.Store(flag(m.epoch, op))
	if m.asleep[to].Load() != 0 {
		f.Low().WakeAll()
	}
}

// Await waits for flag tag of op from a rank.
func (m *SharedMemory) Await(from, tag int, op uint32, phase Phase) error {
	w := wait{flag: m.incoming[from*Tags+tag], op: op, sleepers: m.asleep[m.rank], on: from, tag: tag, phase: phase}
	return m.await(&w, nil)
}

// Complete records that this rank is through with op.
func (m *SharedMemory) Complete(op uint32) {
	m.states[m.rank].Store(state{op: op, what: completed}.pack())
}

// Skew is how long this rank has waited for others to enter operations.
func (m *SharedMemory) Skew() time.Duration { return m.skew }

// Abort ends the epoch for all ranks because of rank.
func (m *SharedMemory) Abort(rank int, reason shm.Reason) { m.group.abort(m.epoch, rank, reason) }

// Err is not nil once the epoch was aborted, or the group went on to another.
func (m *SharedMemory) Err() error {
	if err := m.abort.Err(m.epoch); err != nil {
		return err
	}
	if m.epochWord.Load() != m.epoch {
		return &shm.AbortError{Epoch: m.epoch, Rank: -1, Reason: shm.Requested}
	}
	return nil
}
