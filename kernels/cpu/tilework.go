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

	scaleRow, scaleOutputs int // what scales were laid out for
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

// tilesOf computes outputs [lo, hi) of all rows: the rows take turns at weights
// that are in the cache by then.
func (p *product) tilesOf(a *tileArgs, work tileWork, lo, hi int) {
	p.rowTiles(func(first, rows int) {
		tile := &p.tiles[rows-1]
		for o := lo; o < hi; {
			f, outputs := tile.many, tile.outputs
			if hi-o < outputs || p.format == formatFP8 && !p.sameScale(o, outputs) {
				f, outputs = tile.one, 1
			}
			p.arguments(a, &work, o, outputs)
			a.x = p.tileX(first)
			a.dst = unsafe.Add(p.dst.Host, (first*p.dst.Stride+o)*4)
			call(f, a)
			o += outputs
		}
	})
}

// sameScale reports whether outputs from o on are in one row of FP8 blocks.
func (p *product) sameScale(o, outputs int) bool {
	return (p.w.RowPhase+o)/blockSize == (p.w.RowPhase+o+outputs-1)/blockSize
}

// arguments points a at the weights of outputs from o on.
func (p *product) arguments(a *tileArgs, work *tileWork, o, outputs int) {
	data, chunk := p.w.Data, chunkOf[p.format]
	size := data.DType.Bytes()
	*a = tileArgs{
		w:         unsafe.Add(data.Host, o*data.Stride*size),
		wStride:   uintptr(data.Stride * size),
		lanes:     work.lanes,
		dstStride: uintptr(p.dst.Stride * 4),
	}
	rowBytes := data.Cols * size
	switch p.format {
	case formatINT4:
		scale := p.w.Scale
		a.scale, a.scaleStride = unsafe.Add(scale.Host, o*scale.Stride*2), uintptr(scale.Stride*2)
	case formatFP8:
		p.scales(work, o, outputs)
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
func (p *product) scales(work *tileWork, o, outputs int) {
	block := (p.w.RowPhase + o) / blockSize
	if block == work.scaleRow && outputs == work.scaleOutputs {
		return
	}
	work.scaleRow, work.scaleOutputs = block, outputs
	row := p.w.Scale.F32Row(block)
	dst := unsafe.Slice((*float32)(work.scales), p.chunks*outputs)
	first := p.w.ColPhase / blockSize
	for c := range p.chunks {
		for i := range outputs {
			dst[c*outputs+i] = row[first+c] * f8Scale
		}
	}
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
