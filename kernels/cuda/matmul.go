//go:build cuda

package cuda

import (
	"strconv"

	"github.com/octet-run/octet/kernels"
)

// weightParams is src/product.cuh's Weight.
type weightParams struct {
	data, scale, bias       uint64
	out, in                 uint32
	dataStride, scaleStride uint32
	scaleType, biasType     uint32
	rowPhase, _             uint32
}

func weightOf(w kernels.Matrix) weightParams {
	return weightParams{
		data: uint64(w.Data.Device), scale: uint64(w.Scale.Device), bias: uint64(w.Bias.Device),
		out: uint32(w.Out), in: uint32(w.In), dataStride: uint32(w.Data.Stride * w.Data.DType.Bytes()), scaleStride: uint32(w.Scale.Stride),
		scaleType: uint32(w.Scale.DType), biasType: uint32(w.Bias.DType), rowPhase: uint32(w.RowPhase),
	}
}

// productParams is src/matmul.cu's Product.
type productParams struct {
	w                  weightParams
	x, dst             uint64
	xStride, dstStride uint32
	dstType, rows      uint32
	blockOut, format   uint32
	dataType, colPhase uint32
}

// The numbers of src/product.cuh's Format.
const (
	formatBF16 = iota
	formatFP8
	formatINT4
)

var formatNames = [...]string{"bf16", "fp8", "int4"}

func formatOf(w kernels.Matrix) int {
	switch w.Format {
	case kernels.FP8Block:
		return formatFP8
	case kernels.INT4Group:
		return formatINT4
	}
	return formatBF16
}

// tiled reports whether tensor-core tiles fit the weights. It depends on the
// weights alone.
func tiled(w kernels.Matrix) bool {
	if w.Out%16 != 0 || w.Data.Device%16 != 0 || w.Data.Stride*w.Data.DType.Bytes()%16 != 0 {
		return false
	}
	switch w.Format {
	case kernels.FP8Block:
		return w.In%128 == 0 && w.ColPhase == 0 && w.RowPhase%16 == 0 && w.Scale.DType == kernels.F32
	case kernels.INT4Group:
		return w.In%128 == 0 && w.Scale.DType == kernels.BF16
	}
	return w.In%32 == 0 && w.Data.DType == kernels.BF16
}

// MatMul writes dst[t,o] = sum_i x[t,i] w[o,i] + bias[o].
func (b *Backend) MatMul(dst, x kernels.Tensor, w kernels.Matrix) {
	if b.ok("MatMul", x.Cols == w.In && dst.Cols == w.Out && dst.Rows == x.Rows, "[%d, %d] by %dx%d into [%d, %d]", x.Rows, x.Cols,
		w.Out, w.In, dst.Rows, dst.Cols) {
		b.product("MatMul", dst, x, w, w.Out)
	}
}

// MatMuls multiplies neighbours of one x in one launch.
func (b *Backend) MatMuls(products []kernels.Product) {
	for len(products) > 0 {
		n := 1
		for n < min(len(products), maxJoint) && joins(products[0], products[n]) {
			n++
		}
		if n == 1 || !b.together(products[:n]) {
			for _, p := range products[:n] {
				b.MatMul(p.Dst, p.X, p.W)
			}
		}
		products = products[n:]
	}
}

// MatMulBlocks is the block-diagonal product used by absorbed MLA.
func (b *Backend) MatMulBlocks(dst, x kernels.Tensor, w kernels.Matrix, blocks int) {
	if b.ok("MatMulBlocks", blocks > 0 && w.Out%blocks == 0 && x.Cols == blocks*w.In && dst.Cols == w.Out && dst.Rows == x.Rows,
		"[%d, %d] by %d blocks of %dx%d into [%d, %d]", x.Rows, x.Cols, blocks, w.Out, w.In, dst.Rows, dst.Cols) {
		b.product("MatMulBlocks", dst, x, w, w.Out/blocks)
	}
}

func productOf(dst, x kernels.Tensor, w kernels.Matrix, blockOut int) productParams {
	return productParams{
		w: weightOf(w), x: uint64(x.Device), dst: uint64(dst.Device), xStride: uint32(x.Stride), dstStride: uint32(dst.Stride),
		dstType: uint32(dst.DType), rows: uint32(x.Rows), blockOut: uint32(blockOut), format: uint32(formatOf(w)),
		dataType: uint32(w.Data.DType), colPhase: uint32(w.ColPhase),
	}
}

func (b *Backend) product(op string, dst, x kernels.Tensor, w kernels.Matrix, blockOut int) {
	if !b.ok(op, x.DType == kernels.BF16 && (dst.DType == kernels.BF16 || dst.DType == kernels.F32), "%v into %v", x.DType, dst.DType) ||
		dst.Empty() {
		return
	}
	params := productOf(dst, x, w, blockOut)
	if !tiled(w) || blockOut%16 != 0 || x.Device%16 != 0 || x.Stride%8 != 0 {
		run(b, "matmul", "matmul_any", grid{x: (w.Out + 7) / 8, y: x.Rows, threads: 256}, &params)
		return
	}
	if blockOut != w.Out || !b.stream([]productParams{params}) {
		b.skinny(params)
	}
}

// together runs simple products of one x in one launch, if the device can.
func (b *Backend) together(products []kernels.Product) bool {
	var joint [maxJoint]productParams
	for i, p := range products {
		joint[i] = productOf(p.Dst, p.X, p.W, p.W.Out)
	}
	return b.stream(joint[:len(products)])
}

// stream runs products of the same rows in one launch, if the device can.
func (b *Backend) stream(products []productParams) bool {
	joint := join(products)
	s, ok := b.device.streaming(int(products[0].format), joint.tiles(), int(products[0].rows))
	if ok {
		run(b, "matmul", s.kernel, s.grid, &joint)
	}
	return ok
}

// joins reports whether two products can share a launch: one x, and plain weights of
// one width, since matrices with scales are launched alone.
func joins(p, q kernels.Product) bool {
	return simple(p) && simple(q) && p.X == q.X && p.W.In == q.W.In
}

// simple reports whether a product is one that every device has a tiled kernel for.
func simple(p kernels.Product) bool {
	fits := p.Dst.Rows == p.X.Rows && p.Dst.Cols == p.W.Out && p.X.Cols == p.W.In && !p.Dst.Empty()
	types := p.X.DType == kernels.BF16 && (p.Dst.DType == kernels.BF16 || p.Dst.DType == kernels.F32)
	return fits && types && formatOf(p.W) == formatBF16 && tiled(p.W) && p.X.Device%16 == 0 && p.X.Stride%8 == 0
}

// rowsAtOnce is how many rows a kernel takes.
func rowsAtOnce(rows int) int {
	atOnce := 8
	for atOnce < 64 && atOnce < rows {
		atOnce *= 2
	}
	return atOnce
}

// skinny is the product in tiles that blocks take one each.
func (b *Backend) skinny(p productParams) {
	rows := rowsAtOnce(int(p.rows))
	name := "matmul_" + formatNames[p.format] + "_" + strconv.Itoa(rows)
	run(b, "matmul", name, grid{x: int(p.w.out) / 16, y: (int(p.rows) + rows - 1) / rows, threads: 256}, &p)
}
