package tokenizer

// symbol is a part of a piece: a token in the making.
type symbol struct {
	id         int32
	start, end int32 // bytes of the piece
	prev, next int32 // neighbours, none at the ends
	rank       uint32
	into       int32 // what joining with next makes, at rank
}

const (
	none = -1
	dead = -2 // prev of a symbol that was joined into another

	// Up to this many symbols a scan for the lowest rank beats a heap.
	scanSymbols = 48
)

// merger joins the symbols of one piece. It is scratch, used again and again.
type merger struct {
	text    string
	joins   joiner
	symbols []symbol
	heap    []uint64 // rank<<32 | index of the left symbol; stale entries are skipped
}

func (w *merger) reset(text string, joins joiner) {
	w.text, w.joins = text, joins
	w.symbols = w.symbols[:0]
	w.heap = w.heap[:0]
}

func (w *merger) add(id int32, start, end int) {
	n := int32(len(w.symbols))
	w.symbols = append(w.symbols, symbol{
		id: id, start: int32(start), end: int32(end), prev: n - 1, next: n + 1, rank: noRank, into: noToken,
	})
}

func (w *merger) last() *symbol {
	if len(w.symbols) == 0 {
		return nil
	}
	return &w.symbols[len(w.symbols)-1]
}

func (w *merger) run() {
	if len(w.symbols) < 2 {
		return
	}
	w.symbols[len(w.symbols)-1].next = none
	if len(w.symbols) <= scanSymbols {
		w.runScan()
		return
	}
	w.runHeap()
}

// append appends the tokens that are left and drops the piece.
func (w *merger) append(dst []int32) []int32 {
	for i := range w.symbols {
		if w.symbols[i].prev != dead {
			dst = append(dst, w.symbols[i].id)
		}
	}
	w.text = ""
	return dst
}

// rate looks up the pair that starts at l.
func (w *merger) rate(l int32) {
	s := &w.symbols[l]
	s.rank, s.into = noRank, noToken
	if s.next != none {
		s.rank, s.into = w.joins.join(w.text, s, &w.symbols[s.next])
	}
}

// joinAt joins symbol l with its right neighbour and rates the two pairs that changed.
func (w *merger) joinAt(l int32) {
	s := &w.symbols[l]
	r := &w.symbols[s.next]
	s.id, s.end, s.next = s.into, r.end, r.next
	r.prev = dead
	if s.next != none {
		w.symbols[s.next].prev = l
	}
	w.rate(l)
	if s.prev != none {
		w.rate(s.prev)
	}
}

func (w *merger) runScan() {
	for i := range w.symbols {
		w.rate(int32(i))
	}
	for {
		best, at := uint32(noRank), int32(none)
		for i := int32(0); i != none; i = w.symbols[i].next {
			if w.symbols[i].rank < best {
				best, at = w.symbols[i].rank, i
			}
		}
		if at == none {
			return
		}
		w.joinAt(at)
	}
}

func (w *merger) runHeap() {
	for i := range w.symbols {
		w.rate(int32(i))
		if w.symbols[i].rank != noRank {
			w.heap = append(w.heap, candidate(w.symbols[i].rank, int32(i)))
		}
	}
	for i := len(w.heap)/2 - 1; i >= 0; i-- {
		w.sink(i)
	}
	for len(w.heap) > 0 {
		rank, at := uint32(w.heap[0]>>32), int32(uint32(w.heap[0]))
		w.pop()
		s := &w.symbols[at]
		if s.prev == dead || s.rank != rank {
			continue
		}
		w.joinAt(at)
		w.push(at)
		if s.prev != none {
			w.push(s.prev)
		}
	}
}

func candidate(rank uint32, at int32) uint64 { return uint64(rank)<<32 | uint64(uint32(at)) }

// push offers the pair that starts at l.
func (w *merger) push(l int32) {
	if w.symbols[l].rank == noRank {
		return
	}
	w.heap = append(w.heap, candidate(w.symbols[l].rank, l))
	for i := len(w.heap) - 1; i > 0; {
		parent := (i - 1) / 2
		if w.heap[parent] <= w.heap[i] {
			return
		}
		w.heap[parent], w.heap[i] = w.heap[i], w.heap[parent]
		i = parent
	}
}

func (w *merger) pop() {
	last := len(w.heap) - 1
	w.heap[0] = w.heap[last]
	w.heap = w.heap[:last]
	w.sink(0)
}

// sink moves entry i down to where the heap is in order again.
func (w *merger) sink(i int) {
	for {
		child := 2*i + 1
		if child >= len(w.heap) {
			return
		}
		if child+1 < len(w.heap) && w.heap[child+1] < w.heap[child] {
			child++
		}
		if w.heap[i] <= w.heap[child] {
			return
		}
		w.heap[i], w.heap[child] = w.heap[child], w.heap[i]
		i = child
	}
}
