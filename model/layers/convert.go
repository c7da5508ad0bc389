package layers

import (
	"encoding/binary"
	"math"

	"github.com/octet-run/octet/kernels"
)

// floatsOf widens row r of a host tensor to float32.
func floatsOf(t kernels.Tensor, r int) []float32 {
	out := make([]float32, t.Cols)
	switch t.DType {
	case kernels.F32:
		copy(out, t.F32Row(r))
	case kernels.BF16:
		for i, v := range t.U16Row(r) {
			out[i] = math.Float32frombits(uint32(v) << 16)
		}
	case kernels.F16:
		for i, v := range t.U16Row(r) {
			out[i] = half(v)
		}
	case kernels.F8E4M3:
		for i, v := range t.ByteRow(r) {
			out[i] = e4m3(v)
		}
	}
	return out
}

// finite reports whether no value in row r of a host tensor of floats is NaN or
// infinite: whether no exponent has all its bits set.
func finite(t kernels.Tensor, r int) bool {
	var exponent, rest uint64 // of every value in a word
	switch t.DType {
	case kernels.F32:
		exponent, rest = 0x7F800000_7F800000, 0x7FFFFFFF_7FFFFFFF
	case kernels.BF16:
		exponent, rest = 0x7F80_7F80_7F80_7F80, 0x7FFF_7FFF_7FFF_7FFF
	case kernels.F16:
		exponent, rest = 0x7C00_7C00_7C00_7C00, 0x7FFF_7FFF_7FFF_7FFF
	}
	row := t.ByteRow(r)
	var bad uint64
	for ; len(row) >= 8; row = row[8:] {
		clear := ^binary.LittleEndian.Uint64(row) & exponent
		bad |= ^(clear + rest) &^ rest // the sign bit of a value whose clear is zero
	}
	var last [8]byte
	copy(last[:], row)
	clear := ^binary.LittleEndian.Uint64(last[:]) & exponent
	return (bad | ^(clear+rest)&^rest) == 0
}

// nanE4M3 is the index of the first E4M3 value that is NaN, which is 0x7F of either
// sign, or -1.
func nanE4M3(row []byte) int {
	const (
		ones = 0x7F7F7F7F_7F7F7F7F
		unit = ones / 0x7F // added to a byte without its sign, carries into the sign of 0x7F alone
	)
	i := 0
	for ; i+32 <= len(row); i += 32 {
		w := row[i : i+32 : i+32]
		found := binary.LittleEndian.Uint64(w)&ones + unit
		found |= binary.LittleEndian.Uint64(w[8:])&ones + unit
		found |= binary.LittleEndian.Uint64(w[16:])&ones + unit
		found |= binary.LittleEndian.Uint64(w[24:])&ones + unit
		if found&^ones != 0 {
			break
		}
	}
	for ; i < len(row); i++ {
		if row[i]&0x7F == 0x7F {
			return i
		}
	}
	return -1
}

// half widens an IEEE half.
func half(v uint16) float32 {
	sign, exponent, mantissa := uint32(v>>15)<<31, uint32(v>>10&31), uint32(v&0x3FF)
	switch exponent {
	case 0:
		f := float32(mantissa) / (1 << 24)
		return math.Float32frombits(math.Float32bits(f) | sign)
	case 31:
		return math.Float32frombits(sign | 0x7F800000 | mantissa<<13)
	}
	return math.Float32frombits(sign | (exponent+112)<<23 | mantissa<<13)
}

// e4m3 widens an 8-bit float of 4 exponent bits without infinities.
func e4m3(v byte) float32 {
	sign, exponent, mantissa := uint32(v>>7)<<31, uint32(v>>3&15), uint32(v&7)
	switch {
	case exponent == 15 && mantissa == 7:
		return float32(math.NaN())
	case exponent == 0:
		return math.Float32frombits(math.Float32bits(float32(mantissa)/(1<<9)) | sign)
	}
	return math.Float32frombits(sign | (exponent+120)<<23 | mantissa<<20)
}

// F32Vector takes a vector of n elements, widened to F32.
func (w *Weights) F32Vector(name string, n int) kernels.Tensor {
	stored := w.Loader.TakeVector(name, n, 0, n, kernels.F32, kernels.BF16, kernels.F16)
	w.demandFinite(name, stored, 0, "finite numbers")
	if stored.DType == kernels.F32 || stored.Host == nil {
		return w.place(stored)
	}
	wide := w.Loader.Alloc(kernels.F32, 1, n)
	if wide.Host != nil {
		copy(wide.F32Row(0), floatsOf(stored, 0))
	}
	return w.place(wide)
}
