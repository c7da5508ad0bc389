package cpu

import "unsafe"

// Packed x has the rows of one tile together, chunk by chunk, and within a chunk
// the values in the order in which the weights of the format are widened:
// [tile][chunk, row, phase, 16]. Values before and after the row are zero.

// rowTiles is how many tiles the rows make, as equal as the largest allows.
func (p *product) rowTiles() int { return (p.x.Rows + len(p.tiles) - 1) / len(p.tiles) }

// rowTile is the first row and the number of rows of tile i.
func (p *product) rowTile(i int) (first, rows int) {
	tiles := p.rowTiles()
	rows, more := p.x.Rows/tiles, p.x.Rows%tiles
	first = i*rows + min(i, more)
	if i < more {
		rows++
	}
	return first, rows
}

// tileX is where the packed rows of the tile at first begin.
func (p *product) tileX(first int) unsafe.Pointer {
	return unsafe.Add(p.packed, first*p.rowOfX())
}

// rowOfX is the bytes of a packed row.
func (p *product) rowOfX() int { return p.chunks * chunkOf[p.format].weights * 4 }

func (p *product) pack() {
	weights := chunkOf[p.format].weights
	for i := range p.rowTiles() {
		first, rows := p.rowTile(i)
		tile := unsafe.Slice((*float32)(p.tileX(first)), rows*p.chunks*weights)
		for r := range rows {
			p.packRow(tile, p.x.F32Row(first+r), r*weights, rows*weights)
		}
	}
}

// packRow writes a row's chunks at offset, offset+step, ...
func (p *product) packRow(tile, x []float32, offset, step int) {
	weights, words := chunkOf[p.format].weights, chunkOf[p.format].perWord
	lead := p.phase()
	for c := range p.chunks {
		dst := tile[offset+c*step:][:weights]
		lo := c*weights - lead
		if lo < 0 || lo+weights > len(x) {
			clear(dst)
			for i := max(lo, 0); i < min(lo+weights, len(x)); i++ {
				dst[packedAt(i-lo, words)] = x[i]
			}
			continue
		}
		packChunk(dst, x[lo:lo+weights], words)
	}
}

// packedAt is where value i of a chunk goes: value i%words of word i/words,
// of which 16 are widened at once.
func packedAt(i, words int) int {
	word := i / words
	return word/16*16*words + i%words*16 + word%16
}

// packChunk permutes a whole chunk. Arrays, because their bounds are known.
func packChunk(dst, x []float32, words int) {
	switch words {
	case 1:
		copy(dst, x)
	case 2:
		to, from := (*[32]float32)(dst), (*[32]float32)(x)
		for i := range 16 {
			to[i], to[16+i] = from[2*i], from[2*i+1]
		}
	default:
		from := (*[128]float32)(x)
		for j := range 8 {
			to := (*[16]float32)(dst[16*j:])
			for i := range 16 {
				to[i] = from[8*i+j]
			}
		}
	}
}
