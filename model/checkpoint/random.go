package checkpoint

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"strings"

	"github.com/octet-run/octet/kernels"
)

// Random makes up weights: a checkpoint of any shape without a file, for
// benchmarks. Magnitudes keep activations near one from layer to layer.
type Random struct {
	rng *rand.PCG
}

// NewRandom seeds a source of weights.
func NewRandom(seed uint64) *Random { return &Random{rng: rand.NewPCG(seed, 0)} }

// Synthetic is a checkpoint that has every tensor a loader asks for, made up on
// the spot, in the first of the types that the loader accepts.
func Synthetic(seed uint64) *Files {
	return &Files{dir: "synthetic weights", tensors: map[string]located{}, random: NewRandom(seed)}
}

// fresh is how many bytes of a tensor are drawn; larger ones repeat them.
const fresh = 4 << 20

// Fill writes weights of a type to dst. fanIn is how many of them make one sum.
func (r *Random) Fill(dst []byte, d kernels.DType, fanIn int) {
	r.draw(dst[:min(len(dst), fresh)], d, fanIn)
	for done := fresh; done < len(dst); done *= 2 {
		copy(dst[done:], dst[:done])
	}
}

func (r *Random) draw(dst []byte, d kernels.DType, fanIn int) {
	mask, pattern := bitPattern(d, fanIn)
	full := len(dst) &^ 7
	for i := 0; i < full; i += 8 {
		binary.LittleEndian.PutUint64(dst[i:], r.rng.Uint64()&mask|pattern)
	}
	if full < len(dst) {
		var tail [8]byte
		binary.LittleEndian.PutUint64(tail[:], r.rng.Uint64()&mask|pattern)
		copy(dst[full:], tail[:])
	}
}

// bitPattern says which bits of eight bytes are random and what the others are:
// sign and mantissa are, the exponent is that of 1/sqrt(fanIn).
func bitPattern(d kernels.DType, fanIn int) (mask, pattern uint64) {
	exponent := uint64(127 - (math.Ilogb(float64(max(fanIn, 1)))+1)/2)
	switch d {
	case kernels.BF16:
		return 0x807F_807F_807F_807F, exponent << 7 * 0x0001_0001_0001_0001
	case kernels.F16:
		return 0x83FF_83FF_83FF_83FF, max(exponent-112, 1) << 10 * 0x0001_0001_0001_0001
	case kernels.F32:
		return 0x807F_FFFF_807F_FFFF, exponent << 23 * 0x0000_0001_0000_0001
	case kernels.F8E4M3:
		return 0x8787_8787_8787_8787, 7 << 3 * 0x0101_0101_0101_0101
	}
	return math.MaxUint64, 0 // packed integers
}

// Ones fills dst with ones, as norms have.
func Ones(dst []byte, d kernels.DType) {
	size := d.Bytes()
	one := map[kernels.DType]uint64{kernels.BF16: 0x3F80, kernels.F16: 0x3C00, kernels.F32: 0x3F80_0000}[d]
	for i := range dst {
		dst[i] = byte(one >> (8 * (i % size)))
	}
}

// IsNorm reports whether a tensor is the weight of a norm, by its name.
func IsNorm(name string) bool { return strings.HasSuffix(name, "norm.weight") }
