package checkpoint

import (
	"bytes"
	"fmt"
	"sync"
	"testing"
)

// fakeWindow is a window of ranks in one process.
type fakeWindow struct {
	mu      sync.Mutex
	met     *sync.Cond
	ranks   int
	halves  [2][]byte
	arrived int
	endsAt  int               // the meeting at which ranks part; 0: never
	spoil   func(half []byte) // called when all have filled one
	ended   bool
}

// fakeEnd is one rank's.
type fakeEnd struct {
	*fakeWindow
	rank, turn int
}

func newFakeWindow(ranks, half int) *fakeWindow {
	w := &fakeWindow{ranks: ranks, halves: [2][]byte{make([]byte, half), make([]byte, half)}}
	w.met = sync.NewCond(&w.mu)
	return w
}

func (e *fakeEnd) Seat() (rank, ranks int) { return e.rank, e.ranks }
func (e *fakeEnd) Half() []byte            { return e.halves[e.turn%2] }

func (e *fakeEnd) Leave() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ended = true
	e.met.Broadcast()
}

func (e *fakeEnd) Meet(uint64) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.turn++
	if e.turn == e.endsAt {
		e.ended = true
	}
	if e.arrived++; !e.ended && e.arrived == e.turn*e.ranks && e.spoil != nil {
		e.spoil(e.halves[(e.turn-1)%2])
	}
	e.met.Broadcast()
	for e.arrived < e.turn*e.ranks && !e.ended {
		e.met.Wait()
	}
	return e.arrived >= e.turn*e.ranks && !e.ended
}

// loadTogether loads three ranks' columns over a window and joins them.
func loadTogether(t *testing.T, f *Files, w *fakeWindow, limit int64) (joined [limitTensors][]byte, meetings [3]int) {
	t.Helper()
	parts := make([][][]byte, len(cuts))
	var all sync.WaitGroup
	meet := newFakeWindow(len(cuts), 0)
	for rank, cut := range cuts {
		all.Go(func() {
			end, limited := &fakeEnd{fakeWindow: w, rank: rank}, &fakeEnd{fakeWindow: meet, rank: rank}
			cfg := LoadConfig{Window: end, Limit: limit, Meet: func() error { limited.Meet(0); return nil }}
			_, tensors := loadCut(t, f, cut[0], cut[1], cfg)
			for _, tensor := range tensors {
				for r := range limitRows {
					parts[rank] = append(parts[rank], tensor.ByteRow(r))
				}
			}
			meetings[rank] = end.turn
		})
	}
	all.Wait()
	for i := range joined {
		for r := range limitRows {
			for rank := range cuts {
				joined[i] = append(joined[i], parts[rank][i*limitRows+r]...)
			}
		}
	}
	return joined, meetings
}

// differing says which tensors are not as the file has them.
func differing(joined [limitTensors][]byte, payload map[string][]byte) (names []string) {
	for i := range joined {
		if name := string(rune('a' + i)); !bytes.Equal(joined[i], payload[name]) {
			names = append(names, name)
		}
	}
	return names
}

// TestColumnsReadTogetherEqualTheFile reads over windows of many sizes, one that holds
// no row included, with and without a limit, by ranks of which one needs nothing, and
// by ranks that part somewhere: within a tensor, at its end, at the last meeting.
func TestColumnsReadTogetherEqualTheFile(t *testing.T) {
	dir, payload := limitFolder(t)
	f := open(t, dir)
	for _, rows := range []int{0, 300, 5 * limitRows} {
		for _, limit := range []int64{0, 1000 * limitRow} {
			w := newFakeWindow(len(cuts), rows*limitRow+7)
			joined, meetings := loadTogether(t, f, w, limit)
			what := fmt.Sprintf("windows of %d rows, limit %d", rows, limit)
			if wrong := differing(joined, payload); wrong != nil {
				t.Errorf("%s: tensors %v are not as in the file", what, wrong)
			}
			if meetings[0] != meetings[1] || meetings[0] != meetings[2] || rows > 0 && meetings[0] <= limitTensors {
				t.Errorf("%s: ranks met %v times", what, meetings)
			}
		}
	}
	for _, endsAt := range []int{1, 2, 6, 11, 21, 43} {
		w := newFakeWindow(len(cuts), 300*limitRow)
		w.endsAt = endsAt
		joined, _ := loadTogether(t, f, w, 0)
		if wrong := differing(joined, payload); wrong != nil {
			t.Errorf("parted at meeting %d: tensors %v are not as in the file", endsAt, wrong)
		}
	}
}

// TestAWindowIsWhereColumnsComeFrom is the control of the test above.
func TestAWindowIsWhereColumnsComeFrom(t *testing.T) {
	dir, payload := limitFolder(t)
	f := open(t, dir)
	w := newFakeWindow(len(cuts), 300*limitRow)
	w.spoil = func(half []byte) { half[0] ^= 1 }
	joined, _ := loadTogether(t, f, w, 0)
	if wrong := differing(joined, payload); len(wrong) != limitTensors {
		t.Errorf("a window that is spoilt shows in tensors %v only", wrong)
	}
}
