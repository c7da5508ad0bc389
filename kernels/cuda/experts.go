//go:build cuda

package cuda

import (
	"unsafe"

	"github.com/octet-run/octet/kernels"
)

// Of src/experts.cu: a thread sorts a place, so rows times choices of one launch, and
// an expert here.
const maxPlaces, maxLocal = 1024, 1024

// narrowBlocks is how many blocks of 128 columns one warp takes alone; from there
// on eight share a tile.
const narrowBlocks = 8

type expertParams struct {
	gate, up, down                               uint64
	x, ids, weights                              uint64
	hidden, out, dst                             uint64
	chosen, places                               uint64
	xStride, idsStride, weightsStride, dstStride uint32
	rows, topK, width, cols                      uint32
	first                                        int32
	count                                        uint32
	format, dataType                             uint32
	limit, _                                     uint32
}

// chosenBytes is the size of src/experts.cu's Chosen.
const chosenBytes = 16

// expertKey names the experts of one layer on this rank.
type expertKey struct {
	data  uintptr // the first gate's weights
	count int
}

// Experts adds to dst the weighted outputs of the chosen experts among
// [first, first+len(gate)), in the order of ids.
func (b *Backend) Experts(dst, x, ids, weights kernels.Tensor, gate, up, down []kernels.Matrix, first int) {
	if !b.ok("Experts", len(gate) == len(up) && len(gate) == len(down) && ids.Rows == x.Rows && weights.Rows == x.Rows &&
		ids.Cols == weights.Cols && dst.Rows == x.Rows && dst.Cols == x.Cols && x.DType == kernels.BF16 && dst.DType == kernels.BF16 &&
		ids.Cols <= maxPlaces && len(gate) <= maxLocal, "x %v [%d, %d], dst [%d, %d], ids [%d, %d], %d gate, %d up, %d down matrices", x.DType, x.Rows, x.Cols,
		dst.Rows, dst.Cols, ids.Rows, ids.Cols, len(gate), len(up), len(down)) || len(gate) == 0 || x.Empty() {
		return
	}
	n, width, topK := len(gate), gate[0].Out, ids.Cols
	table := b.expertTable(gate, up, down)
	size := uint64(unsafe.Sizeof(weightParams{}))
	atATime := min(x.Rows, maxPlaces/topK)
	p := expertParams{
		gate: uint64(table), up: uint64(table) + uint64(n)*size, down: uint64(table) + 2*uint64(n)*size,
		hidden: uint64(b.workspace("experts hidden", 2*atATime*topK*width)), out: uint64(b.workspace("experts out", 4*atATime*topK*x.Cols)),
		chosen: uint64(b.workspace("experts chosen", chosenBytes*maxLocal)), places: uint64(b.workspace("experts places", 2*maxPlaces)),
		xStride: uint32(x.Stride), idsStride: uint32(ids.Stride), weightsStride: uint32(weights.Stride), dstStride: uint32(dst.Stride),
		topK: uint32(topK), width: uint32(width), cols: uint32(x.Cols), first: int32(first), count: uint32(n),
		format: uint32(formatOf(gate[0])), dataType: uint32(gate[0].Data.DType),
	}
	fits := tiled(gate[0]) && tiled(up[0]) && tiled(down[0]) && x.Device%16 == 0 && x.Stride%8 == 0
	for lo := 0; lo < x.Rows; lo += atATime {
		rows := min(atATime, x.Rows-lo)
		p.rows = uint32(rows)
		p.x, p.dst = uint64(x.RowRange(lo, lo+rows).Device), uint64(dst.RowRange(lo, lo+rows).Device)
		p.ids, p.weights = uint64(ids.RowRange(lo, lo+rows).Device), uint64(weights.RowRange(lo, lo+rows).Device)
		if fits {
			format := formatNames[p.format]
			p.limit = uint32(min(n, rows*topK))
			run(b, "experts", "experts_sort", grid{x: 1, y: 1, threads: maxLocal}, &p)
			run(b, "experts", "experts_gate_up_"+format, grid{x: width / 16, y: int(p.limit), threads: 256}, &p)
			if p.format == formatINT4 && width <= 128*narrowBlocks {
				run(b, "experts", "experts_down_narrow_int4", grid{x: (x.Cols + 127) / 128, y: int(p.limit), threads: 256}, &p)
			} else {
				run(b, "experts", "experts_down_"+format, grid{x: x.Cols / 16, y: int(p.limit), threads: 256}, &p)
			}
		} else {
			run(b, "experts", "experts_gate_up_any", grid{x: (width + 7) / 8, y: rows * topK, threads: 256}, &p)
			run(b, "experts", "experts_down_any", grid{x: (x.Cols + 7) / 8, y: rows * topK, threads: 256}, &p)
		}
		run(b, "experts", "experts_combine", wideGrid(rows, x.Cols), &p)
	}
}

// expertTable is a device array of the experts' weights: gates, ups, downs.
func (b *Backend) expertTable(gate, up, down []kernels.Matrix) uintptr {
	key := expertKey{gate[0].Data.Device, len(gate)}
	if p, ok := b.experts[key]; ok {
		return p
	}
	var table []weightParams
	for _, list := range [][]kernels.Matrix{gate, up, down} {
		for _, w := range list {
			table = append(table, weightOf(w))
		}
	}
	bytes := len(table) * int(unsafe.Sizeof(table[0]))
	p, err := b.device.Alloc(bytes)
	if err == nil {
		err = b.device.Write(p, unsafe.Slice((*byte)(unsafe.Pointer(&table[0])), bytes))
	}
	b.fail(err)
	b.experts[key] = p
	return p
}
