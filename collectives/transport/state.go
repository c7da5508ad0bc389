package transport

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

// missing is the ranks that keep wait w from ending, at least one. Those that
// have not entered the operation, if any. Otherwise somebody inside it: whoever
// we wait for, or whoever that one waits for in turn, until one that does not
// wait, or whose wait is over though it has not noticed.
func (m *SharedMemory) missing(w *wait) []int {
	if w.on != everyone && !m.posted(m.rank, w.op) { // an exchange between two, outside operations
		return []int{w.on}
	}
	var missing []int
	for r := range m.posts {
		if r != m.rank && !m.posted(r, w.op) {
			missing = append(missing, r)
		}
	}
	if len(missing) > 0 {
		return missing
	}
	if w.on == everyone {
		return m.busy(w.op)
	}
	rank := w.on
	for range m.posts {
		s := m.state(rank)
		if s.op != w.op || s.what != waiting || m.satisfied(rank, s) {
			return []int{rank}
		}
		rank = int(s.on)
	}
	return []int{w.on} // they wait in a circle: a flag was lost
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
