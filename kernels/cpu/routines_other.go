//go:build !amd64

package cpu

func routinesFor(ISA) routines { return genericRoutines() }

func sumTree(dst []float32, srcs [][]float32) { oracleSumTree(dst, srcs) }
func addTree(dst []float32, s *[maxSumTree][]float32, n int) float32 {
	return oracleAddTree(dst, s[:n])
}
func add(dst, x, y []float32)                     { oracleAdd(dst, x, y) }
func widenBF16(dst []float32, src []uint16)       { oracleWidenBF16(dst, src) }
func widenF16(dst []float32, src []uint16)        { oracleWidenF16(dst, src) }
func sumSquares(x []float32) float32              { return oracleSumSquares(x) }
func scaleMul(dst, x, w []float32, scale float32) { oracleScaleMul(dst, x, w, scale) }

const blockOfRead = 256

func read(p []byte) byte { return oracleRead(p) }
