package transport

import (
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"github.com/octet-run/octet/internal/shm"
)

// windows is each rank's end of a group's window.
func windows(t *testing.T, ranks int) (*Group, []*Window) {
	g := newGroup(t, Config{Ranks: ranks, MaxRows: 2, MaxWidth: 1500, Epoch: 1, FirstOp: 1})
	ends := make([]*Window, ranks)
	for r := range ends {
		ends[r] = g.Window(r, nil)
	}
	return g, ends
}

// together runs do for every rank at once.
func together(ends []*Window, do func(rank int, w *Window)) {
	var all sync.WaitGroup
	for r, w := range ends {
		all.Go(func() { do(r, w) })
	}
	all.Wait()
}

// fillAndCheck is one rank's meetings: it fills its part and finds every rank's.
func fillAndCheck(w *Window, turns int, seed uint64, meet func(turn int) bool) (wrong int) {
	rank, ranks := w.Seat()
	random := rand.New(rand.NewPCG(seed, uint64(rank)))
	for turn := range turns {
		half := w.Half()
		lo, hi := len(half)*rank/ranks, len(half)*(rank+1)/ranks
		for i := lo; i < hi; i++ {
			half[i] = byte(turn + rank)
		}
		if !meet(turn) {
			return wrong + 1
		}
		for range random.IntN(3) {
			runtime.Gosched()
		}
		for r := range ranks {
			for _, at := range []int{len(half) * r / ranks, len(half)*(r+1)/ranks - 1} {
				if half[at] != byte(turn+r) {
					wrong++
				}
			}
		}
	}
	return wrong
}

func TestEveryRankFindsInTheWindowWhatAllFilledIn(t *testing.T) {
	for _, ranks := range []int{2, 3, 8} {
		_, ends := windows(t, ranks)
		together(ends, func(rank int, w *Window) {
			w.waits = math.MaxInt // however busy the machine is
			if wrong := fillAndCheck(w, 100, 1, func(turn int) bool { return w.Meet(uint64(turn)) }); wrong != 0 {
				t.Errorf("rank %d of %d: %d parts are not what was filled in", rank, ranks, wrong)
			}
		})
	}
}

// TestAWindowWithoutMeetingsIsFoundOut is the control of the test above: one rank
// after the other, nobody finds what the later ones fill in.
func TestAWindowWithoutMeetingsIsFoundOut(t *testing.T) {
	_, ends := windows(t, 3)
	if fillAndCheck(ends[0], 2, 1, func(int) bool { return true }) == 0 {
		t.Error("a rank alone found what others had not filled in")
	}
}

func TestAWindowEndsForAll(t *testing.T) {
	cases := []struct {
		name string
		last func(g *Group, w *Window) bool // what rank 2 does while the others meet
	}{
		{"when a rank does not come", func(*Group, *Window) bool { return false }},
		{"when a rank has something else in hand", func(_ *Group, w *Window) bool { return w.Meet(8) }},
		{"when a rank leaves", func(_ *Group, w *Window) bool { w.Leave(); return w.Meet(7) }},
		{"when the epoch is aborted", func(g *Group, _ *Window) bool { g.Abort(2, shm.Requested); return false }},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			g, ends := windows(t, 3)
			beats := make([]int, 3)
			for r, w := range ends {
				w.waits = 20
				w.beat = func() { beats[r]++ }
			}
			together(ends, func(rank int, w *Window) {
				met := false
				if rank == 2 {
					met = c.last(g, w)
				} else {
					met = w.Meet(7)
				}
				if met {
					t.Errorf("rank %d met the others", rank)
				}
			})
			for rank, w := range ends {
				if w.Meet(7) {
					t.Errorf("rank %d met the others after the end", rank)
				}
			}
			if c.name == "when a rank does not come" && beats[0]+beats[1] == 0 {
				t.Error("nobody heard that a rank waits")
			}
		})
	}
}
