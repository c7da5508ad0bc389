package cpu

import (
	"unsafe"

	"github.com/octet-run/octet/kernels"
)

// MatMul writes dst[t,o] = sum_i x[t,i] w[o,i] + bias[o].
func (b *Backend) MatMul(dst, x kernels.Tensor, w kernels.Matrix) {
	if b.fits("MatMul", dst, x, w, 1) {
		b.multiply(dst, x, w)
	}
}

// MatMuls is one job for the threads: they meet once for all products.
func (b *Backend) MatMuls(products []kernels.Product) {
	for i := range products {
		if p := &products[i]; !b.fits("MatMuls", p.Dst, p.X, p.W, 1) {
			return
		}
	}
	b.startProducts()
	for i := range products {
		b.addProduct(products[i].Dst, products[i].X, products[i].W)
	}
	b.runProducts()
}

// MatMulBlocks is the block-diagonal product: with o = w.Out/blocks and n = w.In,
// dst[t, c*o+j] = sum_i x[t, c*n+i] w[c*o+j, i].
func (b *Backend) MatMulBlocks(dst, x kernels.Tensor, w kernels.Matrix, blocks int) {
	if !b.fits("MatMulBlocks", dst, x, w, blocks) {
		return
	}
	out := w.Out / blocks
	b.startProducts()
	for c := range blocks {
		b.addProduct(dst.ColRange(c*out, (c+1)*out), x.ColRange(c*w.In, (c+1)*w.In), rowsOf(w, c*out, (c+1)*out))
	}
	b.runProducts()
}

func (b *Backend) fits(op string, dst, x kernels.Tensor, w kernels.Matrix, blocks int) bool {
	if blocks <= 0 || w.Out%blocks != 0 || dst.Rows != x.Rows || dst.Cols != w.Out || x.Cols != blocks*w.In {
		b.misfit(op, "x [%d, %d] times w [%d, %d] in %d blocks into [%d, %d]", x.Rows, x.Cols, w.Out, w.In, blocks, dst.Rows, dst.Cols)
		return false
	}
	if dst.DType != kernels.F32 || x.DType != kernels.F32 {
		b.misfit(op, "%v to %v: activations are f32", x.DType, dst.DType)
		return false
	}
	return true
}

// unitBytes is about how many bytes of weights one unit of a product reads: long
// enough streams for prefetching, short enough for threads to end together.
const unitBytes = 512 << 10

// worthSharing is how many multiplications outweigh waking the team, some 20 us.
const worthSharing = 2 << 20

// product is one matrix product, split by outputs.
type product struct {
	dst, x kernels.Tensor
	w      kernels.Matrix
	format tileFormat // noFormat: in plain Go
	tiles  tileSet

	packed  unsafe.Pointer // rows of x by tile, see pack
	chunks  int            // per row, a partial one included
	outputs int            // of a tile
	steps   int            // tiles of outputs, see split
	perUnit int            // steps
}

// multiply is one product.
func (b *Backend) multiply(dst, x kernels.Tensor, w kernels.Matrix) {
	b.startProducts()
	b.addProduct(dst, x, w)
	b.runProducts()
}

// prepare packs x for the weights and reserves memory. It reports success.
func (b *Backend) prepare(p *product, dst, x kernels.Tensor, w kernels.Matrix) bool {
	*p = product{x: x, w: w, format: b.tileFormat(w)}
	if p.format == noFormat {
		p.use(dst, w, len(b.team.workers))
		return true
	}
	weights := chunkOf[p.format].weights
	p.tiles = b.tiles[p.format]
	p.chunks = (p.span() + weights - 1) / weights
	p.use(dst, w, len(b.team.workers))
	var l layout
	p.tileWork(&l)
	if err := b.team.reserve(int(l.used)); err != nil {
		b.fail(err)
		return false
	}
	packed, err := b.packed.take(x.Rows * p.chunks * weights * 4)
	if err != nil {
		b.fail(err)
		return false
	}
	p.packed = packed
	p.pack()
	return true
}

// use sets the weights and cuts them into units.
func (p *product) use(dst kernels.Tensor, w kernels.Matrix, threads int) {
	p.dst, p.w = dst, w
	p.split()
	p.perUnit = max(unitBytes/max(p.outputs*w.Data.Cols*w.Data.DType.Bytes(), 1), 1)
	if work := p.x.Rows * w.Out * w.In; threads > 1 && work > worthSharing {
		p.perUnit = min(p.perUnit, max(p.steps/(8*threads), 1))
	}
}

func (p *product) units() int { return max(1, (p.steps+p.perUnit-1)/p.perUnit) }

// tileFormat says which tiles can compute w.
func (b *Backend) tileFormat(w kernels.Matrix) tileFormat {
	f := noFormat
	switch {
	case w.In == 0:
	case w.Format == kernels.FP8Block:
		if w.Scale.DType == kernels.F32 {
			f = formatFP8
		}
	case w.Format == kernels.INT4Group:
		if w.Scale.DType == kernels.BF16 && w.In%groupSize == 0 {
			f = formatINT4
		}
	default:
		f = plainFormat(w.Data.DType)
	}
	if f != noFormat && len(b.tiles[f]) == 0 {
		return noFormat
	}
	return f
}

func plainFormat(d kernels.DType) tileFormat {
	switch d {
	case kernels.BF16:
		return formatBF16
	case kernels.F16:
		return formatF16
	}
	return formatF32
}

// phase is how far inside its first chunk the shard begins: FP8 blocks are cut
// where the whole matrix has them.
func (p *product) phase() int {
	if p.format == formatFP8 {
		return p.w.ColPhase % blockSize
	}
	return 0
}

// span is the values of a row from the start of its first chunk.
func (p *product) span() int { return p.phase() + p.w.In }

// unit computes perUnit steps of all rows.
func (p *product) unit(w *worker, i int) {
	lo := i * p.perUnit
	hi := min(lo+p.perUnit, p.steps)
	if p.format == noFormat {
		oracleMatMul(p.dst.ColRange(lo, hi), p.x, rowsOf(p.w, lo, hi))
		return
	}
	p.tilesOf(w.tile, p.tileWork(&layout{base: w.base()}), lo, hi)
	if p.w.Bias.Empty() {
		return
	}
	for o := range p.outputs {
		p.addBias(o*p.steps+lo, o*p.steps+hi)
	}
	if hi == p.steps {
		p.addBias(p.outputs*p.steps, p.w.Out)
	}
}

func (p *product) addBias(lo, hi int) {
	for t := range p.dst.Rows {
		row := p.dst.F32Row(t)
		for o := lo; o < hi; o++ {
			row[o] += loadF32(p.w.Bias, 0, o)
		}
	}
}
