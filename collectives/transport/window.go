package transport

import (
	"time"

	"github.com/octet-run/octet/internal/shm"
)

// Window is memory that the ranks of a group share while they load their weights:
// each fills a part of what all need, and they meet, and each takes its own out of
// the whole. It uses the group's buffers, so it ends before the group's first
// reduction.
//
// It has two halves, used in turns. A rank that meets has taken what it wanted from
// the half before, hence a half is free again when the meeting after its own is over.
//
// A Window is an economy, never a condition: a rank that waits too long, or finds the
// others with something else in hand, leaves for good, and so do the others when they
// see it. Whoever left works by itself.
type Window struct {
	group  *Group
	rank   int
	beat   func()
	turn   uint32    // the next meeting
	tags   [2]uint64 // of this rank's even and odd meetings
	gone   bool
	waits  int // how many waits a meeting may take
	halves [2][]byte

	arrivals, left *shm.Word
	sums           [2]*shm.Counter // of all ranks' tags
}

const (
	// halfBytes stay in a core's own cache while they are taken apart.
	halfBytes = 1 << 20
	// A meeting takes at most windowWaits waits of at most windowWait.
	windowWaits = 2000
	windowWait  = 5 * time.Millisecond
)

// Window is rank's end. It is for an epoch in which all ranks load, once. beat, if not nil,
// hears that the rank waits.
func (g *Group) Window(rank int, beat func()) *Window {
	if beat == nil {
		beat = func() {}
	}
	w := &Window{
		group: g, rank: rank, beat: beat, waits: windowWaits,
		arrivals: g.seg.Word(windowOff), left: g.seg.Word(windowOff + 4),
		sums: [2]*shm.Counter{g.seg.Counter(windowOff + 8), g.seg.Counter(windowOff + 16)},
	}
	// The partials of all ranks lie behind one another.
	first, size := g.bufferOff(Partial, 0, 0, 0), min(halfBytes, g.ranks*g.bufferBytes())
	for i := range w.halves {
		w.halves[i] = g.seg.Bytes()[first+i*size:][:size:size]
	}
	return w
}

// Seat is the rank's place among all.
func (w *Window) Seat() (rank, ranks int) { return w.rank, w.group.ranks }

// Half is the memory of the next meeting.
func (w *Window) Half() []byte { return w.halves[w.turn%2] }

// Meet waits for all ranks. tag says what the half was filled with. It is false, now
// and from then on, where the ranks do not come together or their tags differ.
func (w *Window) Meet(tag uint64) bool {
	if w.gone || w.left.Load() != 0 {
		w.Leave()
		return false
	}
	ranks, parity := uint32(w.group.ranks), w.turn%2
	w.tags[parity] += tag
	w.sums[parity].Add(tag)
	w.turn++
	all := w.turn * ranks
	arrived := w.arrivals.Add(1)
	if arrived == all {
		w.arrivals.WakeAll()
	}
	for wait := 0; int32(arrived-all) < 0; wait++ {
		if w.left.Load() != 0 || wait == w.waits || w.group.Err() != nil {
			w.Leave()
			return false
		}
		w.arrivals.Block(arrived, windowWait)
		w.beat()
		arrived = w.arrivals.Load()
	}
	// Nobody adds to this sum again before this rank is at the next meeting.
	if w.sums[parity].Load() != w.tags[parity]*uint64(ranks) {
		w.Leave()
		return false
	}
	return true
}

// Leave ends the window for all ranks.
func (w *Window) Leave() {
	if w.gone {
		return
	}
	w.gone = true
	w.left.Store(1)
	w.arrivals.WakeAll()
}
