//go:build cuda

package cuda

import (
	"math"
	"math/rand/v2"
)

// The contract of the all-reduce in plain Go.

func bf16(v float32) uint16 {
	b := math.Float32bits(v)
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}

func wide(v uint16) float32 { return math.Float32frombits(uint32(v) << 16) }

// treeSum adds along a binary tree over the ranks.
func treeSum(v []float32) float32 {
	for len(v) > 1 {
		n := len(v) / 2
		next := make([]float32, 0, n+1)
		for i := range n {
			next = append(next, v[2*i]+v[2*i+1])
		}
		if len(v)%2 == 1 {
			next = append(next, v[len(v)-1])
		}
		v = next
	}
	return v[0]
}

// reduceReference is the rounded sum of the ranks' rows.
func reduceReference(in [][]uint16) []uint16 {
	out := make([]uint16, len(in[0]))
	v := make([]float32, len(in))
	for i := range out {
		for r := range in {
			v[r] = wide(in[r][i])
		}
		out[i] = bf16(treeSum(v))
	}
	return out
}

func fma32(a, b, c float32) float32 {
	// The product of two bf16 values is exact in float32, so rounding happens once.
	return float32(a*b) + c
}

// normReference adds sum to residual in place and returns the normalised rows.
func normReference(residual, sum, weight []uint16, eps float32) []uint16 {
	cols := len(weight)
	normed := make([]uint16, len(sum))
	for i := range residual {
		residual[i] = bf16(wide(residual[i]) + wide(sum[i]))
	}
	for lo := 0; lo < len(sum); lo += cols {
		row := residual[lo : lo+cols]
		var total float32
		for s := 0; s < cols; s += 512 {
			var l [16]float32
			for i, v := range row[s:min(s+512, cols)] {
				l[i%16] = fma32(wide(v), wide(v), l[i%16])
			}
			var t [4]float32
			for i := range t {
				t[i] = (l[i] + l[i+8]) + (l[i+4] + l[i+12])
			}
			total += (t[0] + t[1]) + (t[2] + t[3])
		}
		inv := float32(1 / math.Sqrt(float64(total)/float64(cols)+float64(eps)))
		for i, v := range row {
			normed[lo+i] = bf16(float32(wide(v)*inv) * wide(weight[i]))
		}
	}
	return normed
}

// randomBF16 yields the same values for the same seed in every process.
func randomBF16(n int, seed, stream uint64) []uint16 {
	rng := rand.New(rand.NewPCG(seed, stream))
	out := make([]uint16, n)
	for i := range out {
		u := rng.Uint64()
		// A sign, an exponent around one, and a mantissa: rounding differs in
		// almost every sum.
		out[i] = uint16(u&0x8000) | uint16(120+u>>16%10)<<7 | uint16(u>>32&0x7f)
	}
	return out
}
