package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// tiles generates the inner loops of the matrix product: rows of x against
// outputs of w, one loop over chunks of the reduction. The weights of a chunk
// are widened once and used by all rows; a row of x is loaded once and used by
// all outputs. Which rows and outputs share a loop does not change any sum.
func tiles() {
	for _, m := range []machine{avx2, avx512} {
		for _, f := range []format{newBF16(m), newF16(m), newF32(m), newINT4(m), newFP8(m)} {
			for rows := 1; rows <= m.maxRows(); rows++ {
				for _, outputs := range []int{m.outputs(rows), 1} {
					t := tile{machine: m, format: f, rows: rows, outputs: outputs}
					t.generate()
				}
			}
		}
	}
}

// Sums of 24 of 32, or 12 of 16 registers, leave room for weights, x and constants.
func (m machine) maxRows() int { return 9 - 3*m.parts }

func (m machine) outputs(rows int) int {
	if m.parts == 1 || rows == 1 {
		return 4
	}
	return 2
}

// format is how a chunk of weights is widened.
type format struct {
	name       string
	chunkBytes int                          // weights of a chunk of one output
	phases     int                          // groups of 16 values in a chunk, in the order of packed x
	scaled     bool                         // the sum of a chunk is scaled into the lane
	constants  func(free []reg.VecPhysical) // loads what widen needs into registers
	widen      func(t *tile, output, phase, part int, r reg.VecPhysical)
	scale      func(t *tile, output, part int, r reg.VecPhysical, free []reg.VecPhysical)
}

// tile is one generated function. Registers: sums first from the top, then
// weights of each output, one for x, and the rest free for constants.
type tile struct {
	machine
	format
	rows, outputs int

	w, wStride, wStride3 reg.Register // weights of the first output, bytes between outputs
	s, sStride, sStride3 reg.Register // scales likewise
	x, lanes             reg.Register
}

func (t *tile) sum(row, output, part int) reg.VecPhysical {
	return t.vectors[len(t.vectors)-1-(row*t.outputs+output)*t.parts-part]
}

// weight registers follow register 0, which holds x.
func (t *tile) weight(output int) reg.VecPhysical { return t.vectors[1+output] }

// free registers are above the weights and below the sums.
func (t *tile) free() []reg.VecPhysical {
	return t.vectors[1+t.outputs : len(t.vectors)-t.rows*t.outputs*t.parts]
}

func at(base, stride, stride3 reg.Register, output int) Mem {
	switch output {
	case 0:
		return Mem{Base: base}
	case 3:
		return Mem{Base: base, Index: stride3, Scale: 1}
	}
	return Mem{Base: base, Index: stride, Scale: uint8(output)}
}

// lane is where the sums of a scaled format live: chunks use the registers.
func (t *tile) lane(row, output, part int) Mem {
	return Mem{Base: t.lanes, Disp: (row*t.outputs+output)*64 + part*32}
}

// Fields of tileArgs, in ../tile.go.
const (
	argW = 8 * iota
	argWStride
	argScale
	argScaleStride
	argX
	argChunks
	argTail
	argTailScale
	argLanes
	argDst
	argDstStride
	argDstStep
)

func (t tile) function() string {
	return fmt.Sprintf("tile%sRows%dOut%d%s", t.format.name, t.rows, t.outputs, t.machine.name)
}

func (t tile) generate() {
	TEXT(t.function(), NOSPLIT, "func(args *byte)")
	Pragma("noescape")
	Doc(fmt.Sprintf("%s multiplies %d rows by %d outputs.", t.function(), t.rows, t.outputs))
	args := Load(Param("args"), GP64())
	field := func(offset int) reg.Register {
		r := GP64()
		MOVQ(Mem{Base: args, Disp: offset}, r)
		return r
	}
	t.w, t.wStride, t.x = field(argW), field(argWStride), field(argX)
	chunks, tail := field(argChunks), field(argTail)
	t.wStride3 = triple(t.wStride, t.outputs)
	if t.scaled {
		t.s, t.lanes = field(argScale), field(argLanes)
		t.sStride = field(argScaleStride)
		t.sStride3 = triple(t.sStride, t.outputs)
	}
	t.clear()
	if t.constants != nil {
		t.constants(t.free())
	}
	TESTQ(chunks, chunks)
	JZ(LabelRef("last"))
	Label("loop")
	t.chunk()
	DECQ(chunks)
	JNZ(LabelRef("loop"))
	// The last, partial chunk was copied to zeroed memory, outputs side by side.
	Label("last")
	TESTQ(tail, tail)
	JZ(LabelRef("done"))
	MOVQ(tail, t.w)
	MOVQ(U32(t.chunkBytes), t.wStride)
	MOVQ(U32(3*t.chunkBytes), t.wStride3)
	if t.format.name == "INT4" {
		MOVQ(Mem{Base: args, Disp: argTailScale}, t.s)
		MOVQ(U32(8), t.sStride)
		MOVQ(U32(24), t.sStride3)
	}
	MOVQ(U32(1), chunks)
	XORQ(tail, tail)
	JMP(LabelRef("loop"))
	Label("done")
	t.store(field(argDst), field(argDstStride), field(argDstStep))
	VZEROUPPER()
	RET()
}

