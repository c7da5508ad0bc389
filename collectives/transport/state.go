package transport

import "slices"

// state is what a rank is doing, for others to find out whom to blame.
type state struct {
	op   uint32
	what activity
	on   uint8  // waiting: for this rank
	tag  uint16 // waiting: for this flag of it
}

type activity uint8

const (
	running   activity = iota // inside op, not waiting
	waiting                   // inside op, for a flag
	completed                 // through with op
)

func (s state) pack() uint64 {
	return uint64(s.op)<<32 | uint64(s.what)<<24 | uint64(s.on)<<16 | uint64(s.tag)
}

func (m *SharedMemory) state(rank int) state {
	v := m.states[rank].Load()
	return state{op: uint32(v >> 32), what: activity(v >> 24), on: uint8(v >> 16), tag: uint16(v)}
}

// missing is the ranks that keep wait w from ending, at least one: those that have
// not entered the operation, or else whoever was to raise the flag. Of these, none
// that itself waits is to blame, but whoever it waits for.
func (m *SharedMemory) missing(w *wait) []int {
	if w.on != everyone && !m.posted(m.rank, w.op) { // an exchange between two, outside operations
		return []int{w.on}
	}
	var missing []int
	for r := range m.posts {
		if r == m.rank || m.posted(r, w.op) {
			continue
		}
		if c := m.culprit(r); !slices.Contains(missing, c) {
			missing = append(missing, c)
		}
	}
	switch {
	case len(missing) > 0:
		slices.Sort(missing)
		return missing
	case w.on == everyone:
		return m.busy(w.op)
	}
	return []int{m.culprit(w.on)}
}

// culprit is rank, or whoever it waits for in turn, until one that does not wait, or
// whose wait is over though it has not noticed, or that never told the others that it
// is there. It may wait in an operation that others are through with.
func (m *SharedMemory) culprit(rank int) int {
	at := rank
	for range m.posts {
		s := m.state(at)
		if s.what != waiting || m.satisfied(at, s) || !m.posted(at, s.op) {
			return at
		}
		if s.on == everyone {
			return m.busy(s.op)[0]
		}
		at = int(s.on)
	}
	return rank // they wait in a circle: a flag was lost
}

// busy is the ranks that are inside op and do not wait.
func (m *SharedMemory) busy(op uint32) []int {
	var busy []int
	for r := range m.posts {
		if s := m.state(r); r != m.rank && (s.op != op || s.what == running) {
			busy = append(busy, r)
		}
	}
	if len(busy) == 0 {
		return []int{m.rank}
	}
	return busy
}

// satisfied reports whether the flag that rank waits for is raised.
func (m *SharedMemory) satisfied(rank int, s state) bool {
	switch s.tag {
	case postTag:
		return m.posted(int(s.on), s.op)
	case finishTag:
		return m.reached(m.finish, s.op)
	}
	g := m.group
	return m.reached(g.seg.Counter(g.signalOff(int(s.on), rank, int(s.tag))), s.op)
}
