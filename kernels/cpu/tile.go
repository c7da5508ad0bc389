package cpu

import "unsafe"

// tileArgs are the arguments of a tile: some rows of packed x times some
// outputs of w. The assembly generator knows the layout.
type tileArgs struct {
	w           unsafe.Pointer // first output's weights
	wStride     uintptr        // bytes to the next output's
	scale       unsafe.Pointer // INT4: first output's scales. FP8: [chunk, output] f32
	scaleStride uintptr        // INT4: bytes to the next output's scales
	x           unsafe.Pointer // packed: [chunk, row, phase, 16] f32
	chunks      int            // whole chunks of the reduction
	tail        unsafe.Pointer // the last, zero-padded chunk: [output, chunk]; nil if none
	tailScale   unsafe.Pointer // INT4: [output, 4] bf16
	lanes       unsafe.Pointer // working memory of scaled formats: [row, output, 16] f32
	dst         unsafe.Pointer // first row's first output
	dstStride   uintptr        // bytes to the next row
	dstStep     uintptr        // bytes to the next output
}

// spanArgs are the arguments of a span function: dst[r] += sum_i p[r,i] v[i].
type spanArgs struct {
	v         unsafe.Pointer // first key's values
	vStride   uintptr        // bytes to the next key's
	p         unsafe.Pointer // [row, key] f32
	pStride   uintptr        // bytes to the next row
	keys      int
	dst       unsafe.Pointer // [row, column] f32
	dstStride uintptr        // bytes to the next row
}

// tileFormat is a storage of weights that tiles exist for.
type tileFormat int

const (
	formatBF16 tileFormat = iota
	formatF16
	formatF32
	formatINT4
	formatFP8
	formats
	noFormat tileFormat = -1
)

// chunkOf is a format's chunk: weights, their bytes, values in a packed word.
var chunkOf = [formats]struct{ weights, bytes, perWord int }{
	formatBF16: {32, 64, 2},
	formatF16:  {16, 32, 1},
	formatF32:  {16, 64, 1},
	formatINT4: {128, 64, 8},
	formatFP8:  {128, 128, 1},
}

// tileSet is the tiles of one format: element r-1 is for r rows.
type tileSet []struct {
	outputs int              // of many
	many    func(args *byte) // takes a *tileArgs
	one     func(args *byte) // one output
}

// spanSet is the span functions, most rows first.
type spanSet []struct {
	rows int
	many func(args *byte) // takes a *spanArgs; 4*columns columns
	one  func(args *byte) // columns columns
}

// call runs a tile or span function on its arguments.
func call[T any](f func(*byte), args *T) { f((*byte)(unsafe.Pointer(args))) }
