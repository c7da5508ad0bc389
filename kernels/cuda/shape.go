package cuda

import (
	"math/bits"

	"github.com/octet-run/octet/kernels"
)

// attentionSpan is the positions by which attention's memory grows, a multiple of
// spanPositions.
const attentionSpan = 256

// spanPositions is src/attention.cu's SPAN: positions of one partial result.
const spanPositions = 64

// PassShape is what the launches of a pass depend on besides the model: passes of
// one shape are one graph. Spans and Words are rounded up, so that a sequence that
// grows changes shape seldom.
type PassShape struct {
	Rows  int
	Spans int // of positions, that attention has memory for
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
// tokens, positions, slots, a view a row, tiles, then page tables and lists of slots.
// Where the first five begin depends on the number of rows alone.
type description struct {
	words                              []int32
	positions, slots, views, tiles, at int // first word of each; at: of the lists
	tile                               int // first word of the next tile
	longest                            int // positions that any row sees
}

const (
	viewWords = 4
	tileWords = 8
	tileRows  = 16 // of a tile at most
)

func viewsAt(b *kernels.Batch) int { return (len(b.Tokens) + len(b.Positions) + len(b.Slots) + 3) &^ 3 }

func tilesAt(b *kernels.Batch) int { return viewsAt(b) + viewWords*passRows(b) }

func listsAt(b *kernels.Batch) int { return tilesAt(b) + tileWords*mostTiles(passRows(b)) }

// mostTiles is how many tiles a pass of so many rows can have: each row may begin
// one, and have one for what it sees alone.
func mostTiles(rows int) int { return 2 * rows }

// describe fills d, whose memory it uses again.
func (d *description) describe(in *kernels.Batch) {
	d.longest = 0
	d.words = append(d.words[:0], in.Tokens...)
	d.positions = len(d.words)
	d.words = append(d.words, in.Positions...)
	d.slots = len(d.words)
	d.words = append(d.words, in.Slots...)
	d.views, d.tiles, d.at = viewsAt(in), tilesAt(in), listsAt(in)
	d.tile = d.tiles
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
	d.addTiles(s)
}

// addTiles groups the rows of s by what they read together: rows of a chain find
// the same slot at every position, those of a tree only in the committed part.
func (d *description) addTiles(s *kernels.Sequence) {
	for lo := 0; lo < s.Rows; lo += tileRows {
		rows := min(tileRows, s.Rows-lo)
		if s.Ancestors == nil {
			d.addTile(s.First+lo, rows, 0, spansOf(s.Committed+lo+rows))
		} else if spans := s.Committed / spanPositions; spans > 0 {
			d.addTile(s.First+lo, rows, 0, spans)
		}
	}
	for i, ancestors := range s.Ancestors {
		d.addTile(s.First+i, 1, s.Committed/spanPositions, spansOf(s.Committed+bits.OnesCount64(ancestors)))
	}
}

func spansOf(positions int) int { return (positions + spanPositions - 1) / spanPositions }

// addTile adds src/attention.cu's Tile: rows from row on, spans from first up to end.
func (d *description) addTile(row, rows, first, end int) {
	tile := d.words[d.tile : d.tile+tileWords]
	tile[0], tile[1], tile[2], tile[3] = int32(row), int32(rows), int32(first), int32(end-first)
	copy(tile[4:], d.words[d.views+viewWords*(row+rows-1):][:viewWords])
	d.tile += tileWords
}
