package cuda

import (
	"math/bits"

	"github.com/octet-run/octet/kernels"
)

// attentionSpan is src/attention.cu's SPAN: positions of one partial result.
const attentionSpan = 256

// PassShape is what the launches of a pass depend on besides the model: passes of
// one shape are one graph. Spans and Words are rounded up, so that a sequence that
// grows changes shape seldom.
type PassShape struct {
	Rows  int
	Spans int // of positions, that attention is split into
	Words int // of the batch's description
}

// ShapeOf is the shape of a pass over b.
func ShapeOf(b *kernels.Batch) PassShape {
	rows, words, longest := passRows(b), 0, 0
	for i := range b.Sequences {
		s := &b.Sequences[i]
		words += len(s.Blocks)
		if s.Ancestors == nil {
			words += s.Rows
		}
		for r := range s.Rows {
			seen := r + 1
			if s.Ancestors != nil {
				seen = bits.OnesCount64(s.Ancestors[r])
				words += seen
			}
			longest = max(longest, s.Committed+seen)
		}
	}
	return PassShape{
		Rows: rows, Spans: coarse(max(1, (longest+attentionSpan-1)/attentionSpan)),
		Words: max(leastWords, coarse(listsAt(b)+words)),
	}
}

const leastWords = 1024

// coarse rounds up to three significant bits.
func coarse(n int) int {
	drop := max(0, bits.Len(uint(n))-3)
	return (n + 1<<drop - 1) >> drop << drop
}

// passRows is the number of rows that a pass over b can have.
func passRows(b *kernels.Batch) int { return max(len(b.Tokens), len(b.Positions), len(b.Slots)) }

// description is a kernels.Batch as the device reads it, one array of words:
// tokens, positions, slots, a view a row, then page tables and lists of slots.
// Where the first four begin depends on the number of rows alone.
type description struct {
	words                       []int32
	positions, slots, views, at int // first word of each; at: of the lists
	longest                     int // positions that any row sees
}

const viewWords = 4

func viewsAt(b *kernels.Batch) int { return (len(b.Tokens) + len(b.Positions) + len(b.Slots) + 3) &^ 3 }

func listsAt(b *kernels.Batch) int { return viewsAt(b) + viewWords*passRows(b) }

// describe fills d, whose memory it uses again.
func (d *description) describe(in *kernels.Batch) {
	d.longest = 0
	d.words = append(d.words[:0], in.Tokens...)
	d.positions = len(d.words)
	d.words = append(d.words, in.Positions...)
	d.slots = len(d.words)
	d.words = append(d.words, in.Slots...)
	d.views, d.at = viewsAt(in), listsAt(in)
	d.words = append(d.words, make([]int32, d.at-len(d.words))...)
	for i := range in.Sequences {
		d.addSequence(in, &in.Sequences[i])
	}
}

// addSequence appends the page table of s and the slots that its rows see beyond
// it, and fills in the rows' views.
func (d *description) addSequence(in *kernels.Batch, s *kernels.Sequence) {
	pages := len(d.words) - d.at
	d.words = append(d.words, s.Blocks...)
	own := in.Slots[s.First : s.First+s.Rows]
	tail := len(d.words) - d.at
	if s.Ancestors == nil {
		d.words = append(d.words, own...)
	}
	for i := range s.Rows {
		count := i + 1
		if s.Ancestors != nil {
			tail, count = len(d.words)-d.at, bits.OnesCount64(s.Ancestors[i])
			for set := s.Ancestors[i]; set != 0; set &= set - 1 {
				j := bits.TrailingZeros64(set)
				if j < len(s.Scratch) {
					d.words = append(d.words, s.Scratch[j])
				} else {
					d.words = append(d.words, own[j-len(s.Scratch)])
				}
			}
		}
		view := d.words[d.views+viewWords*(s.First+i):]
		view[0], view[1], view[2], view[3] = int32(s.Committed), int32(pages), int32(tail), int32(count)
		d.longest = max(d.longest, s.Committed+count)
	}
}
