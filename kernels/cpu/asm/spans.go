package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// spans generates the weighted sum of values in attention: rows of weights p
// against keys in rising position, for a block of columns held in registers.
// Every element of the result is one chain of fused multiply-adds, so blocks
// of rows and columns do not change it.
func spans() {
	for _, m := range []machine{avx2, avx512} {
		for _, rows := range []int{1, 2, 4} {
			for _, columns := range []int{4, 1} {
				if rows*columns <= 8*(3-m.parts) {
					weigh(m, rows, columns)
				}
			}
		}
	}
}

// Fields of spanArgs, in ../span.go.
const (
	spanV = 8 * iota
	spanVStride
	spanP
	spanPStride
	spanKeys
	spanDst
	spanDstStride
)

func weigh(m machine, rows, columns int) {
	name := fmt.Sprintf("spanRows%dCols%d%s", rows, columns, m.name)
	TEXT(name, NOSPLIT, "func(args *byte)")
	Pragma("noescape")
	Doc(fmt.Sprintf("%s adds to %d rows of %d values.", name, rows, columns*m.partBytes/4))
	args := Load(Param("args"), GP64())
	field := func(offset int) reg.Register {
		r := GP64()
		MOVQ(Mem{Base: args, Disp: offset}, r)
		return r
	}
	v, vStride, keys := field(spanV), field(spanVStride), field(spanKeys)
	p, pStride := field(spanP), field(spanPStride)
	dst, dstStride := field(spanDst), field(spanDstStride)
	pStride3, dstStride3 := triple(pStride, rows), triple(dstStride, rows)
	values := m.vectors[:columns]
	weight := m.vectors[columns]
	sum := func(row, c int) reg.VecPhysical { return m.vectors[columns+1+row*columns+c] }

	for row := range rows {
		for c := range columns {
			VMOVUPS(at(dst, dstStride, dstStride3, row).Offset(c*m.partBytes), sum(row, c))
		}
	}
	TESTQ(keys, keys)
	JZ(LabelRef("done"))
	Label("loop")
	for c := range columns {
		VMOVUPS(Mem{Base: v, Disp: c * m.partBytes}, values[c])
	}
	for row := range rows {
		VBROADCASTSS(at(p, pStride, pStride3, row), weight)
		for c := range columns {
			VFMADD231PS(values[c], weight, sum(row, c))
		}
	}
	ADDQ(vStride, v)
	ADDQ(Imm(4), p)
	DECQ(keys)
	JNZ(LabelRef("loop"))
	Label("done")
	for row := range rows {
		for c := range columns {
			VMOVUPS(sum(row, c), at(dst, dstStride, dstStride3, row).Offset(c*m.partBytes))
		}
	}
	VZEROUPPER()
	RET()
}
