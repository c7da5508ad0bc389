//go:build cuda

package cuda

import (
	"math/bits"

	"github.com/octet-run/octet/kernels"
)

// batch is the device's copy of a kernels.Batch, one array of words: tokens,
// positions, slots, a view a row, then page tables and lists of slots.
type batch struct {
	rows      int
	memory    buffer
	words     []int32
	tokens    uintptr
	positions uintptr
	slots     uintptr
	views     uintptr // [rows] of src/attention.cu's View
	lists     uintptr // what views point into
	longest   int     // positions that any row sees
}

const viewWords = 4

// BeginPass makes the scratch of the last pass free and carries batch to the device.
func (b *Backend) BeginPass(in *kernels.Batch) {
	b.scratch.taken = 0
	d := &b.batch
	d.rows = len(in.Tokens)
	d.longest = 0
	d.words = append(d.words[:0], in.Tokens...)
	positionsAt := len(d.words)
	d.words = append(d.words, in.Positions...)
	slotsAt := len(d.words)
	d.words = append(d.words, in.Slots...)
	viewsAt := (len(d.words) + 3) &^ 3
	rows := max(len(in.Tokens), len(in.Positions), len(in.Slots))
	listsAt := viewsAt + viewWords*rows
	d.words = append(d.words, make([]int32, listsAt-len(d.words))...)
	for i := range in.Sequences {
		d.addSequence(in, &in.Sequences[i], viewsAt, listsAt)
	}
	d.rows = rows
	if need := 4 * len(d.words); need > d.memory.size {
		if d.memory.p != 0 {
			b.fail(b.device.Sync())
			b.fail(b.device.Free(d.memory.p))
			d.memory = buffer{}
		}
		p, err := b.device.Alloc(2 * need)
		if err != nil {
			b.fail(err)
			return
		}
		d.memory = buffer{p: p, size: 2 * need}
	}
	at := func(word int) uintptr { return d.memory.p + uintptr(4*word) }
	d.tokens, d.positions, d.slots, d.views, d.lists = at(0), at(positionsAt), at(slotsAt), at(viewsAt), at(listsAt)
	// The copy of the last pass must have left words before they change again:
	// the driver copies pageable memory before it returns.
	b.send(d.memory.p, d.words)
}

// addSequence appends the page table of s and the slots that its rows see beyond
// it, and fills in the rows' views.
func (d *batch) addSequence(in *kernels.Batch, s *kernels.Sequence, viewsAt, listsAt int) {
	pages := len(d.words) - listsAt
	d.words = append(d.words, s.Blocks...)
	own := in.Slots[s.First : s.First+s.Rows]
	tail := len(d.words) - listsAt
	if s.Ancestors == nil {
		d.words = append(d.words, own...)
	}
	for i := range s.Rows {
		count := i + 1
		if s.Ancestors != nil {
			tail, count = len(d.words)-listsAt, bits.OnesCount64(s.Ancestors[i])
			for set := s.Ancestors[i]; set != 0; set &= set - 1 {
				j := bits.TrailingZeros64(set)
				if j < len(s.Scratch) {
					d.words = append(d.words, s.Scratch[j])
				} else {
					d.words = append(d.words, own[j-len(s.Scratch)])
				}
			}
		}
		view := d.words[viewsAt+viewWords*(s.First+i):]
		view[0], view[1], view[2], view[3] = int32(s.Committed), int32(pages), int32(tail), int32(count)
		d.longest = max(d.longest, s.Committed+count)
	}
}
