package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// formats names the weight formats, as in ../tile.go.
var formats = [...]string{"BF16", "F16", "F32", "INT4", "FP8"}

// newBF16 splits packed pairs into even values, shifted up, and odd values,
// masked: nothing has to cross lanes.
func newBF16(m machine) format {
	f := format{name: "BF16", chunkBytes: 64, phases: 2}
	f.constants = func(free []reg.VecPhysical) { // the upper half of each word
		if m.parts == 1 {
			VPTERNLOGD(Imm(0xff), free[0], free[0], free[0])
		} else {
			VPCMPEQD(free[0], free[0], free[0])
		}
		VPSLLD(Imm(16), free[0], free[0])
	}
	f.widen = func(t *tile, output, phase, part int, r reg.VecPhysical) {
		w, free := t.weights(output).Offset(part*m.partBytes), t.free()
		if raw := free[1:]; m.parts == 1 && len(raw) >= t.outputs {
			// Loaded once where registers are left: weights lie at any multiple of eight
			// bytes, and a load that crosses cache lines costs two.
			if phase == 0 {
				VMOVDQU32(w, raw[output])
				VPSLLD(Imm(16), raw[output], r)
			} else {
				VPANDD(raw[output], free[0], r)
			}
			return
		}
		switch {
		case phase == 1 && m.parts == 1:
			VPANDD(w, free[0], r)
		case phase == 1:
			VPAND(w, free[0], r)
		case m.parts == 1:
			VPSLLD(Imm(16), w, r)
		default:
			VMOVDQU(w, r)
			VPSLLD(Imm(16), r, r)
		}
	}
	return f
}

func newF16(m machine) format {
	f := format{name: "F16", chunkBytes: 32, phases: 1}
	f.widen = func(t *tile, output, _, part int, r reg.VecPhysical) {
		VCVTPH2PS(t.weights(output).Offset(part*m.partBytes/2), r)
	}
	return f
}

func newF32(m machine) format {
	f := format{name: "F32", chunkBytes: 64, phases: 1}
	f.widen = func(t *tile, output, _, part int, r reg.VecPhysical) {
		VMOVUPS(t.weights(output).Offset(part*m.partBytes), r)
	}
	return f
}

// newINT4 takes nibble after nibble of 16 packed words. AVX-512 looks values up
// by the low four bits of each word; AVX2 puts the nibble into the mantissa of
// 2^23 and subtracts 2^23 + 8. Both are exact.
func newINT4(m machine) format {
	f := format{name: "INT4", chunkBytes: 64, phases: 8, scaled: true}
	if m.parts == 1 {
		table := words("int4Values", func(i int) any { return float32(i - 8) })
		spread := words("int4ScaleOf", func(i int) any { return uint32(i / 4) })
		f.constants = func(free []reg.VecPhysical) {
			VMOVUPS(table, free[0])
			VMOVDQU32(spread, free[1])
		}
		f.widen = func(t *tile, output, phase, _ int, r reg.VecPhysical) {
			w, free := t.weights(output), t.free()
			if phase == 0 {
				VMOVDQU32(w, r)
			} else {
				VPSRLD(Imm(uint64(4*phase)), w, r)
			}
			VPERMPS(free[0], r, r)
		}
		f.scale = func(t *tile, o, _ int, r reg.VecPhysical, free []reg.VecPhysical) {
			VPMOVZXWD(at(t.s, t.sStride, t.sStride3, o), r.AsX())
			VPSLLD(Imm(16), r.AsX(), r.AsX())
			VPERMPS(r, free[1], r)
		}
		return f
	}
	mask := words("int4Mask", func(int) any { return uint32(15) })
	magic := words("int4Magic", func(int) any { return float32(1 << 23) })
	offset := words("int4Offset", func(int) any { return float32(1<<23 + 8) })
	spread := words("int4ScaleOfPart", func(i int) any { return uint32(i / 4) })
	f.widen = func(t *tile, output, phase, part int, r reg.VecPhysical) {
		VMOVDQU(t.weights(output).Offset(part*m.partBytes), r)
		if phase > 0 {
			VPSRLD(Imm(uint64(4*phase)), r, r)
		}
		VPAND(mask, r, r)
		VPOR(magic, r, r)
		VSUBPS(offset, r, r)
	}
	f.scale = func(t *tile, o, part int, r reg.VecPhysical, _ []reg.VecPhysical) {
		x := t.vectors[0]
		VMOVDQU(spread.Offset(part*m.partBytes), x)
		VPMOVZXWD(at(t.s, t.sStride, t.sStride3, o), r.AsX())
		VPSLLD(Imm(16), r.AsX(), r.AsX())
		VPERMPS(r, x, r)
	}
	return f
}

// newFP8 moves E4M3 into the place of an F16, which is exact and 2^8 too small;
// the scale makes up for it. Sign extension brings a copy of the sign to bit 15.
func newFP8(m machine) format {
	f := format{name: "FP8", chunkBytes: 128, phases: 8, scaled: true}
	mask := words("fp8Mask"+m.name, func(int) any { return uint32(0xbfffbfff) })
	f.widen = func(t *tile, output, phase, part int, r reg.VecPhysical) {
		w := t.weights(output).Offset(phase*16 + part*8)
		half := r.AsX()
		if m.parts == 1 {
			half = r.AsY()
		}
		VPMOVSXBW(w, half)
		VPSLLW(Imm(7), half, half)
		VPAND(mask, half, half)
		VCVTPH2PS(half, r)
	}
	f.scale = func(t *tile, o, _ int, r reg.VecPhysical, _ []reg.VecPhysical) {
		VBROADCASTSS(Mem{Base: t.s, Disp: 4 * o}, r)
	}
	return f
}

// words makes read-only data of 16 words, float32 or uint32.
func words(name string, word func(i int) any) Mem {
	m := GLOBL(name, RODATA|NOPTR)
	for i := range 16 {
		switch v := word(i).(type) {
		case float32: // as bits: avo prints a whole number as an integer
			DATA(4*i, U32(math.Float32bits(v)))
		case uint32:
			DATA(4*i, U32(v))
		}
	}
	return m
}
