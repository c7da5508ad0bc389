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

// split says how tiles share the outputs: a tile's are p.steps away from each other,
// so that weights come in a few long streams, which go on in the next tile, and in
// the next unit of the same worker.
func (p *product) split() {
	p.outputs = 1
	if p.format != noFormat {
		_, rows := p.rowTile(0)
		p.outputs = p.tiles[rows-1].outputs // of all row tiles
	}
	p.steps = p.w.Out / p.outputs
}

// tilesOf computes the tiles of steps [lo, hi) for all rows, and with the last of them
// the outputs that make no whole tile. Rows whose x stays in the cache take turns at
// the weights of a tile.
func (p *product) tilesOf(a *tileArgs, work tileWork, lo, hi int) {
	tiles, turns := p.rowTiles(), p.turns()
	for first := 0; first < tiles; first += turns {
		end := min(first+turns, tiles)
		p.stream(a, &work, first, end, lo, hi, p.outputs, p.steps)
		if hi == p.steps {
			p.stream(a, &work, first, end, p.outputs*p.steps, p.w.Out, 1, 0)
		}
	}
}

// stream computes outputs o, o+step, ... of row tiles [first, end), for each o in [lo, hi).
func (p *product) stream(a *tileArgs, work *tileWork, first, end, lo, hi, outputs, step int) {
	if lo == hi {
		return
	}
	p.arguments(a, lo, step)
	size := p.w.Data.DType.Bytes()
	begin, rowBytes, next := a.w, p.w.Data.Cols*size, p.w.Data.Stride*size
	least, more := p.x.Rows/p.rowTiles(), p.x.Rows%p.rowTiles()
	firstRow, _ := p.rowTile(first)
	for o := lo; o < hi; o++ {
		a.w = unsafe.Add(begin, (o-lo)*next)
		p.complete(a, work, o, outputs, step, rowBytes)
		row := firstRow
		for i := first; i < end; i++ {
			rows := least
			if i < more {
				rows++
			}
			a.x, a.dst = p.tileX(row), unsafe.Add(p.dst.Host, (row*p.dst.Stride+o)*4)
			if outputs > 1 {
				call(p.tiles[rows-1].many, a)
			} else {
				call(p.tiles[rows-1].one, a)
			}
			row += rows
		}
	}
}

// cachedBytes is how much packed x may stay in the second-level cache while its
// rows take turns.
const cachedBytes = 512 << 10

// turns is how many row tiles' x the cache holds.
func (p *product) turns() int {
	_, rows := p.rowTile(0)
	return max(1, cachedBytes/(rows*p.rowOfX()))
}

// arguments points a at the weights of outputs o, o+step, ...
func (p *product) arguments(a *tileArgs, o, step int) {
	data := p.w.Data
	size := data.DType.Bytes()
	*a = tileArgs{
		w:         unsafe.Add(data.Host, o*data.Stride*size),
		wStride:   uintptr(step * data.Stride * size),
		dstStride: uintptr(p.dst.Stride * 4),
		dstStep:   uintptr(step * 4),
		chunks:    data.Cols * size / chunkOf[p.format].bytes,
	}
}

// complete adds to a what is of one tile alone: scales, weights that have to be
// moved, and the chunk at the end that is not whole.
func (p *product) complete(a *tileArgs, work *tileWork, o, outputs, step, rowBytes int) {
	chunk := chunkOf[p.format].bytes
	switch p.format {
	case formatINT4:
		scale := p.w.Scale
		a.lanes = work.lanes
		a.scale, a.scaleStride = unsafe.Add(scale.Host, o*scale.Stride*2), uintptr(step*scale.Stride*2)
	case formatFP8:
		p.scales(work, o, outputs, step)
		a.lanes, a.scale = work.lanes, work.scales
		if p.phase() > 0 {
			p.align(a, work, outputs, step, rowBytes)
			return
		}
	}
	rest := rowBytes % chunk
	if rest == 0 {
		return
	}
	a.tail, a.tailScale = work.tail, work.tailScale
	copyRows(work.tail, chunk, unsafe.Add(a.w, rowBytes-rest), int(a.wStride), rest, outputs)
	if p.format == formatINT4 {
		groups := rest * 2 / groupSize
		copyRows(work.tailScale, 8, unsafe.Add(a.scale, a.chunks*8), int(a.scaleStride), groups*2, outputs)
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
func (p *product) align(a *tileArgs, work *tileWork, outputs, step, rowBytes int) {
	width := p.chunks * blockSize
	stride := step * p.w.Data.Stride
	for i := range outputs {
		dst := unsafe.Slice((*byte)(unsafe.Add(work.aligned, i*width)), width)
		clear(dst)
		copy(dst[p.phase():], unsafe.Slice((*byte)(unsafe.Add(a.w, i*stride)), rowBytes))
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
