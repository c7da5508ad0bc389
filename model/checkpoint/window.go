package checkpoint

import (
	"hash/fnv"
	"io"
)

// Window is memory that all ranks of a group share while they load the same
// checkpoint. They take turns with its two halves: each fills its part of a half, all
// meet, each takes what it needs. Ranks that no longer come together load by
// themselves.
type Window interface {
	// Seat is the rank's place among all.
	Seat() (rank, ranks int)
	// Half is the memory of the next meeting.
	Half() []byte
	// Meet waits for every rank. tag says what is in the half. False is for good.
	Meet(tag uint64) bool
	// Leave makes this and every other rank's Meet return false.
	Leave()
}

// A meeting costs what reading some tens of kilobytes costs: tensors smaller than
// this are not worth one.
const leastShared = 64 << 10

// copyShared copies columns of n rows to dst together with all other ranks, which
// call it for the same rows. A rank by itself has to read whole rows to get its part of
// each, so that all of them read everything; here every row is read once. It returns
// how many rows it has done: the ranks may part before the end.
func (l *Loader) copyShared(dst []byte, c columns, n int) (int, error) {
	w := l.cfg.Window
	perHalf := len(w.Half()) / c.row
	if n*c.row < leastShared || perHalf == 0 {
		return 0, nil
	}
	rank, ranks := w.Seat()
	done := 0
	for done < n {
		rows := min(perHalf, n-done)
		half, begin := w.Half()[:rows*c.row], c.begin+int64(done*c.row)
		lo, hi := rows*rank/ranks*c.row, rows*(rank+1)/ranks*c.row
		if err := l.read(c.tensor, half[lo:hi], begin+int64(lo)); err != nil {
			return done, err
		}
		if !w.Meet(tag(c.tensor.Name, begin)) {
			// Another rank may yet read what is in the window: this one is done with it.
			l.cfg.Window = nil
			break
		}
		c.gather(dst[done*c.part:(done+rows)*c.part], half)
		done += rows
	}
	return done, nil
}

// tag names a part of a tensor.
func tag(name string, begin int64) uint64 {
	h := fnv.New64a()
	_, _ = io.WriteString(h, name)
	return h.Sum64() ^ uint64(begin)*0x9e3779b97f4a7c15
}

// endWindow waits until no rank reads the window any more.
func (l *Loader) endWindow() {
	if l.cfg.Window != nil {
		l.cfg.Window.Meet(0)
	}
}
