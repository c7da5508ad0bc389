package cpu

import "math"

// oracleAdd writes dst = x + y.
func oracleAdd(dst, x, y []float32) {
	for i := range dst {
		dst[i] = x[i] + y[i]
	}
}

// oracleScaleMul writes dst = (x * scale) * w.
func oracleScaleMul(dst, x, w []float32, scale float32) {
	for i := range dst {
		dst[i] = float32(x[i]*scale) * w[i]
	}
}

// oracleSumSquares adds the squares of at most one segment in lanes.
func oracleSumSquares(x []float32) float32 {
	var lanes [16]float32
	for i, v := range x {
		lanes[i%16] = fma32(v, v, lanes[i%16])
	}
	return sum16(&lanes)
}

// oracleSwiGLU writes dst = gate / (1 + e^-gate) * up.
func oracleSwiGLU(dst, gate, up []float32) {
	for i, g := range gate {
		dst[i] = g / (1 + expf(-g)) * up[i]
	}
}

// oracleAxpy adds a*x to dst.
func oracleAxpy(dst []float32, a float32, x []float32) {
	for i, v := range x {
		dst[i] = fma32(a, v, dst[i])
	}
}

// oracleMax is the largest value of x, or -Inf.
func oracleMax(x []float32) float32 {
	m := float32(math.Inf(-1))
	for _, v := range x {
		if v > m {
			m = v
		}
	}
	return m
}

// oracleExpSum replaces x by e^(x*scale - m) and returns the sum, in lanes.
func oracleExpSum(x []float32, scale, m float32) float32 {
	var lanes [16]float32
	for i, v := range x {
		x[i] = expf(float32(v*scale) - m)
		lanes[i%16] += x[i]
	}
	return sum16(&lanes)
}

// oracleSumExp is the sum of e^(x-m), in lanes.
func oracleSumExp(x []float32, m float32) float32 {
	var lanes [16]float32
	for i, v := range x {
		lanes[i%16] += expf(v - m)
	}
	return sum16(&lanes)
}

// oracleScale multiplies dst by scale.
func oracleScale(dst []float32, scale float32) {
	for i := range dst {
		dst[i] *= scale
	}
}

// oracleMerge writes dst = x*now + dst*old.
func oracleMerge(dst []float32, old float32, x []float32, now float32) {
	for i, v := range x {
		dst[i] = fma32(v, now, dst[i]*old)
	}
}

// oracleSumTree adds neighbours, then their sums, and so on; the last of an odd
// number moves up.
func oracleSumTree(dst []float32, srcs [][]float32) {
	var level [maxSumTree]float32
	for i := range dst {
		for n, src := range srcs {
			level[n] = src[i]
		}
		for n := len(srcs); n > 1; n = (n + 1) / 2 {
			for j := 0; j < n; j += 2 {
				level[j/2] = level[j]
				if j+1 < n {
					level[j/2] += level[j+1]
				}
			}
		}
		dst[i] = level[0]
	}
}

// oracleAddTree adds the tree sum to a segment, then sums its squares.
func oracleAddTree(dst []float32, srcs [][]float32) float32 {
	var sum [NormSegment]float32
	oracleSumTree(sum[:len(dst)], srcs)
	oracleAdd(dst, dst, sum[:len(dst)])
	return oracleSumSquares(dst)
}

// oracleRead reads a byte of every cache line.
func oracleRead(p []byte) (sum byte) {
	for i := 0; i < len(p); i += 64 {
		sum |= p[i]
	}
	return sum
}
