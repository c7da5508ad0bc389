package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// machine is an instruction set. The 16 lanes of a sum are one register of
// AVX-512 or two of AVX2, called parts.
type machine struct {
	name      string
	parts     int
	partBytes int
	vectors   []reg.VecPhysical // full width
}

var (
	ymm = []reg.VecPhysical{
		reg.Y0, reg.Y1, reg.Y2, reg.Y3, reg.Y4, reg.Y5, reg.Y6, reg.Y7,
		reg.Y8, reg.Y9, reg.Y10, reg.Y11, reg.Y12, reg.Y13, reg.Y14, reg.Y15,
	}
	zmm = []reg.VecPhysical{
		reg.Z0, reg.Z1, reg.Z2, reg.Z3, reg.Z4, reg.Z5, reg.Z6, reg.Z7,
		reg.Z8, reg.Z9, reg.Z10, reg.Z11, reg.Z12, reg.Z13, reg.Z14, reg.Z15,
		reg.Z16, reg.Z17, reg.Z18, reg.Z19, reg.Z20, reg.Z21, reg.Z22, reg.Z23,
		reg.Z24, reg.Z25, reg.Z26, reg.Z27, reg.Z28, reg.Z29, reg.Z30, reg.Z31,
	}
	avx2   = machine{name: "AVX2", parts: 2, partBytes: 32, vectors: ymm}
	avx512 = machine{name: "AVX512", parts: 1, partBytes: 64, vectors: zmm}
)

func (m machine) zero(r reg.VecPhysical) {
	if m.parts == 1 {
		VPXORD(r, r, r)
		return
	}
	VXORPS(r, r, r)
}

// reduce leaves the first half of the lane tree, four sums, in the low quarter
// of register into. The lanes are in the given parts; scratch is overwritten.
// All of into and scratch must be among the first 16 registers.
func (m machine) reduce(lanes []reg.VecPhysical, into, scratch reg.VecPhysical) {
	if m.parts == 1 {
		VEXTRACTF64X4(Imm(1), lanes[0], scratch.AsY())
		VADDPS(scratch.AsY(), lanes[0].AsY(), into.AsY())
	} else {
		VADDPS(lanes[1], lanes[0], into)
	}
	VEXTRACTF128(Imm(1), into.AsY(), scratch.AsX())
	VADDPS(scratch.AsX(), into.AsX(), into.AsX())
}

// finish completes the lane tree of the four quarters in q: the sums are in the
// elements of q[0].
func finish(q []reg.VecPhysical) {
	switch len(q) {
	case 1:
		VHADDPS(q[0].AsX(), q[0].AsX(), q[0].AsX())
		VHADDPS(q[0].AsX(), q[0].AsX(), q[0].AsX())
	case 2:
		VHADDPS(q[1].AsX(), q[0].AsX(), q[0].AsX())
		VHADDPS(q[0].AsX(), q[0].AsX(), q[0].AsX())
	case 4:
		VHADDPS(q[1].AsX(), q[0].AsX(), q[0].AsX())
		VHADDPS(q[3].AsX(), q[2].AsX(), q[2].AsX())
		VHADDPS(q[2].AsX(), q[0].AsX(), q[0].AsX())
	}
}
