package cpu

import (
	"math"

	"github.com/octet-run/octet/kernels"
)

func bf16ToF32(b uint16) float32 { return math.Float32frombits(uint32(b) << 16) }

// f32ToBF16 rounds to nearest, ties to even.
func f32ToBF16(f float32) uint16 {
	u := math.Float32bits(f)
	if f != f {
		return uint16(u>>16) | 0x40
	}
	return uint16((u + 0x7fff + u>>16&1) >> 16)
}

func f16ToF32(h uint16) float32 {
	sign := uint32(h&0x8000) << 16
	rest := uint32(h & 0x7fff)
	if rest >= 0x7c00 { // infinity, NaN: exponent of all ones stays so
		return math.Float32frombits(sign | 0x7f800000 | (rest&0x3ff)<<13)
	}
	// Moved into place the exponent is 112 too small; scaling also mends subnormals.
	return math.Float32frombits(sign | math.Float32bits(math.Float32frombits(rest<<13)*0x1p112))
}

// f32ToF16 rounds to nearest, ties to even.
func f32ToF16(f float32) uint16 {
	u := math.Float32bits(f)
	sign := uint16(u >> 16 & 0x8000)
	u &= 0x7fffffff
	switch {
	case u > 0x7f800000:
		return sign | 0x7e00
	case u >= 0x477ff000: // rounds to 2^16 or more
		return sign | 0x7c00
	case u < 0x38800000: // subnormal: let the adder round at 2^-24
		return sign | uint16(math.Float32bits(math.Float32frombits(u)+0.5)-math.Float32bits(0.5))
	}
	return sign | uint16((u-0x38000000+0xfff+u>>13&1)>>13)
}

// f8ToF32 widens E4M3 (bias 7, no infinities). Checkpoints hold no NaN; its
// pattern reads as 480.
func f8ToF32(b uint8) float32 { return f8Small(b) * f8Scale }

// f8Small is E4M3 in the place of an F16, whose bias makes it f8Scale too small.
func f8Small(b uint8) float32 { return f16ToF32(uint16(b&0x80)<<8 | uint16(b&0x7f)<<7) }

const f8Scale = 256

// fma32 is x*y + z rounded once. The product of two float32 is exact in
// float64; the sum is then rounded twice, which matters only when the first
// rounding lands exactly between two float32, or below the normal range.
func fma32(x, y, z float32) float32 {
	p := float64(x) * float64(y)
	s := p + float64(z)
	u := math.Float64bits(s)
	if u&(1<<29-1) != 1<<28 && u>>52&0x7ff >= 1023-126 {
		return float32(s)
	}
	return roundOnce(p, float64(z), s)
}

// roundOnce makes the inexact float64 sum s = p + z odd (Boldo and Melquiond),
// so that rounding it again to float32 equals rounding the exact sum.
func roundOnce(p, z, s float64) float32 {
	zz := s - p
	err := (p - (s - zz)) + (z - zz)
	u := math.Float64bits(s)
	if err == 0 || err != err || u&1 == 1 {
		return float32(s)
	}
	if (err > 0) == (s > 0) {
		u++
	} else {
		u--
	}
	return float32(math.Float64frombits(u))
}

// sum16 adds the 16 lanes of a sum in the fixed tree.
func sum16(l *[16]float32) float32 {
	var t [4]float32
	for i := range t {
		t[i] = (l[i] + l[i+8]) + (l[i+4] + l[i+12])
	}
	return (t[0] + t[1]) + (t[2] + t[3])
}

// expf is e^x to about 2 ulp, by the method of Cephes: x = n ln2 + r, a
// polynomial in r, n added to the exponent. Below -87 it is 0, above 88 e^88.
func expf(x float32) float32 {
	const (
		magic = 0x1.8p23 // adding it leaves the nearest integer in the low bits
		log2e = 1.44269504088896341
		ln2Hi = 0.693359375
		ln2Lo = -2.12194440e-4
	)
	if x < -87 {
		return 0
	}
	if x > 88 {
		x = 88
	}
	t := fma32(x, log2e, magic)
	n := t - magic
	r := fma32(n, -ln2Hi, x)
	r = fma32(n, -ln2Lo, r)
	y := float32(1.9875691500e-4)
	y = fma32(y, r, 1.3981999507e-3)
	y = fma32(y, r, 8.3334519073e-3)
	y = fma32(y, r, 4.1665795894e-2)
	y = fma32(y, r, 1.6666665459e-1)
	y = fma32(y, r, 5.0000001201e-1)
	y = fma32(y, r*r, r) + 1
	return math.Float32frombits(math.Float32bits(y) + math.Float32bits(t)<<23)
}

// loadF32 widens element i of row r of a float tensor.
func loadF32(t kernels.Tensor, r, i int) float32 {
	switch t.DType {
	case kernels.BF16:
		return bf16ToF32(t.U16Row(r)[i])
	case kernels.F16:
		return f16ToF32(t.U16Row(r)[i])
	case kernels.F8E4M3:
		return f8ToF32(t.ByteRow(r)[i])
	}
	return t.F32Row(r)[i]
}

func oracleWidenBF16(dst []float32, src []uint16) {
	for i, v := range src {
		dst[i] = bf16ToF32(v)
	}
}

func oracleWidenF16(dst []float32, src []uint16) {
	for i, v := range src {
		dst[i] = f16ToF32(v)
	}
}

// narrow writes src to row r of a float tensor.
func narrow(t kernels.Tensor, r int, src []float32) {
	switch t.DType {
	case kernels.F32:
		copy(t.F32Row(r), src)
	case kernels.BF16:
		dst := t.U16Row(r)
		for i, v := range src {
			dst[i] = f32ToBF16(v)
		}
	case kernels.F16:
		dst := t.U16Row(r)
		for i, v := range src {
			dst[i] = f32ToF16(v)
		}
	}
}
