package collectives

import "github.com/octet-run/octet/kernels/cpu"

// normRows writes the rows of x normalised with weight to dst.
func normRows(dst, x []float32, width int, weight []float32, eps float32) {
	for lo := 0; lo < len(x); lo += width {
		cpu.NormRow(dst[lo:lo+width], x[lo:lo+width], weight, eps)
	}
}
