package cpu

import "unsafe"

// maxOutputs is the most outputs a tile has.
const maxOutputs = 4

// tileWork is a worker's memory for tiles.
type tileWork struct {
	tail      unsafe.Pointer // [output, chunk] zero-padded
	tailScale unsafe.Pointer // [output, 4] bf16
	scales    unsafe.Pointer // FP8: [chunk, output] f32
	lanes     unsafe.Pointer // [row, output, 16] f32
	aligned   unsafe.Pointer // FP8 that begins inside a block: [output, chunks]

	scaleRows    [maxOutputs]int // what scales were laid out for
	scaleOutputs int
}

func (p *product) tileWork(l *layout) (t tileWork) {
	t.tail = l.part(maxOutputs, chunkOf[formatFP8].bytes)
	t.tailScale = l.part(maxOutputs, 8)
	t.lanes = l.part(len(p.tiles)*maxOutputs*16, 4)
	if p.format == formatFP8 {
		t.scales = l.part(p.chunks*maxOutputs, 4)
		if p.phase() > 0 {
			t.aligned = l.part(maxOutputs, p.chunks*blockSize)
		}
	}
	return t
}

// tilesOf computes outputs [lo, hi) of all rows. A tile's outputs are a part of
// [lo, hi) away from each other, so that its weights come in a few long streams,
// which prefetching follows from one tile to the next. Rows whose x stays in the
// cache take turns at the weights of a tile.
func (p *product) tilesOf(a *tileArgs, work tileWork, lo, hi int) {
	tiles, turns := p.rowTiles(), p.turns()
	for first := 0; first < tiles; first += turns {
		end := min(first+turns, tiles)
		_, rows := p.rowTile(first)
		outputs := p.tiles[rows-1].outputs // of all row tiles
		step := (hi - lo) / outputs
		for o := lo; o < lo+step; o++ {
			p.takeTurns(a, &work, first, end, o, outputs, step)
		}
		for o := lo + outputs*step; o < hi; o++ {
			p.takeTurns(a, &work, first, end, o, 1, 0)
		}
	}
}

// takeTurns computes outputs o, o+step, ... of row tiles [first, end).
func (p *product) takeTurns(a *tileArgs, work *tileWork, first, end, o, outputs, step int) {
	p.arguments(a, work, o, outputs, step)
	for i := first; i < end; i++ {
		row, rows := p.rowTile(i)
		a.x = p.tileX(row)
		a.dst = unsafe.Add(p.dst.Host, (row*p.dst.Stride+o)*4)
		if outputs > 1 {
			call(p.tiles[rows-1].many, a)
		} else {
			call(p.tiles[rows-1].one, a)
		}
	}
}

// cachedBytes is how much packed x may stay in the second-level cache while its
// rows take turns.
const cachedBytes = 512 << 10

// turns is how many row tiles' x the cache holds.
func (p *product) turns() int {
	_, rows := p.rowTile(0)
	return max(1, cachedBytes/(rows*p.chunks*chunkOf[p.format].weights*4))
}

// arguments points a at the weights of outputs o, o+step, ...
func (p *product) arguments(a *tileArgs, work *tileWork, o, outputs, step int) {
	data, chunk := p.w.Data, chunkOf[p.format]
	size := data.DType.Bytes()
	*a = tileArgs{
		w:         unsafe.Add(data.Host, o*data.Stride*size),
		wStride:   uintptr(step * data.Stride * size),
		lanes:     work.lanes,
		dstStride: uintptr(p.dst.Stride * 4),
		dstStep:   uintptr(step * 4),
	}
	rowBytes := data.Cols * size
	switch p.format {
	case formatINT4:
		scale := p.w.Scale
		a.scale, a.scaleStride = unsafe.Add(scale.Host, o*scale.Stride*2), uintptr(step*scale.Stride*2)
	case formatFP8:
		p.scales(work, o, outputs, step)
		a.scale = work.scales
		if p.phase() > 0 {
			p.align(a, work, outputs, rowBytes)
			return
		}
	}
	a.chunks = rowBytes / chunk.bytes
	if rest := rowBytes % chunk.bytes; rest > 0 {
		a.tail, a.tailScale = work.tail, work.tailScale
		copyRows(work.tail, chunk.bytes, unsafe.Add(a.w, rowBytes-rest), int(a.wStride), rest, outputs)
		if p.format == formatINT4 {
			groups := rest * 2 / groupSize
			copyRows(work.tailScale, 8, unsafe.Add(a.scale, a.chunks*8), int(a.scaleStride), groups*2, outputs)
		}
	}
}

// scales lays out the scales of each block for all outputs of a tile.
func (p *product) scales(work *tileWork, o, outputs, step int) {
	first := p.w.ColPhase / blockSize
	dst := unsafe.Slice((*float32)(work.scales), p.chunks*outputs)
	for i := range outputs {
		block := (p.w.RowPhase + o + i*step) / blockSize
		if outputs == work.scaleOutputs && block == work.scaleRows[i] {
			continue
		}
		work.scaleRows[i] = block
		row := p.w.Scale.F32Row(block)[first:][:p.chunks]
		for c, scale := range row {
			dst[c*outputs+i] = scale * f8Scale
		}
	}
	work.scaleOutputs = outputs
}

// align copies weights that begin inside a block to where whole blocks are.
func (p *product) align(a *tileArgs, work *tileWork, outputs, rowBytes int) {
	width := p.chunks * blockSize
	for i := range outputs {
		dst := unsafe.Slice((*byte)(unsafe.Add(work.aligned, i*width)), width)
		clear(dst)
		copy(dst[p.phase():], unsafe.Slice((*byte)(unsafe.Add(a.w, i*int(a.wStride))), rowBytes))
	}
	a.w, a.wStride, a.chunks = work.aligned, uintptr(width), p.chunks
}

// copyRows copies n bytes of each row and fills up with zeros to the stride.
func copyRows(dst unsafe.Pointer, dstStride int, src unsafe.Pointer, srcStride, n, rows int) {
	for i := range rows {
		to := unsafe.Slice((*byte)(unsafe.Add(dst, i*dstStride)), dstStride)
		clear(to[copy(to, unsafe.Slice((*byte)(unsafe.Add(src, i*srcStride)), n)):])
	}
}
