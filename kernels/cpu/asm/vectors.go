package main

import (
	"fmt"
	"strings"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// vectors generates the functions over whole rows, in AVX2: they run at the
// speed of memory or of the divider, which wider registers do not raise. Each
// takes 16 values at a time, and the rest through masked loads and stores.
func vectors() {
	masks := GLOBL("tailMasks", RODATA|NOPTR)
	for i := range 32 {
		ones := U32(0xffffffff)
		if i >= 16 {
			ones = 0
		}
		DATA(4*i, ones)
	}
	loop := func(name, signature, doc, length string, params []string, body func(v *vector)) {
		vector{name: name, masks: masks, params: params}.generate(signature, doc, length, body)
	}

	loop("addAVX2", "func(dst, x, y []float32)", "dst = x + y", "dst", []string{"dst", "x", "y"}, func(v *vector) {
		v.each(func(part int) {
			v.load("x", part, v.r(part))
			v.load("y", part, v.r(2+part))
			VADDPS(v.r(2+part), v.r(part), v.r(part))
			v.store(v.r(part), "dst", part)
		})
	})
	loop("scaleMulAVX2", "func(dst, x, w []float32, scale float32)", "dst = (x * scale) * w", "dst", []string{"dst", "x", "w"}, func(v *vector) {
		v.broadcast("scale", v.r(8))
		v.each(func(part int) {
			v.load("x", part, v.r(part))
			v.load("w", part, v.r(2+part))
			VMULPS(v.r(8), v.r(part), v.r(part))
			VMULPS(v.r(2+part), v.r(part), v.r(part))
			v.store(v.r(part), "dst", part)
		})
	})
	loop("scaleAVX2", "func(dst []float32, scale float32)", "dst = dst * scale", "dst", []string{"dst"}, func(v *vector) {
		v.broadcast("scale", v.r(8))
		v.each(func(part int) {
			v.load("dst", part, v.r(part))
			VMULPS(v.r(8), v.r(part), v.r(part))
			v.store(v.r(part), "dst", part)
		})
	})
	loop("axpyAVX2", "func(dst []float32, a float32, x []float32)", "dst += a * x", "dst", []string{"dst", "x"}, func(v *vector) {
		v.broadcast("a", v.r(8))
		v.each(func(part int) {
			v.load("dst", part, v.r(part))
			v.load("x", part, v.r(2+part))
			VFMADD231PS(v.r(2+part), v.r(8), v.r(part))
			v.store(v.r(part), "dst", part)
		})
	})
	loop("mergeAVX2", "func(dst []float32, old float32, x []float32, now float32)", "dst = x*now + dst*old", "dst", []string{"dst", "x"}, func(v *vector) {
		v.broadcast("old", v.r(8))
		v.broadcast("now", v.r(9))
		v.each(func(part int) {
			v.load("dst", part, v.r(part))
			v.load("x", part, v.r(2+part))
			VMULPS(v.r(8), v.r(part), v.r(part))
			VFMADD231PS(v.r(2+part), v.r(9), v.r(part))
			v.store(v.r(part), "dst", part)
		})
	})
	loop("sumSquaresAVX2", "func(x []float32) float32", "the sum of the squares of a segment, in lanes", "x", []string{"x"}, func(v *vector) {
		v.clearSum()
		v.each(func(part int) {
			v.load("x", part, v.r(part))
			VFMADD231PS(v.r(part), v.r(part), v.sum(part))
		})
		v.returnSum()
	})
	loop("maxAVX2", "func(x []float32) float32", "the largest value, -Inf if there is none", "x", []string{"x"}, func(v *vector) {
		lowest := words("lowest", func(int) any { return uint32(0xff800000) })
		VMOVUPS(lowest, v.r(8))
		VMOVUPS(lowest, v.sum(0))
		VMOVUPS(lowest, v.sum(1))
		v.each(func(part int) {
			v.load("x", part, v.r(part))
			if v.tail { // masked values count as -Inf
				VBLENDVPS(v.mask(part), v.r(part), v.r(8), v.r(part))
			}
			VMAXPS(v.sum(part), v.r(part), v.sum(part))
		})
		VMAXPS(v.sum(1), v.sum(0), v.sum(0))
		VEXTRACTF128(Imm(1), v.sum(0), v.r(0).AsX())
		VMAXPS(v.r(0).AsX(), v.sum(0).AsX(), v.r(0).AsX())
		VPSHUFD(Imm(0x4e), v.r(0).AsX(), v.r(1).AsX())
		VMAXPS(v.r(1).AsX(), v.r(0).AsX(), v.r(0).AsX())
		VPSHUFD(Imm(0xb1), v.r(0).AsX(), v.r(1).AsX())
		VMAXPS(v.r(1).AsX(), v.r(0).AsX(), v.r(0).AsX())
		Store(v.r(0).AsX(), ReturnIndex(0))
	})

	e := newExp()
	loop("expSumAVX2", "func(x []float32, scale, m float32) float32", "x = e^(x*scale - m), and the sum, in lanes", "x", []string{"x"}, func(v *vector) {
		v.expSum(e, true)
	})
	loop("sumExpAVX2", "func(x []float32, m float32) float32", "the sum of e^(x - m), in lanes", "x", []string{"x"}, func(v *vector) {
		v.expSum(e, false)
	})
	loop("swigluAVX2", "func(dst, gate, up []float32)", "dst = gate / (1 + e^-gate) * up", "dst", []string{"dst", "gate", "up"}, func(v *vector) {
		v.each(func(part int) {
			x := v.r(0)
			VXORPS(x, x, x)
			v.load("gate", part, v.r(6))
			VMOVUPS(e.sign, v.r(7))
			VXORPS(v.r(7), v.r(6), x)
			e.apply(x, v.r(1), v.r(2), v.r(3), v.r(4))
			VADDPS(e.one, x, x)
			VDIVPS(x, v.r(6), x)
			v.load("up", part, v.r(6))
			VMULPS(v.r(6), x, x)
			v.store(x, "dst", part)
		})
	})
	for n := 2; n <= 8; n++ {
		sumTree(loop, n)
		addTree(loop, n)
	}
	widen("widenBF16AVX2", func(src Mem, r reg.VecPhysical) {
		VPMOVZXWD(src, r)
		VPSLLD(Imm(16), r, r)
	})
	widen("widenF16AVX2", func(src Mem, r reg.VecPhysical) { VCVTPH2PS(src, r) })
	read()
}

// widen converts 16-bit values to float32.
func widen(name string, convert func(src Mem, r reg.VecPhysical)) {
	TEXT(name, NOSPLIT, "func(dst []float32, src []uint16)")
	Pragma("noescape")
	Doc(name + " widens src, whose length is a multiple of 16.")
	dst := Load(Param("dst").Base(), GP64())
	src := Load(Param("src").Base(), GP64())
	n := Load(Param("src").Len(), GP64())
	Label("loop")
	SUBQ(Imm(16), n)
	JLT(LabelRef("done"))
	for part := range 2 {
		convert(Mem{Base: src, Disp: 16 * part}, ymm[part])
		VMOVUPS(ymm[part], Mem{Base: dst, Disp: 32 * part})
	}
	ADDQ(Imm(32), src)
	ADDQ(Imm(64), dst)
	JMP(LabelRef("loop"))
	Label("done")
	VZEROUPPER()
	RET()
}

// read loads memory as fast as it comes, for measuring bandwidth.
func read() {
	TEXT("readAVX2", NOSPLIT, "func(p []byte) byte")
	Pragma("noescape")
	Doc("readAVX2 reads the whole blocks of 256 bytes of p.")
	p := Load(Param("p").Base(), GP64())
	n := Load(Param("p").Len(), GP64())
	for i := range 4 {
		VXORPS(ymm[i], ymm[i], ymm[i])
	}
	Label("loop")
	SUBQ(U32(256), n)
	JLT(LabelRef("done"))
	for i := range 8 {
		VORPS(Mem{Base: p, Disp: 32 * i}, ymm[i%4], ymm[i%4])
	}
	ADDQ(U32(256), p)
	JMP(LabelRef("loop"))
	Label("done")
	for i := 1; i < 4; i++ {
		VORPS(ymm[i], ymm[0], ymm[0])
	}
	VMOVD(reg.X0, n.(reg.GP).As32())
	Store(n.(reg.GP).As8(), ReturnIndex(0))
	VZEROUPPER()
	RET()
}

// vector is one generated function: a loop over 16 values and a masked rest.
// Registers 0 to 9 are the body's, 10 and 11 hold masks, 12 and 13 sums.
type vector struct {
	name   string
	masks  Mem
	params []string

	base   map[string]reg.Register
	length reg.Register
	tail   bool
}

func (v *vector) r(i int) reg.VecPhysical       { return ymm[i] }
func (v *vector) mask(part int) reg.VecPhysical { return ymm[10+part] }
func (v *vector) sum(part int) reg.VecPhysical  { return ymm[12+part] }

func (v vector) generate(signature, doc, length string, body func(v *vector)) {
	TEXT(v.name, NOSPLIT, signature)
	Pragma("noescape")
	Doc(fmt.Sprintf("%s: %s.", v.name, doc))
	v.base = map[string]reg.Register{}
	for _, p := range v.params {
		v.base[p] = Load(Param(p).Base(), GP64())
	}
	v.length = Load(Param(length).Len(), GP64())
	body(&v)
	VZEROUPPER()
	RET()
}

func (v *vector) broadcast(param string, r reg.VecPhysical) {
	m, err := Param(param).Resolve()
	if err != nil {
		panic(err)
	}
	VBROADCASTSS(m.Addr, r)
}

// each emits body for both parts of every 16 values.
func (v *vector) each(body func(part int)) {
	SUBQ(Imm(16), v.length)
	JLT(LabelRef("rest"))
	Label("loop")
	body(0)
	body(1)
	for _, p := range v.params {
		ADDQ(Imm(64), v.base[p])
	}
	SUBQ(Imm(16), v.length)
	JGE(LabelRef("loop"))
	Label("rest")
	ADDQ(Imm(16), v.length)
	JZ(LabelRef("done"))
	masks := GP64()
	LEAQ(v.masks.Offset(64), masks)
	SHLQ(Imm(2), v.length)
	SUBQ(v.length, masks)
	VMOVDQU(Mem{Base: masks}, v.mask(0))
	VMOVDQU(Mem{Base: masks, Disp: 32}, v.mask(1))
	v.tail = true
	body(0)
	body(1)
	v.tail = false
	Label("done")
}

func (v *vector) load(param string, part int, r reg.VecPhysical) {
	m := Mem{Base: v.base[param], Disp: 32 * part}
	if v.tail {
		VMASKMOVPS(m, v.mask(part), r)
		return
	}
	VMOVUPS(m, r)
}

func (v *vector) store(r reg.VecPhysical, param string, part int) {
	m := Mem{Base: v.base[param], Disp: 32 * part}
	if v.tail {
		VMASKMOVPS(r, v.mask(part), m)
		return
	}
	VMOVUPS(r, m)
}

func (v *vector) clearSum() {
	VXORPS(v.sum(0), v.sum(0), v.sum(0))
	VXORPS(v.sum(1), v.sum(1), v.sum(1))
}

func (v *vector) returnSum() {
	avx2.reduce([]reg.VecPhysical{v.sum(0), v.sum(1)}, v.r(0), v.r(1))
	finish([]reg.VecPhysical{v.r(0)})
	Store(v.r(0).AsX(), ReturnIndex(0))
}

func (v *vector) expSum(e exp, store bool) {
	v.broadcast("m", v.r(8))
	if store {
		v.broadcast("scale", v.r(9))
	}
	v.clearSum()
	v.each(func(part int) {
		x := v.r(0)
		v.load("x", part, x)
		if store {
			VMULPS(v.r(9), x, x)
		}
		VSUBPS(v.r(8), x, x)
		e.apply(x, v.r(1), v.r(2), v.r(3), v.r(4))
		if v.tail {
			VANDPS(v.mask(part), x, x)
		}
		if store {
			v.store(x, "x", part)
		}
		VADDPS(x, v.sum(part), v.sum(part))
	})
	v.returnSum()
}

// exp holds the constants of expf in ../oracle_float.go.
type exp struct {
	lowest, highest, log2e, magic, ln2Hi, ln2Lo, one, sign Mem
	poly                                                   [6]Mem
}

func newExp() exp {
	c := func(name string, v float32) Mem {
		return words("exp"+name, func(int) any { return v })
	}
	e := exp{
		lowest: c("Lowest", -87), highest: c("Highest", 88), log2e: c("Log2e", 1.44269504088896341),
		magic: c("Magic", 0x1.8p23), ln2Hi: c("Ln2Hi", 0.693359375), ln2Lo: c("Ln2Lo", -2.12194440e-4),
		one:  c("One", 1),
		sign: words("expSign", func(int) any { return uint32(0x80000000) }),
	}
	for i, v := range []float32{1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1} {
		e.poly[i] = c(fmt.Sprintf("Poly%d", i), v)
	}
	return e
}

// apply replaces x by e^x, with four registers of its own.
func (e exp) apply(x, t, n, y, keep reg.VecPhysical) {
	VCMPPS(Imm(5), e.lowest, x, keep) // not x < lowest: true for NaN
	VMOVUPS(e.lowest, t)
	VMAXPS(x, t, x) // NaN stays
	VMOVUPS(e.highest, t)
	VMINPS(x, t, x)
	VMOVUPS(e.log2e, t)
	VFMADD213PS(e.magic, x, t)
	VSUBPS(e.magic, t, n)
	VFNMADD231PS(e.ln2Hi, n, x)
	VFNMADD231PS(e.ln2Lo, n, x)
	VMOVUPS(e.poly[0], y)
	for _, c := range e.poly[1:] {
		VFMADD213PS(c, x, y)
	}
	VMULPS(x, x, n)
	VFMADD213PS(x, n, y)
	VADDPS(e.one, y, y)
	VPSLLD(Imm(23), t, t)
	VPADDD(t, y, y)
	VANDPS(keep, y, x)
}

// vectorLoop is what generates one function over whole vectors.
type vectorLoop func(name, signature, doc, length string, params []string, body func(v *vector))

// sumTree adds n vectors pairwise; the odd one out of a level moves up.
func sumTree(loop vectorLoop, n int) {
	params, list := treeSources(n)
	loop(fmt.Sprintf("sumTree%dAVX2", n), "func(dst, "+list+" []float32)", fmt.Sprintf("dst = the tree sum of %d vectors", n),
		"dst", append([]string{"dst"}, params...), func(v *vector) {
			v.each(func(part int) { v.store(v.treeOf(n, part), "dst", part) })
		})
}

// addTree adds the tree sum of n vectors to a segment and sums the squares of what
// comes out, all in one pass.
func addTree(loop vectorLoop, n int) {
	params, list := treeSources(n)
	loop(fmt.Sprintf("addTree%dAVX2", n), "func(dst, "+list+" []float32) float32",
		fmt.Sprintf("dst += the tree sum of %d vectors; returns the sum of its squares, a segment's, in lanes", n),
		"dst", append([]string{"dst"}, params...), func(v *vector) {
			v.clearSum()
			v.each(func(part int) {
				sum := v.treeOf(n, part)
				v.load("dst", part, v.r(8))
				VADDPS(v.r(8), sum, sum)
				v.store(sum, "dst", part)
				VFMADD231PS(sum, sum, v.sum(part))
			})
			v.returnSum()
		})
}

// treeSources is the parameters of n vectors, as names and as Go writes them.
func treeSources(n int) (params []string, list string) {
	for i := range n {
		params = append(params, fmt.Sprintf("x%d", i))
	}
	return params, strings.Join(params, ", ")
}

// treeOf loads n sources and adds them; the sum is in the register it returns.
func (v *vector) treeOf(n, part int) reg.VecPhysical {
	for i := range n {
		v.load(fmt.Sprintf("x%d", i), part, v.r(i))
	}
	level := ymm[:n:n]
	for len(level) > 1 {
		var up []reg.VecPhysical
		for i := 0; i+1 < len(level); i += 2 {
			VADDPS(level[i+1], level[i], level[i])
			up = append(up, level[i])
		}
		if len(level)%2 == 1 {
			up = append(up, level[len(level)-1])
		}
		level = up
	}
	return level[0]
}