func triple(stride reg.Register, outputs int) reg.Register {
	r := GP64()
	if outputs > 3 {
		LEAQ(Mem{Base: stride, Index: stride, Scale: 2}, r)
	} else {
		XORQ(r, r)
	}
	return r
}

func (t *tile) clear() {
	t.each(func(row, output, part int) {
		t.zero(t.sum(row, output, part))
		if t.scaled {
			VMOVUPS(t.sum(row, output, part), t.lane(row, output, part))
		}
	})
}

func (t *tile) each(f func(row, output, part int)) {
	for row := range t.rows {
		for output := range t.outputs {
			for part := range t.parts {
				f(row, output, part)
			}
		}
	}
}

func (t *tile) chunk() {
	x := t.vectors[0]
	t.prefetch()
	for phase := range t.phases {
		for part := range t.parts {
			for o := range t.outputs {
				t.widen(t, o, phase, part, t.weight(o))
			}
			for row := range t.rows {
				VMOVUPS(Mem{Base: t.x, Disp: (row*t.phases+phase)*64 + part*t.partBytes}, x)
				for o := range t.outputs {
					VFMADD231PS(x, t.weight(o), t.sum(row, o, part))
				}
			}
		}
	}
	if t.scaled {
		t.fold()
	}
	ADDQ(U32(t.chunkBytes), t.w)
	ADDQ(U32(t.rows*t.phases*64), t.x)
}

// weights is where those of an output are.
func (t *tile) weights(output int) Mem { return at(t.w, t.wStride, t.wStride3, output) }

// prefetch asks for weights further on. The outputs of a tile are streams that go
// on in the next tile, see tilesOf in ../tilework.go. Packed formats take longer
// over a byte and want theirs later.
func (t *tile) prefetch() {
	distance := 2048
	if t.scaled {
		distance = 768
	}
	for o := range t.outputs {
		for line := 0; line < t.chunkBytes; line += 64 {
			PREFETCHT0(t.weights(o).Offset(distance + line))
		}
		if t.format.name == "INT4" {
			PREFETCHT0(at(t.s, t.sStride, t.sStride3, o).Offset(256))
		}
	}
}

// fold scales the sums of a chunk into the lanes and clears them.
func (t *tile) fold() {
	x := t.vectors[0]
	for part := range t.parts {
		for o := range t.outputs {
			scale := t.weight(o)
			t.scale(t, o, part, scale, t.free())
			for row := range t.rows {
				sum := t.sum(row, o, part)
				VMOVUPS(t.lane(row, o, part), x)
				VFMADD231PS(sum, scale, x)
				VMOVUPS(x, t.lane(row, o, part))
				t.zero(sum)
			}
		}
	}
	switch t.format.name {
	case "INT4":
		ADDQ(U32(8), t.s)
	case "FP8":
		ADDQ(U32(4*t.outputs), t.s)
	}
}

func (t *tile) store(dst, stride, step reg.Register) {
	step3 := triple(step, t.outputs)
	for row := range t.rows {
		for o := range t.outputs {
			lanes := make([]reg.VecPhysical, t.parts)
			for part := range lanes {
				lanes[part] = t.sum(row, o, part)
				if t.scaled {
					VMOVUPS(t.lane(row, o, part), lanes[part])
				}
			}
			t.reduce(lanes, t.weight(o), t.vectors[0])
		}
		q := t.vectors[1 : 1+t.outputs]
		finish(q)
		VMOVSS(q[0].AsX(), at(dst, step, step3, 0))
		for o := 1; o < t.outputs; o++ {
			VEXTRACTPS(Imm(uint64(o)), q[0].AsX(), at(dst, step, step3, o))
		}
		if row < t.rows-1 {
			ADDQ(stride, dst)
		}
	}
}
